"""Jobs that wait, from the events ``jobpending`` that bridges publish."""

from collections import Counter
from collections.abc import Callable, Sequence

from ccpipe.errors import DataError
from ccpipe.jobs import Job
from ccpipe.jobs.pending import EXPIRY, MAX_PENDING, PendingJob, read_pending_event
from ccpipe.message import Message

JobKey = tuple[str, int]
"""Cluster and id."""
SECOND = 10**9


class LivePending:
    """The pending jobs of all clusters; beyond a maximum, those reported longest ago are dropped.

    A job is pending until it starts, until it is reported as left, or until it was not reported
    for ``EXPIRY``.
    """

    def __init__(self, maximum: int = MAX_PENDING) -> None:
        self.maximum = maximum
        self.jobs: dict[JobKey, PendingJob] = {}
        self.changed: Callable[[Sequence[PendingJob], Sequence[JobKey]], None] | None = None
        """Called with jobs that are new or have changed, and with keys of those that left."""
        self._counts: Counter[str] | None = None
        self._reported: dict[JobKey, float] = {}
        """When each was reported, in this order."""

    def counts(self) -> Counter[str]:
        """Return the number of waiting jobs of each cluster; tasks of arrays count one by one."""
        if self._counts is None:
            self._counts = Counter()
            for job in self.jobs.values():
                self._counts[job.cluster] += job.count
        return self._counts

    def feed(self, message: Message, now: float) -> tuple[str, bool]:
        """Process an event received at `now`; return its user, and whether anything has changed.

        Events that cannot be read are ignored.
        """
        try:
            found = read_pending_event(message)
        except DataError:
            return "", False
        time = now if message.time is None else min(message.time / SECOND, now)
        if time <= now - EXPIRY / SECOND:
            return found.user, False
        new = [job for job in found.pending if self.jobs.get(job.key) != job]
        for job in found.pending:
            self._reported.pop(job.key, None)
            self._reported[job.key] = time
        self.jobs.update((job.key, job) for job in new)
        left = [(found.cluster, job.id) for job in found.left]
        excess = max(0, len(self.jobs) - self.maximum)
        oldest = [key for key, _ in zip(self._reported, range(excess), strict=False)]
        return found.user, self._change(new, [*left, *oldest])

    def start(self, job: Job) -> None:
        """Note the start of a job: it is not pending any more, unless it was submitted again."""
        waiting = self.jobs.get(job.key)
        if waiting is not None and job.start >= waiting.submit * SECOND:
            self._change([], [job.key])

    def expire(self, now: float) -> bool:
        """Forget jobs that were not reported for too long; return whether there were any."""
        old: list[JobKey] = []
        for key, time in self._reported.items():
            if time > now - EXPIRY / SECOND:
                break
            old.append(key)
        return self._change([], old)

    def _change(self, new: Sequence[PendingJob], left: Sequence[JobKey]) -> bool:
        left = [key for key in left if self.jobs.pop(key, None) is not None]
        for key in left:
            del self._reported[key]
        if new or left:
            self._counts = None
            if self.changed is not None:
                self.changed(new, left)
        return bool(new or left)
