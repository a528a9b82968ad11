"""Bridges from JetStream, durable: rows of few and many lines a message, and of new series.

Prints lines per CPU-second (user and system) of the bridge's own process, without its start, which
is measured on an empty stream. Several interpreters, each with its own ccpipe, are
measured in turn on the same streams, with the ratio to the first::

    python -m benchmarks.bridges.rows
    python -m benchmarks.bridges.rows --rows 1,500 --lines 2000000
    python -m benchmarks.bridges.rows ../before/.venv/bin/python .venv/bin/python
    python -m benchmarks.bridges.rows --sink 'use = "parquet"; dir = "out"' --rows 500,new
"""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.bridges.stores import bridge
from benchmarks.bridges.streams import EMPTY, NEW, drop, publish
from benchmarks.servers import jetstream

RECIPE = """
[source]
use = "nats"
subjects = ["metrics"]
durable = "bench"
[sink]
{sink}
"""
LARGE = 100
"""Lines a message from which on five times as many are sent: they cost so little."""
NAMES = {NEW: "500 lines, all of new series"}
"""Of the rows that are not a number of lines a message."""


def measure(url: str, directory: Path, row: str, options: argparse.Namespace) -> None:
    """Print one row for each interpreter."""
    name = NAMES.get(row, f"{row:>3} lines a message")
    recipe = directory / "bench.toml"
    recipe.write_text(RECIPE.format(sink="\n".join(options.sink.split(";"))))
    first = 0.0
    for python in options.python:
        start, full = (
            bridge(python, str(recipe), url, stream, {}, directory) for stream in (EMPTY, row)
        )
        speed = full.written / (full.seconds - start.seconds)
        first = first or speed
        print(
            f"{name}: {speed / 1e6:.3f} M lines/CPU-s, {speed / first:.2f} of the first "
            f"({full.written} lines in {full.seconds:.2f} s, {start.seconds:.2f} s of them to "
            f"start; {full.megabytes:.0f} MB) {python}",
            flush=True,
        )


def main() -> None:
    """Print one line for each row and interpreter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    parser.add_argument("--rows", default="1,10,500,new")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--sink", default='use = "null"')
    options = parser.parse_args()
    options.python = [os.path.abspath(python) for python in options.python]  # noqa: PTH100 - of links
    with tempfile.TemporaryDirectory() as name, jetstream() as url:
        directory = Path(name)
        asyncio.run(publish(url, EMPTY, 0))
        for python in options.python:  # to compile it
            recipe = directory / "compile.toml"
            recipe.write_text(RECIPE.format(sink='use = "null"'))
            bridge(python, str(recipe), url, EMPTY, {}, directory)
        for row in options.rows.split(","):
            large = row.isdecimal() and int(row) >= LARGE
            asyncio.run(publish(url, row, options.lines * (5 if large else 1)))
            measure(url, directory, row, options)
            asyncio.run(drop(url, row))


if __name__ == "__main__":
    main()
