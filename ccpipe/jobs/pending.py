"""Jobs that wait to start: the event ``jobpending``, and which jobs to report in it.

The event is ours; cc-backend, which knows only jobs that have started, does not read it. It has
jobs of one user: those that are pending, and those that no longer are.

A bridge reports changes of a queue: a job that is new in it, one of which something has changed,
and one that left it, because it started or was cancelled. It repeats each job every ``REPEAT``, and
readers forget a job of which they have not heard for ``EXPIRY``. So a lost event is made up for,
and no job stays pending in a reader when its bridge has ended.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.message import Kind, Message, event
from ccpipe.pipeline.state import StateStore

SECOND = 10**9
PENDING_EVENT = "jobpending"
"""Class and function of the event."""
REPEAT = 3600 * SECOND
EXPIRY = 2 * REPEAT + 600 * SECOND
MAX_PENDING = 100_000
"""Maximum number of pending jobs of a cluster; further ones are not reported."""
MAX_CHANGES = 1000
"""Maximum number of changed jobs that are reported at once, those reported longest ago first: the
reasons of a whole queue may change between two polls."""
MAX_IN_EVENT = 200
"""Maximum number of jobs in an event, so that it fits a broker's maximum payload."""
MAX_TEXT = 255

_Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class PendingJob(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,
    rename={
        "id": "jobId", "name": "jobName", "submit": "submitTime", "nodes": "numNodes",
        "hwthreads": "numHwthreads", "tasks": "arrayTasks",
    },
):  # fmt: skip
    """A job that waits, or the tasks of an array that still do; 0 and "" mean unknown."""

    cluster: str = ""
    id: _Id
    """As in the job's start. Tasks of an array have another one each when they start."""
    user: str = ""
    name: str = ""
    project: str = ""
    partition: str = ""
    """Several may be requested: they are separated by commas."""
    submit: _Count = 0
    """Seconds since the epoch."""
    nodes: _Count = 0
    """Requested, as are hardware threads; of an array for each task."""
    hwthreads: _Count = 0
    walltime: _Count = 0
    """Time limit in seconds."""
    tasks: _Count = 0
    """How many tasks of an array wait; 0 of a job that is not an array."""
    reason: str = ""
    """Why it waits, in the scheduler's words."""

    @property
    def key(self) -> tuple[str, int]:
        return self.cluster, self.id

    @property
    def count(self) -> int:
        """The number of jobs that it will be."""
        return self.tasks or 1


class LeftJob(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"id": "jobId", "state": "jobState"}
):
    """A job that is no longer pending."""

    id: _Id
    state: str = ""
    """``running``, or how it ended, such as ``cancelled``; empty if that is unknown."""


class PendingEvent(msgspec.Struct, omit_defaults=True):
    """The payload of an event ``jobpending``, of which each job has the cluster and the user."""

    cluster: str
    user: str = ""
    pending: list[PendingJob] = []
    left: list[LeftJob] = []


_DECODER = msgspec.json.Decoder(PendingEvent)


def is_pending_event(message: Message) -> bool:
    return message.name == PENDING_EVENT and message.kind is Kind.EVENT


def read_pending_event(message: Message) -> PendingEvent:
    """Read an event ``jobpending``; raises DataError if it is not one."""
    if not is_pending_event(message):
        raise DataError(f"expected an event {PENDING_EVENT}, got {message.name!r:.40}")
    try:
        found = _DECODER.decode(str(message.value))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DataError(f"the event's payload: {error}") from None
    cluster = (found.cluster or message.tags.get("cluster", ""))[:MAX_TEXT]
    user = found.user[:MAX_TEXT]
    jobs = [_shortened(replace(job, cluster=cluster, user=user)) for job in found.pending]
    return PendingEvent(cluster, user, jobs, found.left)


def _shortened(job: PendingJob) -> PendingJob:
    texts = {name: getattr(job, name)[:MAX_TEXT] for name in _TEXTS}
    return replace(job, **texts)


_TEXTS = ("name", "project", "partition", "reason")


class _Report(msgspec.Struct, frozen=True):
    """A job as it was last reported."""

    job: PendingJob
    time: int
    """Nanoseconds since the epoch."""


class QueueReports:
    """Selects what to report of a cluster's queue; its table is in a ``StateStore``."""

    def __init__(self, cluster: str, state: StateStore) -> None:
        """Create the table, before the store is opened."""
        self.cluster = cluster
        self._reported = state.table("queue", int, _Report, maximum=MAX_PENDING)

    def update(
        self,
        queue: Iterable[PendingJob],
        time: int,
        *,
        state_of: Callable[[int], str] = lambda _: "",
    ) -> Iterator[Message]:
        """Yield the events about a queue as it was at `time`, in nanoseconds since the epoch.

        `state_of` returns the state of a job that has left it, as in ``LeftJob``.
        """
        jobs = {job.id: job for _, job in zip(range(MAX_PENDING), queue, strict=False)}
        left = [report.job for id_, report in self._reported.items() if id_ not in jobs]
        for job in left:
            self._reported.pop(job.id)
        pending = list(self._due(jobs.values(), time))
        for job in pending:
            self._reported.put(job.id, _Report(job, time))
        by_user: dict[str, PendingEvent] = {}
        for job in pending:
            self._of_user(by_user, job).pending.append(replace(job, cluster="", user=""))
        for job in left:
            self._of_user(by_user, job).left.append(LeftJob(job.id, state_of(job.id)))
        tags = {"cluster": self.cluster, "hostname": self.cluster, "type": "node"}
        for one in by_user.values():
            for part in _parts(one):
                payload = msgspec.json.encode(part).decode()
                yield event(PENDING_EVENT, PENDING_EVENT, payload, time=time, tags=tags)

    def _of_user(self, by_user: dict[str, PendingEvent], job: PendingJob) -> PendingEvent:
        return by_user.setdefault(job.user, PendingEvent(self.cluster, job.user, [], []))

    def _due(self, jobs: Iterable[PendingJob], time: int) -> Iterator[PendingJob]:
        """Yield jobs that are new, were reported long ago, or have changed."""
        changed: list[tuple[int, int, PendingJob]] = []
        for job in jobs:
            report = self._reported.get(job.id)
            if report is None or abs(time - report.time) >= REPEAT:
                yield job
            elif report.job != job:
                changed.append((report.time, job.id, job))
        for *_, job in heapq.nsmallest(MAX_CHANGES, changed, key=lambda row: row[:2]):
            yield job


def _parts(whole: PendingEvent) -> Iterator[PendingEvent]:
    """Split an event into ones of at most ``MAX_IN_EVENT`` jobs."""
    size = max(len(whole.pending), len(whole.left))
    for start in range(0, size, MAX_IN_EVENT):
        stop = start + MAX_IN_EVENT
        yield replace(whole, pending=whole.pending[start:stop], left=whole.left[start:stop])


def count_tasks(text: str) -> int:
    """Return the number of tasks of an array by their list, such as ``1,4-9:2%3``.

    A maximum of tasks that run at once, ``%3``, is ignored.
    """
    return sum(map(_size, _RANGE.finditer(text.partition("%")[0])))


def _size(found: re.Match[str]) -> int:
    first, last, step = found.groups()
    return len(range(int(first), int(last or first) + 1, max(1, int(step or 1))))


_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?")
