"""The interface of a store that can be queried, and the form of its answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ccpipe.jobs import Job, RunKey

if TYPE_CHECKING:
    import numpy as np

Column: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

MAX_POINTS = 400
"""Default number of intervals that a time range is divided into, at most."""

MAX_SUM_POINTS = 80
"""Default number of times of sums over all nodes, at most."""

LONGEST_JOB = 8 * 86400
"""Seconds before and after a time in which the start and the stop of a job of that time are read;
of a job that runs for longer, either may be missing."""


@dataclass(frozen=True, kw_only=True)
class MetricQuery:
    """The nodes, the metrics and the time to read, from `start` until before `stop`.

    Times are seconds since the epoch.
    """

    cluster: str
    nodes: Sequence[str]
    start: float
    stop: float
    metrics: Sequence[str] = ()
    """All if empty."""
    has_parts: bool = False
    """Read the parts of nodes (sockets, accelerators, interfaces) as well, each on its own."""
    over_nodes: bool = False
    """Combine the nodes: one curve for each metric with their minimum, mean and maximum."""
    hwthreads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The hardware threads of a node that count for metrics measured for each; all if missing."""
    accelerators: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The accelerators of a node that count, likewise."""
    max_points: int = MAX_POINTS


@dataclass(frozen=True)
class MetricCurve:
    """One metric of a node, of a part of it, or of all nodes; a value for each time, or NaN."""

    hostname: str
    """Empty for all nodes."""
    metric: str
    part: str
    """Such as ``socket 0``; empty for the whole node."""
    values: Column
    """Means of the intervals."""
    minimum: "Column | None" = None
    """Over the nodes, as ``maximum``; None for the curve of one node."""
    maximum: "Column | None" = None
    counts: "Column | None" = None
    """How many nodes have a value."""
    is_restricted: bool = False
    """Whether only the hardware threads or accelerators of the query are in it."""


@dataclass(frozen=True)
class MetricCurves:
    """Curves with common times, in any order."""

    times: Column
    """Starts of intervals, all `step` apart."""
    step: float
    """Seconds; at least the interval of the metric that was measured most often."""
    curves: Sequence[MetricCurve]
    is_truncated: bool = False
    """Whether the store had more than it may return at once."""


@dataclass(frozen=True)
class MetricStatistics:
    """All values of a metric of a node, or of a part of it, in the queried time."""

    hostname: str
    metric: str
    part: str
    count: int
    minimum: float
    mean: float
    maximum: float
    is_restricted: bool = False
    """Whether only the hardware threads or accelerators of the query are in it."""


@dataclass(frozen=True)
class NodeSum:
    """What to add up over nodes: their values of some metrics, which can be added."""

    metrics: Sequence[str]
    whole: str = ""
    """A metric that includes all others: of nodes that send it, it counts alone."""

    @property
    def names(self) -> list[str]:
        return [self.whole, *self.metrics] if self.whole else list(self.metrics)


@dataclass(frozen=True, kw_only=True)
class SumQuery:
    """Sums over all nodes of a cluster, from `start` until before `stop`.

    Times are seconds since the epoch.
    """

    cluster: str | None
    """All clusters if None."""
    start: float
    stop: float
    sums: Sequence[NodeSum]
    max_points: int = MAX_SUM_POINTS


@dataclass(frozen=True)
class SumCurves:
    """A curve for each sum of a query, with common times."""

    times: Column
    """Starts of intervals, all `step` apart, from the query's start rounded down to a `step`."""
    step: float
    """Seconds; at least twice the interval at which the metrics were measured."""
    values: Sequence[Column]
    """NaN where no node has a value."""


class History(Protocol):
    """A store that can be queried.

    The value of a whole node is what it sent itself, else the sum of its parts at each time, or
    their mean for metrics that cannot be added (``Metric.is_averaged``). Of a node whose hardware
    threads or accelerators are restricted, values measured for each of them precede its own. Gaps
    of up to two measuring intervals are filled; a longer gap is NaN.

    Methods raise UsageError for a query that cannot be answered, and UnavailableError if the store
    does not answer in time.
    """

    async def curves(self, query: MetricQuery) -> MetricCurves:
        """Return the curves of a query."""

    async def statistics(self, query: MetricQuery) -> Sequence[MetricStatistics]:
        """Return the statistics of a query from the stored values themselves."""

    async def sums(self, query: SumQuery) -> SumCurves:
        """Return sums over nodes, added up by the store with one query for each.

        A value is the sum of the nodes' means of a step, or of its first two measuring intervals if
        it has more than four, so that the cost is bounded for any time. A node without a value in
        these is left out; one missing sample leaves out none. The time ends where values may still
        be on their way to the store.
        """

    async def jobs(self, cluster: str, start: float, stop: float) -> Sequence[Job]:
        """Return the runs of jobs that overlap a time, as their events describe them.

        Events are read from ``LONGEST_JOB`` before `start` to as long after `stop`. Raises
        UsageError for a store of metrics only.
        """

    async def job(self, key: RunKey) -> Job | None:
        """Return one run of a job; None without its start. Raises as ``jobs()`` does."""

    async def close(self) -> None:
        """Close connections."""
