"""The report of one job from every store, equal to that of all its samples added up here."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest

from ccpipe.history.indexing import JobIndexer
from ccpipe.history.interfaces import MetricStatistics
from ccpipe.history.job_search import JobSearch
from ccpipe.history.report import UsageReport, fetch_report, report, report_query
from ccpipe.jobs import Job, JobNode
from ccpipe.node.sampling.collector import units
from tests.history.conftest import BEGIN, STORES, Open, averaged

SECOND = 10**9
NODES = ("n1", "n2", "n3")
SPAN = 1510
TOLERANCE = 1e-9
"""Relative: stores add up the same doubles in another order."""
ENERGY_TOLERANCE = {10: 1e-3, 90: 0.1}
"""Relative, by interval: curves have means of steps of 12 s, or of one interval, of which the
first begins before the job."""
OF_THREADS = ("cpu_used", "flops_any", "ipc")
"""Metrics that are measured of each hardware thread."""

Sample = tuple[str, str, str, str, int, float]
"""Metric, node, level, part, second, value."""

EXCLUSIVE = Job(
    cluster="fox", id=7, user="anna", state="completed", shared="none", hwthreads=12,
    start=BEGIN * SECOND, end=(BEGIN + SPAN) * SECOND, nodes=tuple(map(JobNode, NODES)),
)  # fmt: skip
SHARED = msgspec.structs.replace(
    EXCLUSIVE, shared="multi_user", hwthreads=2, nodes=(JobNode("n1", (1, 3), ("gpu1",)),)
)
OF_CGROUP = msgspec.structs.replace(SHARED, nodes=(JobNode("n2", (0,)),))
JOBS = {"exclusive": EXCLUSIVE, "shared": SHARED, "with a cgroup": OF_CGROUP}
POWER_SHARES = {
    "exclusive": {"socket": 1.0, "accelerator gpu0": 1.0, "accelerator gpu1": 1.0},
    "shared": {"socket": 2 / 4, "accelerator gpu1": 1.0},
    "with a cgroup": {"socket": 1 / 4},
}
"""What part of the power of a node's sockets and GPUs is a job's."""


def made(interval: int) -> Iterator[Sample]:
    """Yield what three nodes with four hardware threads, two sockets and two GPUs measure."""
    for second in range(-600, SPAN + 600, interval):
        step = second // interval
        for number, node in enumerate(NODES, 1):
            own = {"num_cpus": 4.0, "mem_total": 64e6, "mem_used": 1e6 * (9 + step % 5 + number),
                   "cpu_load": number + step % 3 / 8}  # fmt: skip
            for metric, value in own.items():
                yield metric, node, "", "", second, value
            for thread in range(4):
                part = f"hwthread {thread}"
                yield "cpu_used", node, "hwthread", part, second, 10.0 * thread + step % 7
                yield "flops_any", node, "hwthread", part, second, 1e9 * number + thread + step % 11
                yield "ipc", node, "hwthread", part, second, 0.5 * thread + step % 4
            for socket in range(2):
                watts = 90.0 + 8 * socket + step % 13 + number
                yield "cpu_power", node, "socket", f"socket {socket}", second, watts
            for gpu in ("gpu0", "gpu1"):
                part = f"accelerator {gpu}"
                use = 50.0 + step % 17 if gpu == "gpu1" else 0.0
                yield "nv_util", node, "accelerator", part, second, use
                yield "nv_power_usage", node, "accelerator", part, second, 200.0 + use
        yield "job_user_cpu", "n2", "job", "job 7", second, 40.0 + step % 9
        yield "job_sys_cpu", "n2", "job", "job 7", second, 2.0
        yield "job_mem_used", "n2", "job", "job 7", second, 2e9 + 1e6 * (step % 6)
        yield "job_mem_limit", "n2", "job", "job 7", second, 4e9


def line(sample: Sample) -> str:
    metric, node, level, part, second, value = sample
    id_ = part.rpartition(" ")[2]
    tags = {"": "type=node", "job": f"type=node,stype=job,stype-id={id_}"}.get(
        level, f"type={level},type-id={id_}"
    )
    return f"{metric},cluster=fox,hostname={node},{tags} value={value!r} {BEGIN + second}"


def statistics(samples: Sequence[Sample], job: Job) -> Iterator[MetricStatistics]:
    """Yield the statistics of the samples of a job's time: of whole nodes, and of parts."""
    query = report_query(job, 0.0)
    values: dict[tuple[str, str, str], dict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for metric, node, level, part, second, value in samples:
        if node not in query.nodes or metric not in query.metrics or not 0 <= second < SPAN:
            continue
        if level in ("hwthread", "accelerator"):
            owned = {"hwthread": query.hwthreads, "accelerator": query.accelerators}[level]
            id_ = part.rpartition(" ")[2]
            if owned.get(node) and id_ not in map(str, owned[node]):
                continue
        values[node, metric, ""][second].append(value)
        if level not in ("", "hwthread"):
            values[node, metric, part][second].append(value)
    for (node, metric, part), rows in values.items():
        add = fmean if metric in averaged() else sum
        numbers = [float(add(row)) for row in rows.values()]
        is_own = not part and metric in OF_THREADS and bool(query.hwthreads)
        yield MetricStatistics(node, metric, part, len(numbers), min(numbers), fmean(numbers),
                               max(numbers), is_own)  # fmt: skip


def joules(samples: Sequence[Sample], which: str, interval: int) -> float:
    """Return the sum of a job's power in all samples, each of which lasts an interval."""
    of = POWER_SHARES[which]
    nodes = {node.hostname for node in JOBS[which].nodes}
    return interval * sum(
        value * of.get(level, of.get(part, 0.0))
        for metric, node, level, part, second, value in samples
        if node in nodes and 0 <= second < SPAN and "power" in metric
    )


def check(found: Any, wanted: Any) -> None:
    """Compare all texts and numbers of a report."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            check(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for each, other in zip(found, wanted, strict=True):
            check(each, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=TOLERANCE)
    else:
        assert found == wanted


def sorted_nodes(of: UsageReport) -> Any:
    tree = msgspec.to_builtins(of)
    for metric in tree["metrics"]:
        metric["nodes"].sort(key=lambda row: row["hostname"])
    return tree


@pytest.mark.parametrize("which", JOBS)
@pytest.mark.parametrize("interval", [10, pytest.param(90, marks=pytest.mark.long)])
@pytest.mark.parametrize("store", STORES)
async def test_report_is_same_from_every_store(
    stored: Open, store: str, interval: int, which: str
) -> None:
    """Metrics, efficiency, energy and findings, of exclusive and of shared nodes."""
    job, samples = JOBS[which], list(made(interval))
    history = await stored(store, list(map(line, samples)))
    found = await fetch_report(history, job, units())
    wanted = report(job, list(statistics(samples, job)), now=0.0, units=units())
    assert found.energy is not None
    measured = joules(samples, which, interval)
    assert found.energy.joules == pytest.approx(measured, rel=ENERGY_TOLERANCE[interval])
    wanted = msgspec.structs.replace(wanted, energy=found.energy)
    assert wanted.cpu is not None
    assert wanted.metrics
    check(sorted_nodes(found), sorted_nodes(wanted))


async def only_row(indexer: JobIndexer) -> dict[str, Any]:
    [row] = (await indexer.find(JobSearch(job=[7]))).jobs
    return row


@pytest.mark.parametrize("store", STORES)
async def test_index_has_numbers_of_report_from_every_store(
    stored: Open, store: str, tmp_path: Path
) -> None:
    """The list of jobs shows and searches the same numbers, whichever store a site has."""
    samples = list(made(10))
    history = await stored(store, list(map(line, samples)))
    wanted = report(EXCLUSIVE, list(statistics(samples, EXCLUSIVE)), now=0.0, units=units())
    async with JobIndexer(tmp_path / "jobs.sqlite", history) as indexer:
        indexer.put(EXCLUSIVE)
        async with asyncio.timeout(60):
            while (row := await only_row(indexer))["energy"] is None:
                await asyncio.sleep(0.1)
    assert wanted.cpu is not None
    assert wanted.memory is not None
    assert row["energy"] == pytest.approx(
        joules(samples, "exclusive", 10), rel=ENERGY_TOLERANCE[10]
    )
    assert row["cpu"] == pytest.approx(wanted.cpu.share, rel=TOLERANCE)
    assert row["memory"] == pytest.approx(wanted.memory.share, rel=TOLERANCE)
    for metric in wanted.metrics:
        if f"mean_{metric.metric}" in row:
            assert row[f"mean_{metric.metric}"] == pytest.approx(metric.mean, rel=TOLERANCE)
            assert row[f"max_{metric.metric}"] == pytest.approx(metric.maximum, rel=TOLERANCE)
    assert row["findings"].split("\n") == [each.text for each in wanted.findings] or [""]
