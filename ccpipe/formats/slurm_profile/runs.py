"""Tells the runs of a requeued job apart.

A run on another node leaves files beside those of the run before, under names that say nothing of
it; sh5util merges them as if one step had had both nodes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ccpipe.formats.slurm_profile.names import BATCH
from ccpipe.formats.slurm_profile.table import NodeStep

TOLERANCE = 30
"""Seconds by which the clocks of two nodes may differ, and a step's start on them."""


class NodeStepSpan(NamedTuple):
    """A node-step and when it was, in Unix seconds."""

    node_step: NodeStep
    start: float
    end: float


def count_runs(spans: Sequence[NodeStepSpan]) -> list[int]:
    """Return of each node-step the run that it belongs to, from 0.

    A run begins with a node-step that cannot be of the same run as an earlier one of its step: a
    second batch step, the same index among the nodes of the step, or a start long after the other
    had ended.
    """
    found = [0] * len(spans)
    run = 0
    seen: dict[str, _Step] = {}
    for position in sorted(range(len(spans)), key=lambda position: spans[position].start):
        span = spans[position]
        step = seen.get(span.node_step.step)
        if step is not None and step.excludes(span):
            run += 1
            seen.clear()
        seen.setdefault(span.node_step.step, _Step()).add(span)
        found[position] = run
    return found


class _Step:
    """The node-steps of one step in one run."""

    def __init__(self) -> None:
        self._indices: set[int] = set()
        self._end = 0.0

    def excludes(self, span: NodeStepSpan) -> bool:
        """Return whether a node-step cannot be of this step's run."""
        node_step = span.node_step
        return (
            node_step.step == BATCH
            or node_step.node_index in self._indices
            or span.start > self._end + TOLERANCE
        )

    def add(self, span: NodeStepSpan) -> None:
        """Note a node-step."""
        if span.node_step.node_index is not None:
            self._indices.add(span.node_step.node_index)
        self._end = max(self._end, span.end)
