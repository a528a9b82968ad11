"""Processor time of jobs, integrated from their utilization.

Jobanalyzer and others compute a job's utilization from the growth of ``cpu_time``, which no metric
carries; ``job_cpu_used`` is its derivative.
"""

from typing import NamedTuple

from ccpipe.formats.sonar import GAP
from ccpipe.pipeline.state import StateStore

SECOND = 10**9
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
    """Integrates, in the order of the samples' times; a late sample adds nothing."""

    def __init__(self, state: StateStore) -> None:
        """Keep what was used in `state`, so that it grows on after a restart."""
        self._used = state.table(
            "cpu_time", tuple[str, str, int, int, str], _Used, maximum=MAX_JOBS
        )

    def add(self, job: NodeJob, time: int, percent: float) -> CpuTime:
        """Add a sample: `percent` is the mean since the sample before."""
        used = self._used.get(job)
        is_batch = job.epoch == 0
        if used is None or (time - used.last > GAP and not is_batch):
            used = _Used(time, time, 0.0)
        elif time > used.last:
            seconds = used.seconds + percent / 100 * (time - used.last) / SECOND
            used = _Used(used.first, time, seconds)
        self._used.put(job, used)
        elapsed = (used.last - used.first) / SECOND
        return CpuTime(used.seconds, 100 * used.seconds / elapsed if elapsed else percent)
