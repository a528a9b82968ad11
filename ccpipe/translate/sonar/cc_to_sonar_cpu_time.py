"""Processor time of jobs, integrated from their utilization.

Jobanalyzer and others compute a job's utilization from the growth of ``cpu_time``, which no metric
carries; ``job_cpu_used`` is its derivative.
"""

import logging
import time as clocks
from collections.abc import Callable
from typing import NamedTuple

from ccpipe.config import Duration
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar.sonar_metrics import MAX_FUTURE

log = logging.getLogger(__name__)

SECOND = 10**9
GAP = 3 * 3600 * SECOND
"""Time without records after which a process group's number is another job: "on the order of a few
hours", says Sonar's specification, and less than it takes for process IDs to be reused."""
MAX_JOBS = 100_000
"""Jobs on nodes that are remembered; beyond, those that were sampled longest ago are forgotten."""


class NodeJob(NamedTuple):
    """One job on one node."""

    cluster: str
    node: str
    job: int
    epoch: int
    user: str


class _Used(NamedTuple):
    first: int
    """Time of the first sample, in nanoseconds."""
    last: int
    seconds: float
    """Processor time from the first to the last sample."""


class CpuTime(NamedTuple):
    """What a job used on a node since its first sample here."""

    seconds: float
    average: float
    """Percent of a processor."""


class CpuTimes:
    """Integrates, in the order of the samples' times; a late sample adds nothing.

    Nor does one of the future: after it, all others would be late.
    """

    def __init__(
        self,
        state: StateStore,
        *,
        max_future: Duration = MAX_FUTURE,
        clock: Callable[[], int] = clocks.time_ns,
    ) -> None:
        """Keep what was used in `state`, so that it grows on after a restart."""
        self._max_future = round(max_future * SECOND)
        self._clock = clock
        self._is_early: set[tuple[str, str]] = set()
        self._used = state.table(
            "cpu_time", tuple[str, str, int, int, str], _Used, maximum=MAX_JOBS
        )

    def add(self, job: NodeJob, time: int, percent: float) -> CpuTime:
        """Add a sample: `percent` is the mean since the sample before."""
        used = self._used.get(job)
        is_batch = job.epoch == 0
        newest = self._clock() + self._max_future
        if self._check_clock(job, time > newest):
            return _cpu_time(used or _Used(time, time, 0.0), percent)
        if used is not None and used.last > newest:
            used = used._replace(first=min(used.first, time), last=time)
        if used is None or (time - used.last > GAP and not is_batch):
            used = _Used(time, time, 0.0)
        elif time > used.last:
            seconds = used.seconds + percent / 100 * (time - used.last) / SECOND
            used = _Used(used.first, time, seconds)
        self._used.put(job, used)
        return _cpu_time(used, percent)

    def _check_clock(self, job: NodeJob, is_early: bool) -> bool:
        """Report once that a node's samples are of the future; return `is_early`."""
        node = job.cluster, job.node
        if is_early and node not in self._is_early:
            log.warning("%s: %s: a sample is beyond max_future: it is not counted", *node)
        (self._is_early.add if is_early else self._is_early.discard)(node)
        return is_early


def _cpu_time(used: _Used, percent: float) -> CpuTime:
    elapsed = (used.last - used.first) / SECOND
    return CpuTime(used.seconds, 100 * used.seconds / elapsed if elapsed else percent)
