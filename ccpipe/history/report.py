"""The report of a job: usage, efficiency, energy, and what went wrong, from stored metrics."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

import msgspec

from ccpipe.history.energy import Energy, SharedPower, energy_of, fetch_power
from ccpipe.history.findings import JobFinding, findings
from ccpipe.history.interfaces import History, MetricQuery, MetricStatistics
from ccpipe.history.job_metrics import NEEDED, SHOWN, UNITS, Efficiency, JobMetrics
from ccpipe.jobs import Job

SECOND = 10**9


class NodeStatistics(msgspec.Struct, frozen=True):
    """The values of a metric on one node."""

    hostname: str
    minimum: float
    mean: float
    maximum: float


class MetricReport(msgspec.Struct, frozen=True):
    """The values of a metric over all nodes of a job."""

    metric: str
    unit: str
    """As stored; empty if unknown or a plain number."""
    minimum: float
    """The smallest value on any node."""
    mean: float
    """The mean of the nodes' means."""
    maximum: float
    nodes: list[NodeStatistics]


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a job used, and what went wrong. None means unknown."""

    seconds: float
    """Elapsed, until now for a job that runs."""
    node_hours: float
    cpu_hours: float | None
    """Hours of allocated hardware threads."""
    cpu: Efficiency | None
    """Hardware threads: the mean number in use."""
    memory: Efficiency | None
    """Bytes: the sum of the nodes' peaks."""
    gpu: Efficiency | None
    """GPUs: the mean number in use."""
    energy: Energy | None
    is_shared: bool
    """Whether other jobs may run on its nodes; their share is in the `metrics` as well."""
    metrics: list[MetricReport]
    findings: list[JobFinding]


def report_query(job: Job, now: float) -> MetricQuery:
    """Return the query for the statistics that `report` needs; `now` ends a job that runs."""
    start, stop = time_range(job, now)
    own = job.nodes if job.shares_nodes else ()
    return MetricQuery(
        cluster=job.cluster,
        nodes=[node.hostname for node in job.nodes],
        start=start,
        stop=max(stop, start + 1),
        metrics=list(dict.fromkeys((*SHOWN, *NEEDED))),
        has_parts=True,
        hwthreads={node.hostname: node.hwthreads for node in own if node.hwthreads},
        accelerators={node.hostname: node.accelerators for node in own if node.accelerators},
    )


def time_range(job: Job, now: float) -> tuple[float, float]:
    """Return start and end in seconds since the epoch; `now` is the end of a job that runs."""
    start = job.start / SECOND
    return start, max(start, job.end / SECOND if job.end else now)


async def fetch_report(history: History, job: Job, units: Mapping[str, str]) -> UsageReport:
    """Query a store and return the report of a job; raises as the store's methods do."""
    now = time.time()
    query = report_query(job, now)
    statistics = await history.statistics(query)
    power = await fetch_power(history, JobMetrics(job, statistics, units), query)
    return report(job, statistics, power, now=now, units=units)


def report(
    job: Job,
    statistics: Sequence[MetricStatistics],
    power: Iterable[SharedPower] = (),
    *,
    now: float,
    units: Mapping[str, str] = UNITS,
) -> UsageReport:
    """Return the report of a job from the answer to its `report_query`, and its nodes' `power`.

    `units` are those of the stored metrics.
    """
    usage = JobMetrics(job, statistics, units)
    start, stop = time_range(job, now)
    cpu, memory, gpu = usage.cpu(), usage.memory(), usage.gpu()
    hours = (stop - start) / 3600
    return UsageReport(
        seconds=stop - start,
        node_hours=len(job.nodes) * hours,
        cpu_hours=job.hwthreads * hours if job.hwthreads else None,
        cpu=cpu,
        memory=memory,
        gpu=gpu,
        energy=energy_of(usage, power, start, stop),
        is_shared=job.shares_nodes,
        metrics=list(_metric_reports(statistics, units)),
        findings=findings(usage, stop - start, cpu),
    )


def _metric_reports(
    statistics: Iterable[MetricStatistics], units: Mapping[str, str]
) -> Iterator[MetricReport]:
    """Yield the metrics in the order of `SHOWN`."""
    of_metric: dict[str, list[NodeStatistics]] = defaultdict(list)
    for each in statistics:
        if not each.part and each.count:
            row = NodeStatistics(each.hostname, each.minimum, each.mean, each.maximum)
            of_metric[each.metric].append(row)
    for metric in SHOWN:
        if nodes := of_metric.get(metric):
            yield MetricReport(
                metric=metric,
                unit=units.get(metric, ""),
                minimum=min(node.minimum for node in nodes),
                mean=fmean(node.mean for node in nodes),
                maximum=max(node.maximum for node in nodes),
                nodes=nodes,
            )
