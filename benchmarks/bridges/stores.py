"""Shipped bridges, durable, from JetStream into stores, compared with Telegraf.

Lines per CPU-second of the bridge's own process, without its start, which is measured on an empty
stream.
"""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks import servers
from benchmarks.bridges import telegraf
from benchmarks.bridges.streams import EMPTY, FEW_NEW, NEW, publish, subject
from scripts import otlp_receivers

ROWS = {"500": 5_000_000, "10": 1_000_000, "1": 300_000, NEW: 500_000}
"""Lines in a message, or new series; and how many lines are measured."""
FEW_NEW_ROWS = {"500": 5_000_000, "10": 1_000_000, "1": 300_000, FEW_NEW: 100_000}
"""The same where half a million new series take a minute, in the store or in the bridge."""
TELEGRAF_ROWS = {"500": 500_000, "10": 500_000, "1": 200_000, NEW: 300_000, FEW_NEW: 50_000}
"""The same for a slower process."""

NULL = """
[source]
use = "nats"
subjects = ["metrics"]
durable = "null"
[sink]
use = "null"
"""

OTLP_RECEIVER = "victoria-metrics-2025"
"""The program that receives OpenTelemetry."""

WITHOUT_KERNEL = "without-kernel.toml"
"""The same recipe, run without the compiled kernels."""

LIMITS: dict[tuple[str, str], str] = {
    ("null", "500"): "decoding, half of it; copies from socket to payload, a quarter",
    ("null", "10"): "decoding; splitting and acknowledging each message",
    ("null", "1"): "splitting and acknowledging each message",
    ("null", NEW): "adding series to the table: checking, hashing and keeping their bytes",
    ("null, without kernels", "500"): "decoding, in Python",
    ("victoriametrics", "500"): "as null, and the kernel's copies of the request",
    ("victoriametrics", "10"): "as null; the store itself takes longer than the bridge",
    ("victoriametrics", "1"): "splitting and acknowledging each message",
    ("victoriametrics", NEW): "adding series to the table; the store itself takes far longer",
    ("otlp", "500"): "encoding points, in Python; compressing them, a quarter",
    ("otlp", "10"): "as 500; splitting and acknowledging each message",
    ("otlp", "1"): "splitting and acknowledging each message",
    ("otlp", FEW_NEW): "encoding the attributes of each series, in Python",
    ("parquet", "500"): "Parquet's encodings and compression, in pyarrow; then decoding",
    ("parquet", "10"): "as 500; splitting and acknowledging each message",
    ("parquet", "1"): "splitting and acknowledging each message",
    ("parquet", NEW): "adding series to the table: checking, hashing and keeping their bytes",
    ("delta", "500"): "Parquet's encodings and compression, in delta-rs; then decoding",
    ("delta", "10"): "as 500; splitting and acknowledging each message",
    ("delta", "1"): "splitting and acknowledging each message",
    ("delta", NEW): "adding series to the table: checking, hashing and keeping their bytes",
    ("clickhouse", "500"): "joining rows, in Python",
    ("clickhouse", "10"): "as 500",
    ("clickhouse", "1"): "as 500; splitting and acknowledging each message",
    ("postgres", "500"): "writing rows as binary COPY, and the kernel's copies of them",
    ("postgres", "10"): "writing rows as binary COPY; splitting and acknowledging each message",
    ("postgres", "1"): "splitting and acknowledging each message",
    ("postgres", FEW_NEW): "adding series to the table; then hashing them and writing their rows",
}
"""The limit of each row, from its profiles."""


class Bridge(msgspec.Struct):
    """A measurement of one bridge."""

    store: str
    row: str
    lines: int
    seconds: float
    """CPU, user and system, without the start."""
    start: float
    """CPU seconds that the start takes."""
    megabytes: float
    """Resident, at most."""
    telegraf: float | None = None
    """Lines per CPU-second of Telegraf doing the same."""

    @property
    def speed(self) -> float:
        """Lines per CPU-second."""
        return self.lines / self.seconds


class Run(NamedTuple):
    """One process."""

    written: int
    seconds: float
    megabytes: float


def bridge(
    python: str, recipe: str, url: str, row: str, options: Mapping[str, str], directory: Path
) -> Run:
    """Run a recipe, under a durable name of its own, until the stream of `row` is empty."""
    environment = {
        **os.environ,
        "CCPIPE_CLUSTER": "bench",
        "CCPIPE_BUS__SERVERS": url,
        "CCPIPE_SOURCE__SUBJECTS": subject(row),
        "CCPIPE_SOURCE__DURABLE": f"d{secrets.token_hex(4)}",
        "CCPIPE_SOURCE__DRAIN_TIMEOUT": "120s",
        **({"CCPIPE_KERNEL": "python"} if recipe.endswith(WITHOUT_KERNEL) else {}),
        **{f"CCPIPE_SINK__{name.upper()}": value for name, value in options.items()},
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every start would compile everything
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "pycache")
    command = [python, "-m", "ccpipe", "bridge", recipe, "--for", "1s"]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _PARENT, *command],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment,
        check=False,
    )
    if (found := re.search(r"records read, (\d+) written", done.stderr)) is None:
        raise SystemExit(done.stderr)
    seconds, megabytes = map(float, done.stdout.split()[-2:])
    return Run(int(found[1]), seconds, megabytes)


_PARENT = """
import os, subprocess, sys
_, _, usage = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""
"""A process counts the memory of the one that it was forked from as its own: here a small one."""


class Store(NamedTuple):
    """A store that runs."""

    options: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Of its sink."""
    address: str = ""
    """What Telegraf's output writes to."""


@contextlib.contextmanager
def store(name: str, directory: Path) -> Iterator[Store]:
    """Run a store."""
    if name == "victoriametrics":
        with servers.victoriametrics() as url:
            yield Store({"url": url}, url)
    elif name == "otlp":
        with servers.victoriametrics(otlp_receivers.find(OTLP_RECEIVER)) as url:
            yield Store({"url": url, "url_path": "/opentelemetry/v1/metrics"})
    elif name == "postgres":
        with servers.postgres() as url:
            yield Store({"url": url}, url)
    elif name == "clickhouse":
        with servers.clickhouse() as server:
            options = {
                "url": server.url,
                "user": "default",
                "password_file": str(server.password_file),
                "create_table": "false",
                "deduplicate": "false",
            }
            yield Store(options, server.native_url)
    elif name in ("parquet", "delta"):
        with tempfile.TemporaryDirectory(dir=directory) as out:
            yield Store({"dir" if name == "parquet" else "url": out}, out)
    else:
        yield Store()


def stores() -> Iterator[str]:
    """Yield the stores that can be measured here; report the others."""
    yield "null"
    yield "null, without kernels"
    if shutil.which("victoria-metrics"):
        yield "victoriametrics"
    else:
        print("VictoriaMetrics is not installed and left out")
    if otlp_receivers.find(OTLP_RECEIVER):
        yield "otlp"
    else:
        print(f"{OTLP_RECEIVER} is not compiled by scripts/otlp_receivers.py and otlp left out")
    if find_spec("pyarrow"):
        yield "parquet"
    else:
        print("pyarrow is not installed and Parquet left out")
    if find_spec("deltalake"):
        yield "delta"
    else:
        print("deltalake is not installed and Delta left out")
    if shutil.which("clickhouse-server"):
        yield "clickhouse"
    else:
        print("ClickHouse is not installed and left out")
    if servers.postgres_programs() and find_spec("asyncpg"):
        yield "postgres"
    else:
        print("PostgreSQL or asyncpg is not installed and left out")


def bridges(
    *, quick: bool = False, program: Path | None = None, only: Sequence[str] = ()
) -> list[Bridge]:
    """Measure stores on all streams, by default all, and Telegraf's `program` if there is one."""
    share = 4 if quick else 1
    found: list[Bridge] = []
    with tempfile.TemporaryDirectory() as name, servers.jetstream() as url:
        directory = Path(name)
        for row, count in {EMPTY: 0, **ROWS, **FEW_NEW_ROWS}.items():
            asyncio.run(publish(url, row, count // share))
        recipe = directory / "null.toml"
        recipe.write_text(NULL)
        (directory / WITHOUT_KERNEL).write_text(NULL)
        recipes = {"null": str(recipe), "null, without kernels": str(directory / WITHOUT_KERNEL)}
        for each in (name for name in stores() if not only or name in only):
            shipped = recipes.get(each, each)
            with store(each, directory) as running:
                rounds = 1 if quick else 2
                found += _rows(each, shipped, url, running.options, directory, rounds)
    for one in found:
        if one.lines != (count := _rows_of(one.store)[one.row] // share):
            print(f"{one.store} {one.row}: only {one.lines} of {count} lines were written in time")
        print(f"{one.store} {one.row}: {one.speed / 1e6:.2f} M lines/CPU-s, {one.megabytes:.0f} MB")
    if program is not None:
        _beside(found, program, share)
    return found


def _rows_of(store: str) -> dict[str, int]:
    if store == "null, without kernels":
        return {"500": ROWS["500"]}
    if store == "clickhouse":  # Debian's has no maps, which tags such as those of NEW need
        return {row: ROWS[row] for row in ("500", "10", "1")}
    return FEW_NEW_ROWS if store in ("otlp", "postgres") else ROWS


def _rows(
    name: str, recipe: str, url: str, options: Mapping[str, str], directory: Path, rounds: int
) -> Iterator[Bridge]:
    """Measure one store on each stream, the best of some rounds."""

    def run(row: str) -> Run:
        times = 1 if row in (NEW, FEW_NEW) else rounds  # a second time they are not new
        runs = [bridge(sys.executable, recipe, url, row, options, directory) for _ in range(times)]
        return min(runs, key=lambda one: one.seconds / max(one.written, 1))

    bridge(sys.executable, recipe, url, EMPTY, options, directory)  # to compile, and make tables
    start = run(EMPTY).seconds
    for row in _rows_of(name):
        one = run(row)
        yield Bridge(name, row, one.written, one.seconds - start, start, one.megabytes)


def _beside(found: list[Bridge], program: Path, share: int) -> None:
    """Measure Telegraf into the stores that it has an output for."""
    counts = {row: count // share for row, count in TELEGRAF_ROWS.items()}
    with tempfile.TemporaryDirectory() as name, servers.jetstream() as url:
        directory = Path(name)
        for row, count in {EMPTY: 0, **counts}.items():
            asyncio.run(publish(url, row, count))
        for each in dict.fromkeys(one.store for one in found):
            with store(each, directory) as running:
                rows = {row: counts[row] for row in _rows_of(each)}
                speeds = telegraf.speeds(program, each, running.address, url, rows, directory)
            for one in found:
                if one.store == each:
                    one.telegraf = speeds.get(one.row)


def markdown(found: list[Bridge]) -> list[str]:
    """Return the table."""
    return [
        "## Bridges: JetStream, durable, recipes as shipped",
        "",
        "| store | lines a message | M lines/CPU-s | MB | Telegraf | ratio | what limits it now |",
        "|---|---:|---:|---:|---:|---:|---|",
        *(
            f"| {one.store} | {_NAMES.get(one.row, one.row)} | {one.speed / 1e6:.2f} |"
            f" {one.megabytes:.0f} | {_telegraf(one)} | {LIMITS[one.store, one.row]} |"
            for one in found
        ),
        "",
        "`new`: 500 lines a message, each of a series of its own. Megabytes are resident, at most.",
        *([] if any(one.telegraf for one in found) else ["Telegraf was not there to be measured."]),
    ]


_NAMES = {NEW: "500, new", FEW_NEW: "500, new"}


def _telegraf(one: Bridge) -> str:
    if not one.telegraf:
        return " | "
    return f"{one.telegraf / 1e6:.2f} | {one.speed / one.telegraf:.1f}x"
