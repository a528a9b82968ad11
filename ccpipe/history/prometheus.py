"""History from VictoriaMetrics, Prometheus and other stores that answer PromQL; metrics only.

Names of metrics and labels are those that ccpipe's sinks write. The tag ``type-id`` is the label
``type_id``, but in a VictoriaMetrics without relabelling it stays ``type-id``.
"""

import asyncio
import contextlib
import itertools
import math
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ccpipe.errors import TimedOutError, UsageError
from ccpipe.formats.clustercockpit import level_name, part_name
from ccpipe.history.grid import (
    FINE,
    OWN,
    QUERY_SECONDS,
    StoredSeries,
    base_step,
    check_query,
    curves_of,
    statistics_of,
)
from ccpipe.history.interfaces import (
    Column,
    MetricCurves,
    MetricQuery,
    MetricStatistics,
    NodeSum,
    SumCurves,
    SumQuery,
)
from ccpipe.history.promql import PromqlClient, PromqlSeries, quoted
from ccpipe.history.sums import (
    LEVELS,
    SLOW_SERIES,
    SumWindows,
    measured_interval,
    sum_windows,
    summed,
    summed_metrics,
)
from ccpipe.jobs import RunKey

INTERVAL_SECONDS = (300, 3600, 21600)
"""Times in which two samples of each metric are looked for, one after the other."""
INTERVAL_NODES = 3
MAX_NAMES = 200
"""Maximum number of hostnames in one query: stores limit its length."""
MAX_SAMPLES = 500_000
"""Approximate maximum number of samples that are read at once."""


_TIMES = 2
"""Samples that an interval takes."""
NO_JOBS = "{url} stores metrics only: for jobs, use Parquet files or PostgreSQL as history"


@dataclass(frozen=True)
class _Group:
    """The series of one metric and one level."""

    metric: str
    level: str
    selector: str

    def has_columns(self, query: MetricQuery) -> bool:
        """Whether its parts are read one by one: to show them, or to add up only some."""
        if self.level == OWN:
            return False
        restricted = {"hwthread": query.hwthreads, "accelerator": query.accelerators}
        return bool(restricted.get(self.level)) or self.shows_parts(query)

    def shows_parts(self, query: MetricQuery) -> bool:
        return query.has_parts and self.level not in (OWN, *FINE)


class PrometheusHistory:
    """Reads a store over HTTP."""

    def __init__(
        self,
        url: str,
        averaged: Callable[[], frozenset[str]],
        *,
        user: str = "",
        password_file: str = "",
    ) -> None:
        """Prepare; nothing is connected yet. Raises ConfigError for an invalid address.

        `averaged` returns the metrics that are not summed over parts; it is called in a thread.
        """
        self.client = PromqlClient(url, user, password_file)
        self._averaged = averaged

    async def curves(self, query: MetricQuery) -> MetricCurves:
        check_query(query)
        async with _in_time(self.client.shown):
            averaged = await asyncio.to_thread(self._averaged)
            groups, intervals = await asyncio.gather(self._groups(query), self._intervals(query))
            base = base_step(query)
            step = base * max(1, math.ceil(round(min(intervals.values(), default=0) / base, 3)))
            read = [self._means(query, group, averaged, step) for group in groups]
            found = [
                _stored(*name, values, step, intervals.get(name[1], math.nan))
                for means in await asyncio.gather(*read)
                for name, values in means
            ]
        return curves_of(query, step, found)

    async def sums(self, query: SumQuery) -> SumCurves:
        summed_metrics(query)
        cluster = "" if query.cluster is None else f"cluster={quoted(query.cluster)},"
        async with _in_time(self.client.shown):

            async def count(names: Sequence[str], start: float, stop: float) -> dict[str, float]:
                window = await self.client.window(round((stop - start) * 1000))
                answers = await asyncio.gather(*[
                    self.client.at(
                        f"quantile({SLOW_SERIES}, "
                        f'count_over_time({name}{{{cluster}hostname!=""}}{window}))',
                        round(stop * 1000) - 1,
                    )
                    for name in names
                ])  # fmt: skip
                found = zip(names, answers, strict=True)
                return {name: float(series[0].values[0]) for name, series in found if series}

            windows = sum_windows(query, await measured_interval(query, count))
            read = [self._total(each, cluster, windows) for each in query.sums]
            found = await asyncio.gather(*read) if windows.count else []
        rows = [(number, *row) for number, of_sum in enumerate(found) for row in of_sum]
        return summed(query, windows, rows)

    async def _total(
        self, of: NodeSum, cluster: str, windows: SumWindows
    ) -> list[tuple[int, float, float]]:
        """Return number and sum of each window, and NaN: samples arrive as they are measured."""
        width, step = windows.width * 1000, windows.step * 1000
        window = await self.client.window(width)
        first = windows.begin * 1000 + width - 1
        last = first + (windows.count - 1) * step
        answer = await self.client.over(_sum_text(of, cluster, window), first, last, step)
        return [
            (round((at - first) / step), float(value), math.nan)
            for series in answer
            for at, value in zip(series.times, series.values, strict=True)
        ]

    async def statistics(self, query: MetricQuery) -> Sequence[MetricStatistics]:
        check_query(query, has_lines=False)
        async with _in_time(self.client.shown):
            averaged = await asyncio.to_thread(self._averaged)
            groups = await self._groups(query)
            read = [
                self._own_statistics(query, group)
                if group.level == OWN
                else self._part_statistics(query, group, averaged)
                for group in groups
            ]
            found = await asyncio.gather(*read)
        return statistics_of(query, [row for rows in found for row in rows])

    async def jobs(self, cluster: str, start: float, stop: float) -> NoReturn:  # noqa: ARG002
        raise UsageError(NO_JOBS.format(url=self.client.shown))

    async def job(self, key: RunKey) -> NoReturn:  # noqa: ARG002
        raise UsageError(NO_JOBS.format(url=self.client.shown))

    async def close(self) -> None:
        await self.client.close()

    async def _groups(self, query: MetricQuery) -> list[_Group]:
        """Return which metrics and levels the nodes have."""
        start, stop = _milliseconds(query)
        window = await self.client.window(stop - start)
        groups = []
        for nodes in _selectors(query):
            text = f"group by (__name__, type, stype) (last_over_time({{{nodes}}}{window}))"
            found = set()
            for series in await self.client.at(text, stop - 1):
                metric, stype = series.labels.get("__name__", ""), series.labels.get("stype", "")
                found.add((metric, _type_of(series.labels), stype))
            for metric, kind, stype in sorted(found):
                types = f"type={quoted(kind)}" if kind else 'type=~"node|"'
                selector = f"__name__={quoted(metric)},{nodes},{types},stype={quoted(stype)}"
                groups.append(_Group(metric, level_name(kind, stype), f"{{{selector}}}"))
        return groups

    async def _intervals(self, query: MetricQuery) -> dict[str, float]:
        """Return the interval at which each metric is measured, of some nodes, where it is known.

        The samples around the middle of the time are read, of a longer time until there are enough.
        """
        start, stop = _milliseconds(query)
        nodes = next(_selectors(query, query.nodes[:INTERVAL_NODES]))
        found: dict[str, float] = {}
        for seconds in INTERVAL_SECONDS:
            length = seconds * 1000
            window = await self.client.window(length)
            at = (start + stop + length) // 2 - 1
            missing = f",__name__!~{quoted(_pattern(found))}" if found else ""
            for series in await self.client.at(f"{{{nodes}{missing}}}{window}", at):
                metric = series.labels.get("__name__", "")
                if len(series.times) >= _TIMES:
                    found[metric] = float(np.median(np.diff(series.times))) / 1000
        return {metric: interval for metric, interval in found.items() if interval > 0}

    async def _means(
        self, query: MetricQuery, group: _Group, averaged: frozenset[str], step: float
    ) -> list[tuple[tuple[str, str, str, str], Column]]:
        """Return hostname, metric, level and part of each series, and its means of intervals."""
        is_mean = group.level == OWN or group.metric in averaged
        by = "" if group.has_columns(query) else f"{'avg' if is_mean else 'sum'} by (hostname) "
        start, stop = _milliseconds(query)
        length = round(step * 1000)
        whole, rest = divmod(stop - start, length)
        answers = []
        if whole:
            text = f"{by}(avg_over_time({group.selector}{await self.client.window(length)}))"
            last = start + whole * length - 1
            answers += await self.client.over(text, start + length - 1, last, length)
        if rest:
            text = f"{by}(avg_over_time({group.selector}{await self.client.window(rest)}))"
            answers += await self.client.at(text, stop - 1)
        columns: dict[tuple[str, str], Column] = {}
        for series in answers:
            host, part = series.labels.get("hostname", ""), ""
            if by == "":
                part = _part_of(series.labels)
                if not _is_owned(series.labels, query):
                    continue
            column = columns.setdefault((host, part), np.full(whole + bool(rest), np.nan))
            column[((series.times - start) // length).astype(np.int64)] = series.values
        return [
            ((host, group.metric, group.level, part), column)
            for (host, part), column in _with_nodes(columns, group, query, is_mean=is_mean)
        ]

    async def _own_statistics(
        self, query: MetricQuery, group: _Group
    ) -> list[tuple[str, MetricStatistics]]:
        start, stop = _milliseconds(query)
        samples = group.selector + await self.client.window(stop - start)
        functions = {"count": "sum", "min": "min", "avg": "avg", "max": "max"}
        texts = [
            f"{by} by (hostname) ({name}_over_time({samples}))" for name, by in functions.items()
        ]
        answers = await asyncio.gather(*[self.client.at(text, stop - 1) for text in texts])
        rows: dict[str, list[float]] = defaultdict(list)
        for answer in answers:
            for series in answer:
                rows[series.labels.get("hostname", "")].append(float(series.values[0]))
        return [
            (OWN, MetricStatistics(host, group.metric, "", int(count), low, mean, high))
            for host, (count, low, mean, high) in sorted(rows.items())
        ]

    async def _part_statistics(
        self, query: MetricQuery, group: _Group, averaged: frozenset[str]
    ) -> list[tuple[str, MetricStatistics]]:
        """Add up the samples of all parts at each time, which no function of PromQL does."""
        start, stop = _milliseconds(query)
        window = await self.client.window(stop - start)
        counts = await self.client.at(f"sum(count_over_time({group.selector}{window}))", stop - 1)
        pieces = math.ceil(counts[0].values[0] / MAX_SAMPLES) if counts else 0
        sums: dict[tuple[str, str], _Sums] = defaultdict(_Sums)
        edges = np.linspace(start, stop, pieces + 1).astype(np.int64).tolist()
        for begin, end in itertools.pairwise(edges):
            text = group.selector + await self.client.window(end - begin)
            nodes: dict[str, list[PromqlSeries]] = defaultdict(list)
            for series in await self.client.at(text, end - 1):
                if _is_owned(series.labels, query):
                    host = series.labels.get("hostname", "")
                    nodes[host].append(series)
                    if group.shows_parts(query):
                        sums[host, _part_of(series.labels)].add(series.values)
            for host, parts in nodes.items():
                times, rows = np.unique(
                    np.concatenate([part.times for part in parts]), return_inverse=True
                )
                weights = np.concatenate([part.values for part in parts])
                values = np.asarray(np.bincount(rows, weights, len(times)), np.float64)
                if group.metric in averaged:
                    values /= np.bincount(rows)
                sums[host, ""].add(values)
        return [
            (group.level, of_key.statistics(host, group.metric, part))
            for (host, part), of_key in sorted(sums.items())
        ]


class _Sums:
    """Statistics of values that are read piece by piece."""

    def __init__(self) -> None:
        self.count, self.sum = 0, 0.0
        self.minimum, self.maximum = math.inf, -math.inf

    def add(self, values: Column) -> None:
        self.count += len(values)
        self.sum += float(values.sum())
        self.minimum = min(self.minimum, float(values.min()))
        self.maximum = max(self.maximum, float(values.max()))

    def statistics(self, host: str, metric: str, part: str) -> MetricStatistics:
        mean = self.sum / self.count
        return MetricStatistics(host, metric, part, self.count, self.minimum, mean, self.maximum)


def _sum_text(of: NodeSum, cluster: str, window: str) -> str:
    """Return the query for a sum over nodes; a node's value is that of its first level."""
    nodes = "cluster, hostname"

    def of_node(metric: str) -> str:
        levels = [
            f"sum by ({nodes}) (avg_over_time("
            f'{metric}{{{cluster}hostname!="",type={_type_matcher(kind)},stype=""}}{window}))'
            for kind in LEVELS
        ]
        return f" or on ({nodes}) ".join(levels)

    # The label keeps the metrics apart, whose names are lost.
    metrics = " or ".join(
        f'label_replace({of_node(metric)}, "metric", {quoted(metric)}, "", "")'
        for metric in of.metrics
    )
    values = f"sum by ({nodes}) ({metrics})"
    if of.whole:
        values = f"({of_node(of.whole)}) or on ({nodes}) {values}"
    return f"sum({values})"


def _type_matcher(kind: str) -> str:
    return '~"node|"' if kind == "node" else quoted(kind)


@contextlib.asynccontextmanager
async def _in_time(place: str) -> AsyncIterator[None]:
    """Raise TimedOutError if the block takes longer than a query may."""
    try:
        async with asyncio.timeout(QUERY_SECONDS):
            yield
    except TimeoutError:
        raise TimedOutError(
            f"{place} takes more than {QUERY_SECONDS:.0f} s; select a shorter time"
        ) from None


def _milliseconds(query: MetricQuery) -> tuple[int, int]:
    """Return the first millisecond of a query, and the first after it."""
    start = math.ceil(round(query.start * 1000, 3))
    return start, max(start + 1, math.ceil(round(query.stop * 1000, 3)))


def _selectors(query: MetricQuery, nodes: Sequence[str] | None = None) -> Iterator[str]:
    """Yield label matchers of the nodes and metrics of a query, each for some of the nodes."""
    names = query.nodes if nodes is None else nodes
    metrics = {name for metric in query.metrics for name in (metric, _BAD.sub("_", metric))}
    metric = f",__name__=~{quoted(_pattern(sorted(metrics)))}" if metrics else ""
    for place in range(0, len(names), MAX_NAMES):
        pattern = quoted(_pattern(names[place : place + MAX_NAMES]))
        yield f"cluster={quoted(query.cluster)},hostname=~{pattern}{metric}"


def _pattern(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in names)


_BAD = re.compile(r"[^a-zA-Z0-9_:]|^(?=[0-9])")
"""Characters of a metric's name that Prometheus does not have."""


def _type_of(labels: Mapping[str, str]) -> str:
    kind = labels.get("type", "")
    return "" if kind == "node" else kind


def _id_of(labels: Mapping[str, str], name: str) -> str:
    return labels.get(f"{name}_id", labels.get(f"{name}-id", ""))


def _part_of(labels: Mapping[str, str]) -> str:
    ids = _id_of(labels, "type"), _id_of(labels, "stype")
    return part_name(_type_of(labels), ids[0], labels.get("stype", ""), ids[1])


def _is_owned(labels: Mapping[str, str], query: MetricQuery) -> bool:
    host, id_ = labels.get("hostname", ""), _id_of(labels, "type")
    match labels.get("type"):
        case "hwthread" if ids := query.hwthreads.get(host):
            return id_ in map(str, ids)
        case "accelerator" if names := query.accelerators.get(host):
            return id_ in names
    return True


def _with_nodes(
    columns: Mapping[tuple[str, str], Column], group: _Group, query: MetricQuery, *, is_mean: bool
) -> Iterator[tuple[tuple[str, str], Column]]:
    """Yield the columns of whole nodes, and of parts if they are shown."""
    if not group.has_columns(query):
        yield from columns.items()
        return
    nodes: dict[str, list[Column]] = defaultdict(list)
    for (host, part), column in columns.items():
        nodes[host].append(column)
        if group.shows_parts(query):
            yield (host, part), column
    for host, parts in nodes.items():
        rows = np.stack(parts)
        numbers = (~np.isnan(rows)).sum(axis=0)
        sums = np.where(numbers, np.nansum(rows, axis=0), np.nan)
        yield (host, ""), sums / np.maximum(numbers, 1) if is_mean else sums


def _stored(
    host: str, metric: str, level: str, part: str, values: Column, step: float, interval: float
) -> StoredSeries:
    places = np.flatnonzero(~np.isnan(values))
    times = step * places.astype(np.float64)
    ones = np.ones(len(places))
    return StoredSeries(host, metric, level, part, places, values[places], ones, times, interval)
