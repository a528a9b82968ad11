"""Jobs from stored events of their starts and stops."""

import time as clocks
from collections.abc import Iterable, Iterator

import msgspec

from ccpipe.errors import DataError, UsageError
from ccpipe.history.interfaces import LONGEST_JOB
from ccpipe.jobs import ENDED, RUNNING, Job, RunKey, function_of, read_event
from ccpipe.message import event

MAX_EVENTS = 200_000
SECOND = 10**9
DAY = 86400


class JoinedJobs:
    """Joins starts and stops, which may come in any order and repeatedly."""

    def __init__(self) -> None:
        self._starts: dict[RunKey, Job] = {}
        self._stops: dict[RunKey, Job] = {}
        self._count = 0

    def add(self, function: str, payload: str, cluster: str, time: int) -> None:
        """Add an event as a store has it, with its time in nanoseconds.

        One that cannot be read is ignored. Raises UsageError beyond ``MAX_EVENTS``.
        """
        self._count += 1
        if self._count > MAX_EVENTS:
            raise UsageError(f"more than {MAX_EVENTS} events of jobs; select a shorter time")
        message = event("job", function, payload, time=time, tags={"cluster": cluster})
        try:
            job = msgspec.structs.replace(read_event(message), raw=None)
        except DataError:
            return
        jobs = self._starts if function_of(message) == "start_job" else self._stops
        jobs[job.run_key] = job

    def jobs(self) -> dict[RunKey, Job]:
        """Return the runs whose start was added; the end of those that still run is 0."""
        found = {
            key: msgspec.structs.replace(job, end=0) if job.state == RUNNING else job
            for key, job in self._starts.items()
        }
        for key, stop in self._stops.items():
            run = key if key.start else _latest(found, key)
            if run in found:
                end, state = max(stop.end, SECOND), stop.state or ENDED
                found[run] = msgspec.structs.replace(found[run], end=end, state=state)
        return found

    def days_of(self, run: RunKey) -> Iterator[tuple[float, float]]:
        """Yield times whose events are to be added, until the run is known to have ended.

        The first is the day of its start, in seconds since the epoch; without its start there, no
        further day is read.
        """
        begin = run.start // SECOND
        last = min(begin + LONGEST_JOB, clocks.time() + DAY)
        for day in range(begin, int(last) + 1, DAY):
            yield day - (day == begin), day + DAY
            job = self.jobs().get(run)
            if job is None or job.end:
                return


def _latest(jobs: Iterable[RunKey], stop: RunKey) -> RunKey:
    """Return the latest run of a job, for a stop that does not contain the start."""
    runs = [key for key in jobs if key[:2] == stop[:2]]
    return max(runs, key=lambda key: key.start, default=stop)


def overlapping(jobs: Iterable[Job], start: float, stop: float) -> Iterator[Job]:
    """Yield the jobs that ran at some time from `start` until before `stop`, in seconds."""
    for job in jobs:
        if job.start < stop * SECOND and (not job.end or job.end >= start * SECOND):
            yield job
