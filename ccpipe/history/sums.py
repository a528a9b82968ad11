"""Sums over all nodes: which times are read of a long time, and what all stores share."""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ccpipe.errors import UsageError
from ccpipe.history.grid import check_time
from ccpipe.history.interfaces import Column, SumCurves, SumQuery

LEVELS = ("node", "socket", "memoryDomain", "core", "hwthread", "accelerator")
"""Values of the tag ``type``: a node's value is what it sends for the first of them that it has,
added up. ``node`` is also a missing tag."""

MIN_INTERVALS = 2
"""Measuring intervals that are read of each step; with one, a node whose sample is at the other
side of an edge would be left out."""
MAX_INTERVALS = 4
"""Steps up to this length are read from their start to their end."""
COUNTED_SECONDS = (300, 1800, 21600)
"""Times in which the samples of a metric are counted, one after the other, until they suffice."""
MIN_SAMPLES = 10
"""Samples of a series from which its interval is computed."""
SLOW_SERIES = 0.1
"""Share of the series that may be measured less often than assumed."""
LATE_INTERVALS = 1.5
"""The values of a window are complete if the latest is not earlier before the window's end."""
WINDOWS_AT_ONCE = 12
"""Of 1000 nodes, as many series as a processor's cache can group: three times as fast as all."""


SampleCount: TypeAlias = Callable[[Sequence[str], float, float], Awaitable[Mapping[str, float]]]
"""Returns how many samples nearly all series of metrics have from a time to another, of those that
have any."""


@dataclass(frozen=True)
class SumWindows:
    """The times that are read: `count` windows of `width` seconds, each at the start of a step."""

    begin: int
    step: int
    width: int
    count: int
    interval: float
    """At which the metrics are measured; NaN if that is unknown."""

    @property
    def times(self) -> Column:
        return self.begin + self.step * np.arange(self.count, dtype=np.float64)

    @property
    def is_whole(self) -> bool:
        """Whether steps are read from their start to their end."""
        return self.width == self.step

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the times to read one by one: each window if they are sparse, else some at once."""
        size = WINDOWS_AT_ONCE if self.is_whole else 1
        for place in range(0, self.count, size):
            last = min(place + size, self.count) - 1
            yield self.begin + place * self.step, self.begin + last * self.step + self.width


class SummedMetric(NamedTuple):
    """A metric of a query."""

    name: str
    number: int
    """Of the sum that it is part of."""
    is_whole: bool


def summed_metrics(query: SumQuery) -> list[SummedMetric]:
    """Return all metrics of a query; raises UsageError for one that is not answered."""
    check_time(query.start, query.stop)
    found = [
        SummedMetric(name, number, name == each.whole)
        for number, each in enumerate(query.sums)
        for name in each.names
    ]
    if query.max_points < 1 or not found or len({each.name for each in found}) < len(found):
        raise UsageError("expected 1 point or more, and different metrics")
    return found


async def measured_interval(query: SumQuery, count: SampleCount) -> float:
    """Return the longest interval at which one of the metrics is measured, in seconds; or NaN.

    Samples are counted in the middle of the query's time, or at its end, in a longer time if they
    are too few. If others are found, a metric without any is looked for in two times only.
    """
    missing = [metric.name for metric in summed_metrics(query)]
    found: list[float] = []
    last = min(query.stop, time.time())
    for seconds in COUNTED_SECONDS:
        counts: Mapping[str, float] = {}
        for stop in dict.fromkeys((min((query.start + last + seconds) / 2, last), last)):
            counts = counts or await count(missing, stop - seconds, stop)
        enough = {name for name, number in counts.items() if number >= MIN_SAMPLES}
        found += [seconds / counts[name] for name in enough]
        is_first = seconds == COUNTED_SECONDS[0]
        missing = [
            name for name in missing
            if name not in enough and (name in counts or is_first or not found)
        ]  # fmt: skip
        if not missing:
            break
    return max(found, default=math.nan)


def sum_windows(query: SumQuery, interval: float) -> SumWindows:
    """Return the windows of a query; their starts are multiples of the step."""
    known = interval if interval > 0 else 0.0
    least = (query.stop - query.start) / query.max_points
    step = max(1, math.ceil(least), math.ceil(round(MIN_INTERVALS * known, 3)))
    is_whole = not known or step <= MAX_INTERVALS * known
    width = step if is_whole else math.ceil(MIN_INTERVALS * known)
    begin = math.floor(query.start / step) * step
    end = min(query.stop, time.time() - known)
    count = max(0, math.floor((end - width - begin) / step) + 1)
    return SumWindows(begin, step, width, count, interval)


def summed(
    query: SumQuery, windows: SumWindows, rows: Iterable[tuple[int, int, float, float]]
) -> SumCurves:
    """Return the curves of a store's rows: of `TOTALS`, or the same with NaN as the latest time.

    The last window with values is dropped if values of its end are missing: some nodes' then are.
    """
    values = [np.full(windows.count, np.nan) for _ in query.sums]
    newest: dict[int, tuple[int, float]] = {}
    for number, place, value, latest in rows:
        values[number][place] = value
        newest[number] = max(newest.get(number, (-1, 0.0)), (place, latest))
    for number, (place, latest) in newest.items():
        end = windows.begin + place * windows.step + windows.width
        if latest < end - LATE_INTERVALS * windows.interval:
            values[number][place] = np.nan
    return SumCurves(windows.times, float(windows.step), values)


# The value of a node is that of the first level that it has, of `whole` alone if it sends that.
# `means` are of each series in a window; `number` is that of the sum, `metric` and `level` numbers.
TOTALS = """
    SELECT number, bucket, sum(value), max(latest)
    FROM (
        SELECT number, bucket, node, max(latest) AS latest,
               CASE WHEN bool_or(is_whole) THEN sum(value) FILTER (WHERE is_whole)
                    ELSE sum(value) END AS value
        FROM (
            SELECT DISTINCT ON (number, bucket, node, metric)
                   number, bucket, node, is_whole, value, latest
            FROM (
                SELECT number, bucket, node, metric, is_whole, level, sum(mean) AS value,
                       max(latest) AS latest
                FROM ({means}) AS means GROUP BY number, bucket, node, metric, is_whole, level
            ) AS of_levels ORDER BY number, bucket, node, metric, level
        ) AS of_metrics GROUP BY number, bucket, node
    ) AS of_nodes GROUP BY number, bucket
"""
