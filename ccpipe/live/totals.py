"""How many nodes are busy, idle, drained, down and silent, and jobs run and wait, over time."""

from collections import Counter, deque
from collections.abc import Iterable

from ccpipe.live.jobs import LiveJobs
from ccpipe.live.node import LiveNode
from ccpipe.live.nodes import MAX_ROWS, ROW_SECONDS, LiveNodes

CONDITIONS = ("busy", "idle", "drained", "down", "silent")
"""What a node is doing, one word each; the dashboard shows them by their positions here."""
BUSY, IDLE, DRAINED, DOWN, SILENT = range(len(CONDITIONS))
WIDTH = len(CONDITIONS) + 2
"""Length of a row: after the nodes of each condition, the jobs that run, and those that wait."""
MAX_CLUSTERS = 64
"""Maximum number of clusters with history."""

_DOWN = frozenset({
    "down", "error", "fail", "failed", "failing", "future", "no_respond", "not_responding",
    "power_down", "powered_down", "powering_down", "unknown",
})  # fmt: skip
_DRAINED = frozenset({"drain", "drained", "draining", "inval", "maint", "reboot_issued"})
_BUSY = frozenset({"alloc", "allocated", "comp", "completing", "mix", "mixed"})
_IDLE = frozenset({"idle"})
"""States of Slurm; Grid Engine's are translated into these."""


def condition(node: LiveNode, *, has_job: bool) -> int:
    """Return what a node is doing, as a position in ``CONDITIONS``.

    The scheduler's report that a node is down or drained explains why it is silent.
    """
    states = node.scheduler.states if node.scheduler is not None else ()
    if states and not _DOWN.isdisjoint(states):
        return DOWN
    if states and not _DRAINED.isdisjoint(states):
        return DRAINED
    if node.has_stopped:
        return SILENT
    if has_job or not _BUSY.isdisjoint(states):
        return BUSY
    return IDLE


class Totals:
    """Rows of numbers by cluster, one every ``ROW_SECONDS``, for ten minutes."""

    def __init__(self) -> None:
        self.rows: deque[tuple[float, dict[str, list[int]]]] = deque(maxlen=MAX_ROWS)
        """Time; by cluster, the nodes of each condition, then running and waiting jobs."""

    def tick(self, nodes: LiveNodes, jobs: LiveJobs, now: float) -> None:
        """Set the nodes' conditions, and add a row if it is time."""
        if self.rows and 0 <= now - self.rows[-1][0] < ROW_SECONDS - 0.5:
            return
        row: dict[str, list[int]] = {}
        for node in nodes.in_order():
            node.condition = condition(node, has_job=jobs.is_busy(node.id))
            self._counts(row, node.id[0])[node.condition] += 1
        running = Counter(key.cluster for key in jobs.jobs.keys() - jobs.ended.keys())
        for cluster, count in running.items():
            self._counts(row, cluster)[-2] = count
        for cluster, count in jobs.pending.counts().items():
            self._counts(row, cluster)[-1] = count
        self.rows.append((now, row))

    def _counts(self, row: dict[str, list[int]], cluster: str) -> list[int]:
        counts = row.get(cluster)
        if counts is None:
            counts = [0] * WIDTH
            if len(row) < MAX_CLUSTERS:
                row[cluster] = counts
        return counts

    def after(self, time: float, cluster: str | None = None) -> tuple[list[float], list[list[int]]]:
        """Return the times and numbers of later rows; None is the sum over all clusters."""
        rows = [row for row in self.rows if row[0] > time]
        return [at for at, _ in rows], [_of(counts, cluster) for _, counts in rows]


def _of(counts: dict[str, list[int]], cluster: str | None) -> list[int]:
    empty = [0] * WIDTH
    chosen: Iterable[list[int]] = (
        counts.values() if cluster is None else [counts.get(cluster, empty)]
    )
    return [sum(column) for column in zip(empty, *chosen, strict=True)]
