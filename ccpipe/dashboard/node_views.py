"""What the first page and the page of nodes show of nodes: facts of each, and sums over all."""

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from ccpipe.dashboard.access import Viewer
from ccpipe.live.node import LiveNode
from ccpipe.live.nodes import LiveNodes
from ccpipe.live.state import LiveState
from ccpipe.node.sampling.collector import power_metrics

NEVER = -1.0
"""Stands for the time of the last metrics of a node that has sent none."""


def facts(state: LiveState, node: LiveNode, viewer: Viewer) -> list[Any]:
    """Return condition, scheduler's states and reason, partition, subcluster, jobs, silence.

    Users see no reason: administrators write names into it.
    The last one is the time of the last metrics of a silent node, 0 of a live one.
    """
    scheduler = node.scheduler
    partition, sub_cluster = state.jobs.partitions.get(node.id, ("", ""))
    seen = (node.seen if node.is_silent else 0.0) if node.has_metrics else NEVER
    return [
        node.condition,
        ", ".join(scheduler.states) if scheduler is not None else "",
        scheduler.reason if scheduler is not None and viewer.sees_all else "",
        partition,
        sub_cluster,
        state.jobs.count_on(node.id),
        seen,
    ]


class SumSeries:
    """Power and floating-point speed of some nodes, summed, row by row of the history."""

    def __init__(self, nodes: LiveNodes) -> None:
        self._nodes = nodes
        self._terms: list[list[tuple[int, float]]] = [[], []]
        self._last = 0.0

    def choose(self, chosen: Iterable[LiveNode]) -> bool:
        """Sum over these nodes; return whether that differs from before."""
        terms: list[list[tuple[int, float]]] = [[], []]
        for node in chosen:
            for metric in power_metrics(node.cells):
                terms[0].append(self._term(node, metric))
            if "flops_any" in node.cells:
                terms[1].append(self._term(node, "flops_any"))
        if terms == self._terms:
            return False
        self._terms, self._last = terms, 0.0
        return True

    def _term(self, node: LiveNode, metric: str) -> tuple[int, float]:
        return node.cells[metric], self._nodes.base(node, metric)[0]

    def rows(self) -> "tuple[list[float], array[float]]":
        """Return the times of new rows and their values in W and Flops/s; NaN if unknown."""
        times: list[float] = []
        numbers = array("f")
        for when, row in self._nodes.rows:
            if when > self._last:
                times.append(when)
                numbers.extend(_sum(row, terms) for terms in self._terms)
        if times:
            self._last = times[-1]
        return times, numbers


def _sum(row: Sequence[float], terms: Sequence[tuple[int, float]]) -> float:
    size = len(row)
    found = [row[slot] * factor for slot, factor in terms if slot < size]
    known = [value for value in found if not math.isnan(value)]
    return sum(known) if known else math.nan
