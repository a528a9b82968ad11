"""Jobs, from the events ``start_job``, ``stop_job`` and ``jobpending`` of a scheduler's bridge."""

from collections.abc import Callable, Iterator

import msgspec

from ccpipe.errors import DataError
from ccpipe.jobs import ENDED, RUNNING, Job, JobNode, RunKey, function_of, read_event
from ccpipe.jobs.pending import is_pending_event
from ccpipe.live.pending import LivePending
from ccpipe.message import Message

MAX_JOBS = 3000
"""Maximum number of jobs; beyond it those that ended first are dropped."""
MAX_NODES = 10_000
MAX_PARTS = 4096
"""Maximum number of hardware threads and accelerators of a job that are kept: of a job that shares
its nodes they tell which are its own."""
MAX_PARTITIONED = 50_000
"""Maximum number of nodes whose partition is remembered."""
MAX_TEXT = 255
SECOND = 10**9


class LiveJobs:
    """The known runs of jobs, by cluster, id and start; bounded.

    The order in which starts and stops arrive makes no difference, nor does repetition.
    """

    def __init__(self, maximum: int = MAX_JOBS) -> None:
        self.maximum = maximum
        self.jobs: dict[RunKey, Job] = {}
        self.ended: dict[RunKey, float] = {}
        """When the end of each job was received, in this order; jobs that run are not in it."""
        self.pending = LivePending()
        self.version = 0
        """Counts changes, also of pending jobs."""
        self.changed: Callable[[Job], None] | None = None
        """Called with each job that is new, or of which more is known."""
        self._stops: dict[RunKey, tuple[Job, float]] = {}  # of starts that are not known yet
        self.partitions: dict[tuple[str, str], tuple[str, str]] = {}
        """Partition and subcluster of each node, as of the latest job on it."""
        self._on_node: dict[tuple[str, str], dict[RunKey, None]] = {}

    @property
    def running(self) -> list[Job]:
        """Jobs that have not ended, the latest first."""
        return [job for job in self.latest() if job.run_key not in self.ended]

    @property
    def nodes(self) -> Iterator[tuple[str, str]]:
        """Cluster and hostname of each node on which a job runs."""
        return iter(self._on_node)

    def latest(self) -> Iterator[Job]:
        """Yield all jobs, the latest first."""
        return iter(sorted(self.jobs.values(), key=_newest_first))

    def is_busy(self, id_: tuple[str, str]) -> bool:
        """Return whether a job runs on a node."""
        return id_ in self._on_node

    def count_on(self, id_: tuple[str, str]) -> int:
        """Return the number of jobs that run on a node."""
        return len(self._on_node.get(id_, ()))

    def on(self, cluster: str, hostname: str) -> list[Job]:
        found = [self.jobs[key] for key in self._on_node.get((cluster, hostname), ())]
        return sorted(found, key=_newest_first)

    def feed(self, message: Message, now: float) -> str:
        """Process an event received at `now`; return the user whose jobs it is about.

        Other events are ignored.
        """
        if is_pending_event(message):
            user, has_changed = self.pending.feed(message, now)
            self.version += has_changed
            return user
        try:
            function, job = function_of(message), _shortened(read_event(message))
        except DataError:
            return ""
        if function == "start_job":
            self._start(job, now)
            return job.user
        return (self._stop(job, now) or job).user

    def expire(self, now: float) -> None:
        """Forget pending jobs that are not reported any more."""
        self.version += self.pending.expire(now)

    def end_lost(self, now: float) -> None:
        """End the jobs that would have ended long ago if their stop was lost."""
        for job in self.running:
            if end := job.assumed_end(int(now * SECOND)):
                self._end(job, msgspec.structs.replace(job, end=end, state=ENDED), now)
                self.version += 1

    def _start(self, job: Job, now: float) -> None:
        key = job.run_key
        before = self.jobs.get(key)
        stop = self._stops.pop(key, None)
        self.pending.start(job)
        if before is None or key not in self.ended:
            self._put(job)
            if stop is not None:
                self._end(job, *stop)
            elif job.end:
                self._end(job, job, now)
        else:  # a repeated start
            self._put(msgspec.structs.replace(job, end=before.end, state=before.state))
        while len(self.jobs) > self.maximum:
            self._drop(next(iter(self.ended or self.jobs)))
        self.version += 1

    def _stop(self, stop: Job, now: float) -> Job | None:
        """Record the end of a job and return it; one without a known start is not shown."""
        job = self.jobs.get(stop.run_key)
        if job is None and not stop.start:
            same = [job for job in self.running if job.key == stop.key]
            job = same[0] if same else None
        if job is not None:
            self._end(job, stop, now)
            self.version += 1
        elif stop.start:
            self._stops[stop.run_key] = stop, now
            if len(self._stops) > self.maximum:
                del self._stops[next(iter(self._stops))]
        return job

    def _end(self, job: Job, stop: Job, now: float) -> None:
        key = job.run_key
        self.jobs[key] = msgspec.structs.replace(
            job, end=max(stop.end, SECOND), state=stop.state or ENDED
        )
        self.ended.setdefault(key, now)
        self._leave_nodes(key, job)
        self._report(self.jobs[key])

    def _put(self, job: Job) -> None:
        key = job.run_key
        if before := self.jobs.get(key):
            self._leave_nodes(key, before)
        self.jobs[key] = job
        if key not in self.ended:
            for node in job.nodes:
                self._on_node.setdefault((job.cluster, node.hostname), {})[key] = None
        self._note_partition(job)
        self._report(job)

    def _note_partition(self, job: Job) -> None:
        if not (job.partition or job.sub_cluster):
            return
        for node in job.nodes:
            id_ = (job.cluster, node.hostname)
            if id_ in self.partitions or len(self.partitions) < MAX_PARTITIONED:
                self.partitions[id_] = job.partition, job.sub_cluster

    def _report(self, job: Job) -> None:
        if self.changed is not None:
            self.changed(job)

    def _drop(self, key: RunKey) -> None:
        self._leave_nodes(key, self.jobs.pop(key))
        self.ended.pop(key, None)

    def _leave_nodes(self, key: RunKey, job: Job) -> None:
        for node in job.nodes:
            on_node = self._on_node.get((job.cluster, node.hostname), {})
            on_node.pop(key, None)
            if not on_node:
                self._on_node.pop((job.cluster, node.hostname), None)


def _newest_first(job: Job) -> tuple[int, str, int]:
    return -job.start, job.cluster, -job.id


def _shortened(job: Job) -> Job:
    texts = {name: getattr(job, name)[:MAX_TEXT] for name in _TEXTS}
    parts = sum(len(node.hwthreads) + len(node.accelerators) for node in job.nodes)
    has_parts = job.shared != "none" and parts <= MAX_PARTS
    nodes = tuple(_shortened_node(node, has_parts=has_parts) for node in job.nodes[:MAX_NODES])
    end = 0 if job.state == RUNNING else job.end
    return msgspec.structs.replace(job, **texts, nodes=nodes, end=end, metadata={}, raw=None)


def _shortened_node(node: JobNode, *, has_parts: bool) -> JobNode:
    hostname = node.hostname[:MAX_TEXT]
    if not has_parts:
        return JobNode(hostname)
    names = tuple(name[:MAX_TEXT] for name in node.accelerators)
    return JobNode(hostname, node.hwthreads, names)


_TEXTS = ("cluster", "state", "name", "user", "project", "partition", "sub_cluster", "shared")
