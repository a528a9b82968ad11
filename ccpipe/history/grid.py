"""What all stores share: limits of a query, regular times, gaps, and combining nodes.

A store returns ``StoredSeries`` with the means of intervals of ``base_step()``; ``curves_of()``
makes the answer of them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ccpipe.errors import MissingExtra, UsageError
from ccpipe.formats.clustercockpit import level_rank
from ccpipe.history.interfaces import (
    Column,
    MetricCurve,
    MetricCurves,
    MetricQuery,
    MetricStatistics,
)

try:
    import numpy as np
except ImportError:
    raise MissingExtra("numpy", "dashboard") from None

MAX_DAYS = 366
MAX_NODES = 10_000
MAX_LINES = 64
"""Maximum number of nodes with a curve each."""
MAX_CELLS = 1_000_000
"""Maximum number of values that a store returns at once."""
MIN_POINTS = 50
ASSUMED_METRICS = 20
"""Expected number of metrics of a node if a query is for all."""
QUERY_SECONDS = 30.0
"""Time limit of a query."""
FILLED_INTERVALS = 2
"""Longest gap that is filled, in measuring intervals."""

WIDER_SECONDS = 900
"""Time before and after a query in which measuring intervals are looked for if they are unknown."""

OWN = ""
"""Level of the values that a node sends for itself."""
FINE = ("hwthread", "core")
"""Levels with too many parts to show one by one."""

Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True)
class StoredSeries:
    """A series of a node or of a part, or all parts of one level added up, in intervals.

    The arrays have a row for each interval with values.
    """

    hostname: str
    metric: str
    level: str
    """``OWN``, or the tag ``type`` or ``stype`` of the parts."""
    part: str
    """Empty for the whole node."""
    places: Places
    """Numbers of the intervals, counted from the start of the query, in ascending order."""
    means: Column
    counts: Column
    """How many values an interval has."""
    times: Column
    """Means of the times of the values, in seconds since the start of the query."""
    interval: float = math.nan
    """At which it was measured, in seconds, if the store knows; else the times tell."""


def check_time(start: float, stop: float) -> None:
    """Raise UsageError for a time that is not answered."""
    if not 0 < stop - start <= MAX_DAYS * 86400 or start < 0:
        raise UsageError(f"a time range is more than 0 s and at most {MAX_DAYS} days")


def check_query(query: MetricQuery, *, has_lines: bool = True) -> None:
    """Raise UsageError for a time or a number of nodes that is not answered.

    `has_lines` says whether the answer has a curve for each node unless they are combined.
    """
    check_time(query.start, query.stop)
    maximum = MAX_LINES if has_lines and not query.over_nodes else MAX_NODES
    if not 0 < len(query.nodes) <= maximum:
        raise UsageError(f"from 1 to {maximum} nodes at once, got {len(query.nodes)}")
    if not 0 < query.max_points <= MAX_CELLS:
        raise UsageError(f"from 1 to {MAX_CELLS} points, got {query.max_points}")


def base_step(query: MetricQuery) -> float:
    """Return the length of the intervals that a store divides the time of a query into."""
    series = len(query.nodes) * (len(query.metrics) or ASSUMED_METRICS)
    points = min(query.max_points, max(MIN_POINTS, MAX_CELLS // series))
    return float(max(1, math.ceil((query.stop - query.start) / points)))


def owned_parts(query: MetricQuery) -> tuple[list[str], list[str]]:
    """Return what is restricted, as ``host/type``, and what counts of it, as ``host/type/id``."""
    owned: dict[str, list[str]] = {
        **{f"{host}/hwthread": list(map(str, ids)) for host, ids in query.hwthreads.items() if ids},
        **{f"{host}/accelerator": list(ids) for host, ids in query.accelerators.items() if ids},
    }
    return list(owned), [f"{name}/{id_}" for name, ids in owned.items() for id_ in ids]


def stored_series(
    hostname: str, metric: str, level: str, part: str, *columns: Sequence[float]
) -> StoredSeries:
    """Return a series of a row of a store: names, places in any order, means, counts and times."""
    order = np.argsort(columns[0])
    places, means, counts, times = (np.array(column, np.float64)[order] for column in columns)
    return StoredSeries(
        hostname, metric, level, part, places.astype(np.int64), means, counts, times
    )


def interval_of(series: StoredSeries) -> float:
    """Return the interval at which a series was measured, in seconds; NaN if it is unknown."""
    if series.interval > 0 or len(series.places) < 2:  # noqa: PLR2004
        return series.interval
    per_interval = (series.counts[1:] + series.counts[:-1]) / 2
    return float(np.median(np.diff(series.times) / per_interval))


def wider_query(query: MetricQuery, found: Iterable[StoredSeries]) -> MetricQuery | None:
    """Return a query that also tells intervals of series with a single value; None if known."""
    if not any(math.isnan(interval_of(series)) for series in found):
        return None
    start = max(0.0, query.start - WIDER_SECONDS)
    return replace(query, start=start, stop=query.stop + WIDER_SECONDS)


def with_intervals(
    found: Iterable[StoredSeries], wider: Iterable[StoredSeries]
) -> list[StoredSeries]:
    """Return series with the intervals of the same series in the answer to a wider query."""
    known = {(s.hostname, s.metric, s.level, s.part): interval_of(s) for s in wider}
    return [
        replace(s, interval=known.get((s.hostname, s.metric, s.level, s.part), math.nan))
        for s in found
    ]


def chosen_levels(
    found: Iterable[tuple[str, str, str]], query: MetricQuery
) -> Mapping[tuple[str, str], str]:
    """Return which level is a node's value, by hostname and metric.

    `found` are hostnames, metrics and levels. Values of several levels are never added up.
    """
    levels: dict[tuple[str, str], set[str]] = defaultdict(set)
    for hostname, metric, level in found:
        levels[hostname, metric].add(level)
    return {
        key: min(names, key=lambda level: _rank(key[0], level, query))
        for key, names in levels.items()
    }


def is_restricted(hostname: str, level: str, query: MetricQuery) -> bool:
    """Return whether only some of the parts of a node at this level count."""
    owned = {"hwthread": query.hwthreads, "accelerator": query.accelerators}.get(level, {})
    return bool(owned.get(hostname))


def _rank(hostname: str, level: str, query: MetricQuery) -> tuple[bool, tuple[int, str]]:
    return not is_restricted(hostname, level, query), level_rank(level)


def curves_of(query: MetricQuery, base: float, found: Sequence[StoredSeries]) -> MetricCurves:
    """Return the curves of stored series in intervals of `base` seconds."""
    chosen = chosen_levels(((s.hostname, s.metric, s.level) for s in found if not s.part), query)
    used = [s for s in found if s.part or s.level == chosen[s.hostname, s.metric]]
    intervals = [interval_of(series) for series in used]
    known = [interval for interval in intervals if interval > 0]
    factor = max(1, math.ceil(round(min(known) / base, 3))) if known else 1
    step = base * factor
    count = max(1, math.ceil(round((query.stop - query.start) / step, 6)))
    curves = [
        MetricCurve(
            hostname=series.hostname,
            metric=series.metric,
            part=series.part,
            values=filled(_regular(series, factor, count), step, interval),
            is_restricted=is_restricted(series.hostname, series.level, query),
        )
        for series, interval in zip(used, intervals, strict=True)
    ]
    times = query.start + step * np.arange(count, dtype=np.float64)
    return MetricCurves(times, step, over_nodes(curves) if query.over_nodes else curves)


def _regular(series: StoredSeries, factor: int, count: int) -> Column:
    """Return the means of all intervals, each `factor` times as long as the stored ones."""
    places = series.places // factor
    inside = (places >= 0) & (places < count)
    places, weights = places[inside], series.counts[inside]
    sums = np.bincount(places, weights * series.means[inside], count)
    numbers = np.bincount(places, weights, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums / numbers, np.float64)


def filled(values: Column, step: float, interval: float) -> Column:
    """Return values with linear interpolation in gaps of up to two measuring intervals.

    At both ends the nearest value is held for as long.
    """
    there = np.flatnonzero(~np.isnan(values))
    if not len(there) or not interval > 0:
        return values
    found = np.interp(np.arange(len(values)), there, values[there])
    edges = np.concatenate([[-1], there, [len(values)]])
    for place in np.flatnonzero((np.diff(edges) - 1) * step >= FILLED_INTERVALS * interval):
        found[edges[place] + 1 : edges[place + 1]] = np.nan
    return found


def over_nodes(curves: Sequence[MetricCurve]) -> list[MetricCurve]:
    """Return one curve for each metric and part: mean, minimum and maximum of the nodes."""
    groups: dict[tuple[str, str], list[MetricCurve]] = defaultdict(list)
    for curve in curves:
        groups[curve.metric, curve.part].append(curve)
    found = []
    for (metric, part), of_nodes in groups.items():
        rows = np.stack([curve.values for curve in of_nodes])
        there = ~np.isnan(rows)
        numbers = there.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(there, rows, 0.0).sum(axis=0) / numbers
        minimum = np.where(there, rows, np.inf).min(axis=0)
        maximum = np.where(there, rows, -np.inf).max(axis=0)
        minimum[numbers == 0] = maximum[numbers == 0] = np.nan
        restricted = all(curve.is_restricted for curve in of_nodes)
        counts = numbers.astype(np.float64)
        curve = MetricCurve("", metric, part, means, minimum, maximum, counts, restricted)
        found.append(curve)
    return found


def statistics_of(
    query: MetricQuery, found: Iterable[tuple[str, MetricStatistics]]
) -> list[MetricStatistics]:
    """Return the statistics of nodes, of the chosen level, and of parts; each is with its level."""
    rows = list(found)
    chosen = chosen_levels(((s.hostname, s.metric, lv) for lv, s in rows if not s.part), query)
    return [
        replace(s, is_restricted=is_restricted(s.hostname, level, query))
        for level, s in rows
        if s.part or level == chosen[s.hostname, s.metric]
    ]
