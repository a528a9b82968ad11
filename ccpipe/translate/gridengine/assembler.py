"""The runs and tasks of one job, put together.

docs/gridengine/jobs.md says what a job's records give; the rules are here:

- The key is (job number, array task): every task of an array is a job.
- Records of PE tasks wait for the record of their master, which usually comes last. One that
  comes after it is late: it is counted and left out.
- A record with which the job does not end (rescheduled, migrated, in error state, never started)
  waits for the next run, which then has it among ``earlier``. After `quiet` without one, by the
  records' own times, the job is returned as it is; after `SETTLE` where it was deleted. A run
  whose record comes later still is a job of its own.
- Job numbers are used again: records whose submissions lie further apart than ``REUSED`` belong
  to different jobs.
- A record that comes again (same file, same offset) is the same record; equal content is not.
- Intermediate records of the reporting file hold only a part of the usage, and are left out.

All of it is in tables of a ``StateStore``, so that it outlives the process where that has a file.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from ccpipe.formats.gridengine import Accounting
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.jobs import RUNNING, Job, JobNode, is_same_job
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.gridengine.jobs import Mapping

log = logging.getLogger(__name__)

DAY = 86400 * 10**9
SETTLE = 600 * 10**9
"""Time in nanoseconds within which the last records of a deleted job may still arrive."""

Key = tuple[int, int]
"""Job number and array task; 0 if there is no array."""


class JobRuns(msgspec.Struct, frozen=True):
    """A job, or a task of an array, that has ended."""

    last: Job
    """Its last run; that of the master if it was parallel."""
    tasks: tuple[Job, ...] = ()
    earlier: tuple[Job, ...] = ()
    """Its earlier runs, the oldest first."""

    @property
    def start(self) -> int:
        """When its first run started; 0 if none did."""
        return min((run.start for run in (*self.earlier, self.last) if run.start), default=0)

    @property
    def end(self) -> int:
        """When its last run ended; where that never started, the end of the last one that did."""
        return self.last.end or max(run.end for run in (*self.earlier, self.last))

    @property
    def nodes(self) -> tuple[JobNode, ...]:
        """The nodes of its last run, that of the master first."""
        return tuple(dict.fromkeys(node for job in (self.last, *self.tasks) for node in job.nodes))

    @property
    def has_all_nodes(self) -> bool:
        """Whether `nodes` is complete: without records of PE tasks only the master's is known."""
        last = self.last
        return "pe" not in last.metadata or bool(self.tasks) or last.hwthreads <= 1

    @property
    def cpu(self) -> float:
        """Seconds of processor time of the last run, over all its tasks."""
        return sum(job.usage.cpu for job in (self.last, *self.tasks) if job.usage)

    def finished(self, mapping: Mapping) -> Job:
        """Return the job from the start of its first run to the end of its last."""
        job = mapping.apply(self.last, self.nodes)
        counts = {
            "peTasks": str(len(self.tasks) or ""),
            "restarts": str(len(self.earlier) or ""),
            "nodes": "" if self.has_all_nodes else "incomplete: only the master's host is known",
        }
        return msgspec.structs.replace(
            job, start=self.start, end=max(self.end, self.start), metadata=job.metadata | counts
        )


@dataclass(slots=True)
class _Waiting:
    """A job that has not ended."""

    runs: list[Job] = field(default_factory=list)
    tasks: list[Job] = field(default_factory=list)
    seen: int = 0
    """The latest time that any record had when the last of these came."""
    places: list[tuple[int, int, int]] = field(default_factory=list)
    """The keys of its records in the table."""

    @property
    def submitted(self) -> int:
        return next((job.submit for job in (*self.runs, *self.tasks) if job.submit), 0)

    @property
    def started(self) -> int:
        return min((run.start for run in self.runs if run.start), default=0)

    def add(self, job: Job) -> None:
        if job.step:
            self.tasks.append(job)
        else:
            self.runs.append(job)
            self.tasks.clear()  # they belonged to this run; the next one has its own


class _Held(msgspec.Struct, frozen=True):
    """A run or task that waits, without its raw record."""

    job: Job
    seen: int
    """The latest time that any record had when it came."""


class Assembler:
    """Puts records together; holds those of jobs that have not ended, of at most `maximum` jobs.

    Beyond, the job that waited longest is returned as it is.
    """

    def __init__(
        self,
        *,
        quiet: int = 7 * DAY,
        maximum: int = 100_000,
        state: StateStore | None = None,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create the tables; call ``recall()`` after the store was opened.

        After `quiet` nanoseconds without a further run a job has ended with its last one. `count`
        is called for each record that is left out, with the reason.
        """
        self.quiet = quiet
        self.maximum = maximum
        self._report = count
        state = state or StateStore()
        self._records = state.table(  # as JSON, which holds integers of any size
            "waiting", tuple[int, int, int], _Held, maximum=2**63,
            encode=msgspec.json.encode, decode=msgspec.json.Decoder(_Held).decode,
        )  # fmt: skip
        self._ended = state.table("assembled", tuple[int, int], int, maximum=maximum)
        self._deleted = state.table("deleted", tuple[int, int], int, maximum=maximum)
        self._places = state.table("places", tuple[str, int], bool, maximum=maximum)
        self._waiting: OrderedDict[Key, _Waiting] = OrderedDict()
        self._count = 0
        self.latest = 0
        """The latest time of any record, in nanoseconds."""

    def recall(self) -> None:
        for place, held in self._records.items():
            self._hold(place, held)
            self._count = max(self._count, place[2])
            self._reach(held.seen)
        self._reach(max((end for _, end in self._ended.items()), default=0))

    def feed(self, jobs: Iterable[Job]) -> Iterator[JobRuns]:
        """Process records in the order of the file; yield the jobs that have ended."""
        for job in jobs:
            if not self.is_repeated(job):
                yield from self.add(job)

    def flush(self) -> Iterator[JobRuns]:
        while self._waiting:
            yield from self._as_it_is(next(iter(self._waiting)))

    def is_repeated(self, job: Job) -> bool:
        """Return whether a line came before, and remember it; one without a file never did."""
        record = job.raw
        if not isinstance(record, Accounting | JobLog) or not record.origin.file:
            return False
        place = record.origin.file, record.origin.offset
        if place in self._places:
            self._report("repeated")
            return True
        self._places.put(place, True)
        return False

    def add(self, job: Job) -> Iterator[JobRuns]:
        """Add a record that is not repeated, or a deletion; yield the jobs that have ended.

        The last records of a deleted job may come later, so it is returned only after records of
        `SETTLE` later.
        """
        if isinstance(job.raw, JobLog):
            self._deleted.put(key_of(job), job.end)
            yield from self._let_go()
        elif job.state != RUNNING:  # that is usage since midnight
            yield from self._add(job)
            self._reach(job.end)
            yield from self._let_go()

    def first_start(self, job: Job) -> int:
        """Return when the first run of a waiting job started; 0 if that is not known."""
        waiting = self._waiting.get(key_of(job))
        if waiting is None or not is_same_job(waiting.submitted, job.submit):
            return 0
        return waiting.started

    def _add(self, job: Job) -> Iterator[JobRuns]:
        key = key_of(job)
        waiting = self._waiting.get(key)
        if waiting and not is_same_job(waiting.submitted, job.submit):
            yield from self._as_it_is(key)
            waiting = None
        if job.step and waiting is None and self._is_late(job):
            self._report("late")
            log.info("job %d, task %d: PE task %s came late: left out", *key, job.step)
        elif job.step or job.runs_again:
            self._wait(job)
        else:
            waiting = self._forget(key)
            self._ended.put(key, job.end or self.latest)
            yield JobRuns(job, tuple(waiting.tasks), tuple(waiting.runs))

    def _is_late(self, task: Job) -> bool:
        """Return whether the job of a PE task was returned before."""
        end = self._ended.get(key_of(task))
        return end is not None and task.start <= end

    def _wait(self, job: Job) -> None:
        key = key_of(job)
        self._reach(job.end)
        self._count += 1
        held = _Held(msgspec.structs.replace(job, raw=None), self.latest)
        self._hold((*key, self._count), held)
        self._records.put((*key, self._count), held)

    def _hold(self, place: tuple[int, int, int], held: _Held) -> None:
        waiting = self._waiting.setdefault(place[:2], _Waiting())
        self._waiting.move_to_end(place[:2])
        waiting.add(held.job)
        waiting.seen = held.seen
        waiting.places.append(place)

    def _let_go(self) -> Iterator[JobRuns]:
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if len(self._waiting) <= self.maximum and self.latest - oldest.seen < self.quiet:
                break
            yield from self._as_it_is(key)
        for which, deleted in [*self._final_deletions()]:
            self._deleted.pop(which)
            for key in self._waiting_of(which):
                if self._waiting[key].started <= deleted:
                    yield from self._as_it_is(key)

    def _reach(self, timestamp: int) -> None:
        """Advance the time, but not into the future: such a record is damaged."""
        self.latest = max(self.latest, min(timestamp, time.time_ns() + DAY))

    def _forget(self, key: Key) -> _Waiting:
        waiting = self._waiting.pop(key, None) or _Waiting()
        for place in waiting.places:
            self._records.pop(place)
        return waiting

    def _as_it_is(self, key: Key) -> Iterator[JobRuns]:
        waiting = self._forget(key)
        if waiting.runs:
            yield JobRuns(waiting.runs[-1], tuple(waiting.tasks), tuple(waiting.runs[:-1]))
        else:
            for _ in waiting.tasks:
                self._report("orphaned")
            log.info("job %d, task %d: PE tasks without a master: left out", *key)

    def _waiting_of(self, deleted: Key) -> list[Key]:
        """Return the waiting jobs that a deletion is about: with task 0 all of the number."""
        if deleted[1]:
            return [deleted] if deleted in self._waiting else []
        return [key for key in self._waiting if key[0] == deleted[0]]

    def _final_deletions(self) -> Iterator[tuple[Key, int]]:
        """Yield the deletions after which no more records are expected."""
        for key, deleted in self._deleted.items():
            if self.latest - deleted < SETTLE:
                return
            yield key, deleted


def key_of(job: Job) -> Key:
    return job.array_id or job.id, job.array_task or 0
