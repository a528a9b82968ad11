"""Bridges from JetStream, durable: rows of few and many lines a message, and of new series.

Prints lines per CPU-second (user and system) of the bridge's own process, without what it takes to
start, which is measured on an empty stream. Several interpreters, each with its own ccpipe, are
measured in turn on the same streams, with the ratio to the first::

    python -m benchmarks.bench_bridge
    python -m benchmarks.bench_bridge --rows 1,500 --lines 2000000
    python -m benchmarks.bench_bridge ../before/.venv/bin/python .venv/bin/python
    python -m benchmarks.bench_bridge --sink 'use = "parquet"; dir = "out"' --rows 500,new
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nats

from benchmarks.bus import _await_port, _free_port, _running
from benchmarks.payloads import new_series, payload, realistic
from ccpipe.bus.nats.server import server_program

RECIPE = """
cluster = "bench"
[bus]
servers = ["nats://127.0.0.1:{port}"]
[source]
use = "nats"
subjects = ["{subject}"]
durable = "{durable}"
drain = "60s"
[sink]
{sink}
"""
LARGE = 100
"""Lines a message from which on five times as many are sent: they cost so little."""
NAMES = {"new": "500 lines, all of new series"}
"""Of the rows that are not a number of lines a message."""


class Run(NamedTuple):
    """What one bridge did."""

    written: int
    seconds: float
    """CPU, user and system."""
    megabytes: float
    """Resident, at most."""


def payloads(row: str, count: int) -> Iterator[bytes]:
    """Yield the messages of one row, of `count` lines together."""
    if row == "empty":
        return
    if row == "new":
        for start in range(0, count, 500):
            yield payload(list(new_series(start, min(start + 500, count))))
        return
    size = int(row)
    lines = realistic(50_000)
    usual = [payload(lines[at : at + size]) for at in range(0, len(lines) - size + 1, size)]
    for number in range(count // size):
        yield usual[number % len(usual)]


async def publish(port: int, row: str, count: int) -> None:
    """Store the messages of one row in a stream of its own."""
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = connection.jetstream()
    await stream.add_stream(name=f"s{row}", subjects=[f"bench.{row}"], max_bytes=4 * 2**30)
    for number, message in enumerate(payloads(row, count)):
        await connection.publish(f"bench.{row}", message)
        if number % 500 == 0:
            await connection.flush(60)
    await connection.drain()


def bridge(python: str, recipe: Path) -> Run:
    """Run a bridge until its stream is empty."""
    with recipe.with_suffix(".log").open("w+") as log:
        command = [python, "-m", "ccpipe", "bridge", str(recipe), "--for", "1s"]
        child = subprocess.Popen(  # noqa: S603
            command, stdout=log, stderr=subprocess.STDOUT, cwd=recipe.parent
        )
        _, _, usage = os.wait4(child.pid, 0)
        log.seek(0)
        text = log.read()
    if (found := re.search(r"records read, (\d+) written", text)) is None:
        raise SystemExit(text)
    return Run(int(found[1]), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def measure(port: int, folder: Path, row: str, options: argparse.Namespace) -> None:
    """Print one row for each interpreter."""
    name = NAMES.get(row, f"{row:>3} lines a message")
    first = 0.0
    for number, python in enumerate(options.python):
        found = []
        for kind, subject in (("empty", "bench.empty"), ("full", f"bench.{row}")):
            recipe = folder / f"{kind}-{row}-{number}.toml"
            durable = f"{kind}-{row}-{number}"
            sink = "\n".join(options.sink.split(";"))
            recipe.write_text(RECIPE.format(port=port, subject=subject, durable=durable, sink=sink))
            found.append(bridge(python, recipe))
        start, full = found
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
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), _free_port()
        config = folder / "nats.conf"
        config.write_text(
            f"port: {port}\nhost: 127.0.0.1\njetstream {{ store_dir: {folder}/js }}\n"
        )
        with _running([server_program(), "-c", str(config)]):
            _await_port(port)
            asyncio.run(publish(port, "empty", 0))
            for row in options.rows.split(","):
                large = row.isdecimal() and int(row) >= LARGE
                asyncio.run(publish(port, row, options.lines * (5 if large else 1)))
                measure(port, folder, row, options)
                asyncio.run(_drop(port, f"s{row}"))


async def _drop(port: int, stream: str) -> None:
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    await connection.jetstream().delete_stream(stream)
    await connection.close()


if __name__ == "__main__":
    main()
