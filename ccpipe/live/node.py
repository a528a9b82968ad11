"""One node as the bus shows it: its series, how often it sends, and its state in the scheduler."""

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import NodeReasons, NodeStates

RATE_SECONDS = 10.0
"""Rates of nodes and clusters cover the last one to two intervals of this length: publishers send
every few seconds."""
SILENT_INTERVALS = 3
"""Number of its own intervals after which a node is silent."""
MIN_SILENT_SECONDS = 10.0
"""A node is not silent before: nodes and brokers pause for some seconds."""
MAX_INTERVAL = 300.0
FIRST_INTERVAL = 120.0
"""Assumed interval of a node of which too few payloads have arrived."""
SAME_SECONDS = 0.9
"""Payloads that arrive within this time of one another belong to one interval."""
GAPS = 8
"""Number of gaps that are remembered; the second longest is the interval."""
MIN_GAPS = 4
"""Number of gaps from which the interval is taken."""
MAX_STATES = 16
MAX_TEXT = 255

NodeId = tuple[str, str]
"""Cluster and hostname."""
T = TypeVar("T", NodeStates, NodeReasons)


class LineCounter:
    """Counts lines, and computes their rate."""

    __slots__ = ("_before", "_spans", "lines", "rate")

    def __init__(self) -> None:
        self.lines = 0
        self.rate = 0.0
        self._before = (0, 0)  # lines at the start of the last interval and of the one before
        self._spans: tuple[float, float] | None = None  # when these intervals started

    def tick(self, now: float) -> None:
        last, before = self._spans = self._spans or (now, now)
        if now > before:
            self.rate = (self.lines - self._before[1]) / max(now - before, 1.0)
        if now - last >= RATE_SECONDS:
            self._spans = now, last
            self._before = self.lines, self._before[0]


class SchedulerState(msgspec.Struct):
    """What the scheduler last reported about a node."""

    states: tuple[str, ...]
    """In lower case, such as ``mixed`` or ``down``, ``drain``."""
    time: float
    """When it was received, in seconds since the epoch."""
    reason: str = ""
    """Why the node is down or drained, in the words of whoever set it."""


class LiveNode(LineCounter):
    """One node."""

    __slots__ = (
        "cells", "condition", "gaps", "has_metrics", "id", "is_dismissed", "is_silent", "own",
        "parts", "scheduler", "seen", "summed",
    )  # fmt: skip

    def __init__(self, id_: NodeId) -> None:
        super().__init__()
        self.id = id_
        self.cells: dict[str, int] = {}
        """The slot of each metric's value for the whole node."""
        self.parts: dict[str, dict[str, int]] = {}
        """The slots of parts, by metric and part."""
        self.summed: dict[str, list[int]] = {}
        """The slots of those parts that make up the value for the whole node, by metric; found
        anew where it is missing."""
        self.own: set[str] = set()
        """Metrics that the node sends as one value."""
        self.seen = 0.0
        """When its last metrics arrived; of a node without metrics, its last message."""
        self.gaps: deque[float] = deque(maxlen=GAPS)
        """Seconds between its last payloads of metrics."""
        self.has_metrics = False
        """Whether it has ever sent metrics that are kept."""
        self.is_silent = False
        self.is_dismissed = False
        """Whether its silence was acknowledged; until it sends again."""
        self.scheduler: SchedulerState | None = None
        self.condition = 0
        """What it is doing, as a position in ``ccpipe.live.totals.CONDITIONS``."""

    @property
    def slots(self) -> Iterator[int]:
        yield from self.cells.values()
        for parts in self.parts.values():
            yield from parts.values()

    @property
    def is_listed(self) -> bool:
        """Whether tables and maps contain the node."""
        return (self.has_metrics and not self.is_dismissed) or self.scheduler is not None

    @property
    def has_stopped(self) -> bool:
        """Whether it is silent, has sent metrics before, and nobody has acknowledged that."""
        return self.is_silent and self.has_metrics and not self.is_dismissed

    @property
    def interval(self) -> float:
        """Seconds between its payloads: the second longest of the last gaps.

        The longest may be a failure. A node has several gaps in turn if several programs send its
        metrics, each at an interval of its own.
        """
        if not self.knows_interval:
            return FIRST_INTERVAL
        return min(sorted(self.gaps)[-2], MAX_INTERVAL)

    @property
    def knows_interval(self) -> bool:
        return len(self.gaps) >= MIN_GAPS

    def arrive(self, now: float) -> None:
        """Note that metrics have arrived."""
        gap, self.seen = now - self.seen, now
        if SAME_SECONDS < gap < now:  # the first arrival has no gap
            self.gaps.append(gap)

    def is_overdue(self, now: float) -> bool:
        waited = now - self.seen
        return waited > MIN_SILENT_SECONDS and waited > SILENT_INTERVALS * self.interval


def read_node_states(text: str, cluster: str) -> Iterator[tuple[NodeId, tuple[str, ...]]]:
    """Yield the states of the nodes of an event ``nodestate``; raises DataError.

    `cluster` is that of the event's tags, in case its payload has none.
    """
    event = _decoded(text, NodeStates)
    for node in event.nodes:
        if node.hostname:
            states = tuple(state.lower()[:MAX_TEXT] for state in node.states[:MAX_STATES])
            yield _id(event.cluster or cluster, node.hostname), states


def read_node_reasons(text: str, cluster: str) -> Iterator[tuple[NodeId, str]]:
    """Yield the reasons of an event ``nodereason``; see ``read_node_states``."""
    event = _decoded(text, NodeReasons)
    for node in event.nodes:
        yield _id(event.cluster or cluster, node.hostname), node.reason[:MAX_TEXT]


def _decoded(text: str, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DataError(f"not the states of nodes: {error}") from None


def _id(cluster: str, hostname: str) -> NodeId:
    return cluster[:MAX_TEXT], hostname[:MAX_TEXT]
