"""Values that the shipped Prometheus rules alert on, checked against the live state.

``bridges/prometheus/rules/`` has one rule for each threshold; a test compares them.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ccpipe.live.node import LiveNode
from ccpipe.live.nodes import LiveNodes
from ccpipe.live.state import Health

MAX_PLACES = 20
"""Maximum number of nodes or bridges named for each threshold."""


class Threshold(NamedTuple):
    """A limit of a metric, or of its ratio to another metric of the same node."""

    alert: str
    """Name of the rule."""
    metric: str
    limit: float
    hold: str
    """How long the value exceeds the limit before Prometheus alerts."""
    severity: str
    text: str
    """Title, as shown."""
    unit: str = ""
    """Unit of the value and the limit; a ratio has none."""
    of: str = ""
    """Metric by which the first one is divided."""

    @property
    def expression(self) -> str:
        """The rule's condition in PromQL, for a metric of nodes."""
        ratio = f' / on (cluster, hostname) {self.of}{{type="node"}}' if self.of else ""
        return f'{self.metric}{{type="node"}}{ratio} > {self.limit:g}'

    def value(self, nodes: LiveNodes, node: LiveNode) -> float:
        """Return a node's present value; NaN if it is not known."""
        if self.of:
            whole = nodes.quantity(node, self.of)
            return nodes.quantity(node, self.metric) / whole if whole else math.nan
        return nodes.values[node.cells[self.metric]] if self.metric in node.cells else math.nan


NODE_THRESHOLDS = (
    Threshold(
        "NodeMemoryFull", "mem_used", 0.95, "15m", "warning", "Memory in use", of="mem_total"
    ),
    Threshold(
        "NodeSwaps", "psi_memory_full", 10, "15m", "warning", "Time that tasks wait for memory",
        "percent",
    ),
)  # fmt: skip
LAG = Threshold(
    "CcpipeConsumerLagHigh", "ccpipe_consumer_pending_messages", 100_000, "15m", "critical",
    "Messages that a bridge has not read",
)  # fmt: skip


def exceeded(
    nodes: LiveNodes, chosen: Iterable[LiveNode], health: Health | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the thresholds that are exceeded, with the nodes and bridges that exceed them."""
    live = [node for node in chosen if node.cells and not node.is_silent]
    for row in NODE_THRESHOLDS:
        values = ((*node.id, row.value(nodes, node)) for node in live)
        if places := [place for place in values if place[2] > row.limit]:
            yield _found(row, places)
    if health is not None:
        lags: list[tuple[str, str, float]] = [
            (each.stream_name, each.name, each.num_pending) for each in health.consumers
        ]
        if behind := [lag for lag in lags if lag[2] > LAG.limit]:
            yield _found(LAG, behind)


def _found(row: Threshold, places: list[tuple[str, str, float]]) -> dict[str, Any]:
    places.sort(key=lambda place: -place[2])
    return {
        "alert": row.alert, "severity": row.severity, "text": row.text, "limit": row.limit,
        "unit": row.unit, "hold": row.hold, "is_ratio": bool(row.of),
        "of_nodes": row is not LAG, "count": len(places), "places": places[:MAX_PLACES],
    }  # fmt: skip
