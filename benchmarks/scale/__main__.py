"""Flows of simulated clusters from publisher to store; writes ``benchmarks/scale.json``.

Every program is a process of its own, as at a site: nats-server (one, or three with three copies),
``ccpipe bridge``, VictoriaMetrics, and ``ccpipe simulate`` as the load. docs/operations/scale.md
has what it found::

    python -m benchmarks.scale                          # some twelve minutes
    python -m benchmarks.scale --quick --out /tmp       # one minute, to see that it works
    python -m benchmarks.scale --only backlog           # other results are kept
    python -m benchmarks.scale --only outage --outage 600

The floor of the broker is measured with the NATS CLI, ``nats`` on the PATH
(``go install github.com/nats-io/natscli/nats@v0.5.1``); without it the page has no such table.
"""

import argparse
import asyncio
import functools
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.__main__ import _processor
from benchmarks.scale.floor import measure_floor
from benchmarks.scale.flows import Flow, backlog, directory_of_run, flow_of, measure
from benchmarks.scale.loaders import loaders
from benchmarks.scale.page import read_results, write_page
from benchmarks.scale.programs import Load
from benchmarks.scale.results import ROLES, Results, Run
from ccpipe.bus.nats.server import server_program
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.simulate import SimulatedCluster, SimulationOptions

METRICS = 100
PARTITIONS = 8
LOADER_NODES = 1000
"""Nodes whose metrics are loaded into each store, several times."""
SONAR_SAMPLES = 8
"""The same for every size: all processes of a run's first sample are new, which costs more."""


class Sizes(NamedTuple):
    """How large the measurements are."""

    nodes: tuple[int, int, int]
    metrics: tuple[int, ...]
    jobs: tuple[int, int, int]
    """Nodes of the clusters whose jobs are counted."""
    lines: int
    """About how many lines a run publishes as fast as it can."""
    seconds: int
    """How long a run at the cluster's own pace takes."""
    outage: int
    """Seconds of the cluster's time for which the store is down."""
    live: int
    """Samples that arrive while the backlog is drained."""


FULL = Sizes(
    (1000, 10_000, 100_000), (1, 10, 100, 1000), (100, 1000, 10_000), 10_000_000, 60, 600, 6
)
QUICK = Sizes((100, 300, 1000), (1, 10, 30, 100), (30, 100, 300), 300_000, 20, 60, 1)

LINE_BYTES = 150
"""Bytes on disk of a line, in the stream and in the store, and some to spare."""


def plans(sizes: Sizes) -> Iterator[tuple[Run, Callable[[Flow], Awaitable[None]]]]:
    """Yield every run and what is done in it."""
    middle = sizes.nodes[1]
    for nodes in sizes.nodes:
        yield Run(series="nodes", nodes=nodes, metrics=METRICS), flow_of(_fast(sizes, nodes))
    for nodes in sizes.nodes:
        run = Run(series="backlog", nodes=nodes, metrics=METRICS)
        yield run, functools.partial(backlog, load=_fast(sizes, nodes))
    for metrics in sizes.metrics:
        run = Run(series="metrics", nodes=sizes.nodes[0], metrics=metrics)
        yield run, flow_of(_fast(sizes, sizes.nodes[0], metrics))
    for nodes, metrics in ((middle, METRICS), (sizes.nodes[0], sizes.metrics[1])):
        run = Run(series="subjects", nodes=nodes, metrics=metrics, by_node=True)
        yield run, flow_of(_fast(sizes, nodes, metrics))
    for nodes in sizes.jobs:
        run = Run(series="jobs", nodes=nodes, metrics=1, jobs=_jobs(nodes))
        yield run, flow_of(Load(nodes, 1, SONAR_SAMPLES, sonar=True))
    for replicas in (1, 2, 4):
        run = Run(
            series="replicas", nodes=middle, metrics=METRICS, replicas=replicas,
            partitions=PARTITIONS, by_node=True,
        )  # fmt: skip
        yield run, flow_of(_fast(sizes, middle))
    for compression in ("none", "s2"):
        run = Run(series="compression", nodes=middle, metrics=METRICS, compression=compression)
        yield run, flow_of(_fast(sizes, middle))
    run = Run(series="copies", nodes=middle, metrics=METRICS, brokers=3)
    yield run, flow_of(_fast(sizes, middle))
    stored = Run(series="store", nodes=middle, metrics=METRICS, store="victoriametrics")
    yield stored, flow_of(_fast(sizes, middle))
    real = Load(middle, METRICS, sizes.seconds // 10, speed="1")
    for brokers in (1, 3):
        run = msgspec.structs.replace(stored, series="target", brokers=brokers)
        yield run, flow_of(real)
    run = msgspec.structs.replace(stored, series="outage")
    yield run, flow_of(Load(middle, METRICS, sizes.outage // 10), _live(sizes))


def _live(sizes: Sizes) -> int:
    """Return the number of samples while a backlog is drained, which takes a third of its time."""
    return max(sizes.live, sizes.outage // 30)


def require_disk(sizes: Sizes) -> None:
    """Raise SystemExit if the disk is too small for stream and store of the largest run."""
    lines = sizes.nodes[1] * METRICS * (sizes.outage // 10 + _live(sizes))
    needed = LINE_BYTES * max(lines, 2 * sizes.lines) + 2**30
    if (free := shutil.disk_usage(tempfile.gettempdir()).free) < needed:
        raise SystemExit(
            f"{tempfile.gettempdir()} has {free / 1e9:.0f} GB left, {needed / 1e9:.0f} GB are "
            "needed: set TMPDIR, or a shorter --outage"
        )


def _fast(sizes: Sizes, nodes: int, metrics: int = METRICS) -> Load:
    lines = sizes.lines // 10 if metrics < 10 else sizes.lines  # a message of one costs ten times
    return Load(nodes, metrics, max(1, lines // (nodes * metrics)))


def _jobs(nodes: int) -> int:
    """Return how many jobs run at the beginning."""
    cluster = SimulatedCluster(
        SimulationOptions(nodes=nodes, metrics=1, failures=0.0),
        Subjects.of(Site(cluster="scale")),
        start=0,
    )
    return len(cluster.jobs.running())


async def run_all(options: argparse.Namespace) -> Results:
    """Make all runs, one after another; each is bounded in time."""
    sizes = QUICK if options.quick else FULL
    sizes = sizes._replace(**{
        name: value
        for name in ("nodes", "lines", "seconds", "outage")
        if (value := getattr(options, name)) is not None
    })  # fmt: skip
    require_disk(sizes)
    path = options.out / "scale.json"
    only = options.only.split(",") if options.only else []
    before = read_results(path) if only and path.exists() else None
    results = Results(
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        versions={
            "Python": platform.python_version(),
            "ccpipe": version("ccpipe"),
            "nats-server": _last_word([server_program(), "--version"]),
            "VictoriaMetrics": _last_word(["dpkg-query", "-W", "victoria-metrics"]),
        },
        load=os.getloadavg()[0],
    )
    if before is not None:
        results.runs = [run for run in before.runs if run.series not in only]
        results.loaders = before.loaders
        results.load = max(results.load, before.load)
    began = time.monotonic()
    async for run in _measured(sizes, only, options.timeout):
        results.runs.append(run)
        results.seconds = time.monotonic() - began
        write(results, path)  # results are kept, whatever follows
        print(summary(run), flush=True)
    if not only or "loaders" in only:
        results.loaders = []
        samples = max(1, sizes.lines // 5 // (LOADER_NODES * METRICS))
        async for loader in loaders(LOADER_NODES, METRICS, samples):
            results.loaders.append(loader)
            write(results, path)
            print(f"{loader.store}, {loader.name or 'the sink'}: {loader.rate:,.0f} rows/CPU-s")
    return results


async def _measured(sizes: Sizes, only: Sequence[str], seconds: float) -> AsyncIterator[Run]:
    """Yield the runs of the series in `only`, or all."""
    program = shutil.which("nats")
    if program and (not only or "floor" in only):
        run = Run(series="floor", nodes=1, metrics=METRICS)
        with directory_of_run() as directory:
            await measure_floor(run, directory, program, sizes.lines // METRICS)
        yield run
    for run, work in plans(sizes):
        if not only or run.series in only:
            yield await measure(run, work, seconds)


def write(results: Results, path: Path) -> None:
    """Write what was measured until now."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def _last_word(command: list[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    return (done.stdout or done.stderr).split()[-1]


def summary(run: Run) -> str:
    """Return one line about a run."""
    costs = ", ".join(
        f"{role} {1e9 * run.cpu_per_line(role):.0f} ns" for role in ROLES if role in run.cpu
    )
    text = (
        f"{run.series}: {run.nodes} nodes x {run.metrics}, {run.brokers} brokers, "
        f"{run.replicas} bridges, {run.store}: {run.lines} lines in {run.seconds:.1f} s = "
        f"{run.lines / run.seconds:,.0f}/s; a line costs {costs}; memory "
        + ", ".join(f"{role} {size / 1e6:.0f} MB" for role, size in run.memory.items())
    )
    if run.latency:
        text += f"; latency p50 {run.latency.p50:.2f} s, p99 {run.latency.p99:.2f} s"
    if run.expected is not None:
        text += f"; {run.stored} of {run.expected} lines stored"
    if run.outage:
        text += f"; {run.outage.backlog} lines drained in {run.outage.drain_seconds:.1f} s"
    return text


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> None:
    """Measure, write the results, and the page that shows them."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--only", help="some series of runs, separated by commas")
    parser.add_argument("--nodes", type=_numbers, help="three sizes, such as 1000,10000,100000")
    parser.add_argument("--lines", type=int, help="lines of a run at full speed")
    parser.add_argument("--seconds", type=int, help="time of a run at the cluster's own pace")
    parser.add_argument(
        "--outage", type=int, help="seconds of the cluster for which the store is down"
    )
    parser.add_argument("--timeout", type=float, default=300, help="seconds for any part of a run")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks"), help="directory for scale.json"
    )
    parser.add_argument("--page", type=Path, help="page to write the results into")
    options = parser.parse_args()
    if shutil.which("victoria-metrics") is None:
        raise SystemExit("victoria-metrics is not installed: scripts/install-debian.sh")
    results = asyncio.run(run_all(options))
    if options.page:
        write_page(options.page, results)


if __name__ == "__main__":
    main()
