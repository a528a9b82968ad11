"""What a page asks of stored metrics, and the answers, as frames: see ``views.frame``.

Columns follow the header in its order. Times are regular: ``start``, ``step`` and ``count``.
"""

import asyncio
import contextlib
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ccpipe.dashboard.access import Viewer
from ccpipe.dashboard.job_columns import is_averaged
from ccpipe.dashboard.views import JOB_METRICS, MAX_LINES, SECOND, details, frame
from ccpipe.errors import ConfigError, DeniedError, MissingExtra, UnavailableError, UsageError
from ccpipe.formats.units import parse_unit
from ccpipe.history.indexing import JobIndexer
from ccpipe.history.interfaces import (
    Column,
    History,
    MetricCurve,
    MetricCurves,
    MetricQuery,
    MetricStatistics,
    NodeSum,
    SumCurves,
    SumQuery,
)
from ccpipe.history.job_counts import counts
from ccpipe.jobs import Job, RunKey
from ccpipe.live.feed import LiveFeed
from ccpipe.node.sampling.collector import PLATFORM_POWER, POWERS, Metric, power_metrics

try:
    import numpy as np
except ImportError:
    raise MissingExtra("numpy", "dashboard") from None

MAX_STATISTICS_NODES = 64
"""Maximum number of nodes of a job with statistics each; there is one over all of any number."""
UNKNOWN_JOB = "neither the bus nor the store has an event of this job"


class HistoryQuery(msgspec.Struct, tag_field="of", tag="nodes", forbid_unknown_fields=True):
    """All metrics of nodes, or some, and of their parts. Times are seconds since the epoch."""

    cluster: str
    nodes: list[str]
    start: float
    stop: float
    metrics: list[str] = []


class JobHistoryQuery(msgspec.Struct, tag_field="of", tag="job", forbid_unknown_fields=True):
    """The metrics of a run of a job, in a part of its time."""

    cluster: str
    job: int
    begin: int
    """Its start, which identifies the run."""
    start: float | None = None
    """Its start if missing."""
    stop: float | None = None
    """Its end, or now, if missing."""


class JobStatisticsQuery(
    msgspec.Struct, tag_field="of", tag="statistics", forbid_unknown_fields=True
):
    """The statistics of a run of a job, over all of its time."""

    cluster: str
    job: int
    begin: int


class SumsQuery(msgspec.Struct, tag_field="of", tag="sums", forbid_unknown_fields=True):
    """Sums over all nodes of a cluster, and its jobs; times as in ``HistoryQuery``."""

    cluster: str | None
    """All if None."""
    start: float
    stop: float


POWER = NodeSum(POWERS, whole=PLATFORM_POWER)
SPEED = NodeSum(("flops_any",))

StoreQuery = HistoryQuery | JobHistoryQuery | JobStatisticsQuery | SumsQuery
_decoder = msgspec.json.Decoder(StoreQuery)


def read_query(body: bytes) -> StoreQuery:
    """Return the query in a request; raises UsageError."""
    try:
        query: StoreQuery = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"not a query: {error}") from None
    return query


def job_key(query: StoreQuery) -> RunKey | None:
    """Return the run of a job that a query is about; None for a query of nodes."""
    if isinstance(query, HistoryQuery | SumsQuery):
        return None
    return RunKey(query.cluster, query.job, query.begin * SECOND)


def check_access(viewer: Viewer, feed: LiveFeed, query: StoreQuery, job: Job | None) -> None:
    """Raise AccessError, or UsageError as for an unknown job, if the viewer may not see an answer.

    `job` is the job of the query, None if it is unknown.
    """
    if isinstance(query, HistoryQuery):
        viewer.check_history(
            feed.state.jobs.jobs.values(), cluster=query.cluster, nodes=query.nodes,
            start=query.start, stop=query.stop,
        )  # fmt: skip
    elif isinstance(query, SumsQuery):
        nodes = feed.state.nodes.in_order()
        viewer.check_sums(sum(query.cluster in (None, node.id[0]) for node in nodes))
    elif job is None or not viewer.may_see(job):
        raise UsageError(UNKNOWN_JOB)


async def answer(
    feed: LiveFeed, history: History, jobs: JobIndexer, query: StoreQuery, job: Job | None
) -> bytes:
    """Return the answer to a query, of which `job` is the job.

    Raises UsageError for a query that cannot be answered, and UnavailableError.
    """
    known = feed.state.nodes.known
    with _store_errors():
        if isinstance(query, HistoryQuery):
            return await _of_nodes(history, query, known)
        if isinstance(query, SumsQuery):
            return await _of_sums(history, jobs, query, known)
        assert job is not None, "check_access() refuses a query of an unknown job"
        if isinstance(query, JobStatisticsQuery):
            return frame(await _statistics(history, job, known))
        return await _of_job(history, query, job, known)


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    """Raise UnavailableError for what is wrong with our configuration, not with a query."""
    try:
        yield
    except (DeniedError, ConfigError) as error:
        raise UnavailableError(str(error)) from None


async def _of_nodes(history: History, query: HistoryQuery, known: Mapping[str, Metric]) -> bytes:
    found = await history.curves(
        MetricQuery(
            cluster=query.cluster, nodes=query.nodes, start=query.start, stop=query.stop,
            metrics=query.metrics, has_parts=True,
        )
    )  # fmt: skip
    curves = sorted(found.curves, key=lambda curve: (curve.hostname, curve.metric, curve.part))
    header = _times(found) | {
        "series": [(curve.hostname, curve.metric, curve.part) for curve in curves],
        "known": _known(known, {curve.metric for curve in curves}),
    }
    return frame(header, _numbers(curve.values for curve in curves))


async def _of_sums(
    history: History, jobs: JobIndexer, query: SumsQuery, known: Mapping[str, Metric]
) -> bytes:
    """Answer with columns of power in W, speed in Flops/s, running jobs, nodes with a job."""
    sums = SumQuery(
        cluster=query.cluster, start=query.start, stop=query.stop, sums=(POWER, SPEED)
    )  # fmt: skip
    found = await history.sums(sums)
    power, speed = (
        values * _scale(known, each.metrics[0])
        for each, values in zip(sums.sums, found.values, strict=True)
    )
    end = found.times[-1] + found.step if len(found.times) else query.stop
    times = await jobs.times(query.cluster, query.start - found.step, float(end))
    running, busy = await asyncio.to_thread(counts, times, found.times, found.step)
    header = _times(found) | {"columns": ["power", "speed", "running", "busy"]}
    return frame(header, _numbers([power, speed, running, busy]))


def _scale(known: Mapping[str, Metric], metric: str) -> float:
    """Return the factor from stored values of a metric to its base unit."""
    row = known.get(metric)
    return float(parse_unit(row.unit).scale) if row is not None and row.unit else 1.0


async def _of_job(
    history: History, query: JobHistoryQuery, job: Job, known: Mapping[str, Metric]
) -> bytes:
    """Answer with a column for each metric and node, or with minimum, mean and maximum each.

    The last column is the power of all nodes.
    """
    whole = job_query(job, time.time())
    # Never beyond the job: what is there is of others.
    start = min(max(whole.start, query.start or 0), whole.stop - 1)
    stop = min(whole.stop, max(start + 1, whole.stop if query.stop is None else query.stop))
    has_lines = len(job.nodes) <= MAX_LINES
    asked = replace(whole, start=start, stop=stop, over_nodes=not has_lines)
    found = await history.curves(asked)
    curves = {(curve.metric, curve.hostname): curve for curve in found.curves}
    metrics = shown_metrics({metric for metric, _ in curves})
    nodes = [node.hostname for node in job.nodes] if has_lines else None
    columns = [
        column
        for metric in metrics
        for column in (
            _columns(curves, metric, nodes, found) if nodes else _band(curves[metric, ""])
        )
    ]
    powers = power_metrics(metrics)
    columns.append(_sum_of(curves, powers, found))
    header = _times(found) | {
        "job": details(job),
        "metrics": metrics,
        "whole_node": [
            metric for metric in metrics if is_of_whole_node(job, metric, curves.values(), known)
        ],
        "powers": powers,
        "nodes": nodes,
        "known": _known(known, metrics),
    }
    return frame(header, _numbers(columns))


def job_query(job: Job, now: float) -> MetricQuery:
    """Return the query for the metrics of a job, from its start to its end, or until `now`."""
    start = job.start / SECOND
    own = [node for node in job.nodes if job.shared != "none"]
    return MetricQuery(
        cluster=job.cluster, nodes=[node.hostname for node in job.nodes],
        start=start, stop=max(job.end / SECOND or now, start + 1),
        metrics=(*JOB_METRICS, PLATFORM_POWER, *POWERS),
        hwthreads={node.hostname: node.hwthreads for node in own if node.hwthreads},
        accelerators={node.hostname: node.accelerators for node in own if node.accelerators},
    )  # fmt: skip


def shown_metrics(found: Iterable[str]) -> list[str]:
    """Return the metrics of a job's page that were found, in its order; powers are the last."""
    has = set(found)
    return [each for each in JOB_METRICS if each in has] + power_metrics(has)


def is_of_whole_node(
    job: Job, metric: str, curves: Iterable[MetricCurve], known: Mapping[str, Metric]
) -> bool:
    """Return whether values include other jobs': sums over a node that the job shares."""
    if not job.shares_nodes or is_averaged(metric, known):
        return False
    return any(not curve.is_restricted for curve in curves if curve.metric == metric)


def _columns(
    curves: Mapping[tuple[str, str], MetricCurve],
    metric: str,
    nodes: Sequence[str],
    found: MetricCurves,
) -> Iterator[Column]:
    for node in nodes:
        curve = curves.get((metric, node))
        yield np.full(len(found.times), np.nan) if curve is None else curve.values


def _band(curve: MetricCurve) -> tuple[Column, Column, Column]:
    assert curve.minimum is not None
    assert curve.maximum is not None
    return curve.minimum, curve.values, curve.maximum


def _sum_of(
    curves: Mapping[tuple[str, str], MetricCurve], metrics: Sequence[str], found: MetricCurves
) -> Column:
    """Return the sum of metrics over all nodes that have a value; NaN where none has."""
    total = np.full(len(found.times), np.nan)
    for (metric, _), curve in curves.items():
        if metric in metrics:
            values = curve.values if curve.counts is None else curve.values * curve.counts
            total = np.where(np.isnan(total), values, total + np.nan_to_num(values))
    return total


async def _statistics(history: History, job: Job, known: Mapping[str, Metric]) -> dict[str, Any]:
    found = await history.statistics(job_query(job, time.time()))
    metrics = shown_metrics({row.metric for row in found})
    nodes = {node.hostname for node in job.nodes[:MAX_STATISTICS_NODES]}
    rows = [row for row in found if row.metric in metrics]
    return {
        "job": details(job),
        "statistics": [
            {
                "metric": metric,
                "all": _over_nodes([row for row in rows if row.metric == metric]),
                "nodes": [
                    (row.hostname, row.minimum, row.mean, row.maximum)
                    for row in rows
                    if row.metric == metric and row.hostname in nodes
                ],
            }
            for metric in metrics
        ],
        "known": _known(known, metrics),
    }


def _over_nodes(rows: Sequence[MetricStatistics]) -> tuple[float, float, float]:
    """Return minimum and maximum of all nodes' values, and the mean of the nodes' means."""
    mean = sum(row.mean for row in rows) / len(rows)
    return min(row.minimum for row in rows), mean, max(row.maximum for row in rows)


def _times(found: MetricCurves | SumCurves) -> dict[str, Any]:
    start = float(found.times[0]) if len(found.times) else 0.0
    return {
        "start": start, "step": found.step, "count": len(found.times),
        "truncated": isinstance(found, MetricCurves) and found.is_truncated,
    }  # fmt: skip


def _known(known: Mapping[str, Metric], names: Iterable[str]) -> dict[str, Any]:
    return {
        name: {"unit": row.unit, "meaning": row.meaning, "averaged": row.is_averaged}
        for name in names
        if (row := known.get(name)) is not None
    }


def _numbers(columns: Iterable[Column]) -> "array[float]":
    numbers = array("f")
    for column in columns:
        numbers.frombytes(column.astype(np.float32).tobytes())
    return numbers
