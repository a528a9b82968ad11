"""Accounting records to jobs: the records of one job, put together.

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

from ccpipe.formats.gridengine import Accounting, Origin, Outcome
from ccpipe.formats.gridengine.event import from_event, to_event
from ccpipe.jobs import REUSED
from ccpipe.message import Message
from ccpipe.pipeline.state import StateStore

log = logging.getLogger(__name__)

DAY = 86400 * 10**9
SETTLE = 600 * 10**9
"""Time in nanoseconds within which the last records of a deleted job may still arrive."""

Key = tuple[int, int]
"""Job number and array task; 0 if there is no array."""


class JobRecords(msgspec.Struct, frozen=True):
    """The records of one job, or of one task of an array, that has ended."""

    last: Accounting
    """The record with which it ended; the master's if it was parallel."""
    tasks: tuple[Accounting, ...] = ()
    """Records of the PE tasks of its last run."""
    earlier: tuple[Accounting, ...] = ()
    """Its earlier runs, the oldest first."""

    @property
    def key(self) -> Key:
        """Job number and array task; 0 if there is no array."""
        return self.last.job_number, self.last.task_number

    @property
    def start(self) -> int | None:
        """When its first run started; None if none did."""
        starts = [record.start_time for record in (*self.earlier, self.last) if record.start_time]
        return min(starts, default=None)

    @property
    def end(self) -> int | None:
        """When its last run ended; where that never started, the end of the last one that did."""
        ends = [record.end_time for record in (*self.earlier, self.last) if record.end_time]
        return self.last.end_time or max(ends, default=None)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its last run, that of the master first."""
        records = (self.last, *self.tasks)
        return tuple(dict.fromkeys(record.hostname for record in records if record.hostname))

    @property
    def has_all_hosts(self) -> bool:
        """Whether `hosts` is complete: without records of PE tasks only the master's is known."""
        return self.last.granted_pe is None or bool(self.tasks) or self.last.slots <= 1

    @property
    def cpu(self) -> float:
        """Seconds of processor time of the last run, over all its tasks."""
        return sum(record.cpu for record in (self.last, *self.tasks))

    @property
    def outcome(self) -> Outcome:
        """How its last run ended."""
        return self.last.outcome


@dataclass(slots=True)
class _Waiting:
    """A job that has not ended."""

    runs: list[Accounting] = field(default_factory=list)
    tasks: list[Accounting] = field(default_factory=list)
    seen: int = 0
    """The latest time that any record had when the last of these came."""
    places: list[tuple[int, int, int]] = field(default_factory=list)
    """The keys of its records in the table."""

    @property
    def submitted(self) -> int | None:
        times = [record.submission_time for record in (*self.runs, *self.tasks)]
        return next((time for time in times if time), None)

    @property
    def started(self) -> int | None:
        return min((run.start_time for run in self.runs if run.start_time), default=None)

    def add(self, record: Accounting) -> None:
        if record.pe_taskid is not None:
            self.tasks.append(record)
        else:
            self.runs.append(record)
            self.tasks.clear()  # they belonged to this run; the next one has its own


class _Held(msgspec.Struct, frozen=True):
    """A waiting record, stored as the original event."""

    record: Accounting
    seen: int
    """The latest time that any record had when it came."""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode((to_event(self.record, cluster=""), self.seen))

    @classmethod
    def decode(cls, content: bytes) -> "_Held":
        message, seen = msgspec.msgpack.decode(content, type=tuple[Message, int])
        return cls(from_event(message), seen)


class Assembler:
    """Puts records together; holds those of jobs that have not ended, of at most `maximum` jobs."""

    def __init__(
        self,
        *,
        quiet: int = 7 * DAY,
        maximum: int = 100_000,
        state: StateStore | None = None,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take the options; `count` is called for each record that is left out, with the reason.

        Parameters
        ----------
        quiet
            Nanoseconds without a further run after which a job has ended with its last run.
        maximum
            Jobs that are held; beyond, the one that waited longest is returned as it is.
        state
            What outlives the process; call ``recall()`` after it was opened.

        """
        self.quiet = quiet
        self.maximum = maximum
        self._report = count
        self.repeated = 0
        """Number of lines that came again."""
        self.late = 0
        """Number of records of PE tasks that came after their master's."""
        self.orphans = 0
        """Number of records of PE tasks whose master's never came."""
        state = state or StateStore()
        self._records = state.table(
            "waiting", tuple[int, int, int], _Held, maximum=2**63,
            encode=_Held.encode, decode=_Held.decode,
        )  # fmt: skip
        self._ended = state.table("assembled", tuple[int, int], int, maximum=maximum)
        self._deleted = state.table("deleted", tuple[int, int], int, maximum=maximum)
        self._places = state.table("places", tuple[str, int], bool, maximum=maximum)
        self._waiting: OrderedDict[Key, _Waiting] = OrderedDict()
        self._count = 0
        self.latest = 0
        """The latest time of any record, in nanoseconds."""

    def recall(self) -> None:
        """Continue from the stored state."""
        for place, held in self._records.items():
            waiting = self._waiting.setdefault(place[:2], _Waiting())
            self._waiting.move_to_end(place[:2])
            waiting.add(held.record)
            waiting.places.append(place)
            waiting.seen = held.seen
            self._count = max(self._count, place[2])
            self._reach(held.seen)
        self._reach(max((end for _, end in self._ended.items()), default=0))

    def feed(self, records: Iterable[Accounting]) -> Iterator[JobRecords]:
        """Process records in the order of the file; yield the jobs that have ended."""
        for record in records:
            if not self.is_repeated(record.origin):
                yield from self.add(record)

    def flush(self) -> Iterator[JobRecords]:
        """Yield the jobs that still wait for a further run."""
        while self._waiting:
            yield from self._as_it_is(next(iter(self._waiting)))

    def is_repeated(self, origin: Origin) -> bool:
        """Return whether a line came before, and remember it; one without a file never did."""
        place = origin.file, origin.offset
        if not origin.file:
            return False
        if place in self._places:
            self.repeated += 1
            self._report("repeated")
            return True
        self._places.put(place, True)
        return False

    def add(self, record: Accounting) -> Iterator[JobRecords]:
        """Add a record that is not repeated; yield the jobs that have ended."""
        if not record.is_intermediate:
            yield from self._add(record)
            self._reach(record.end_time)
            yield from self._let_go()

    def delete(self, key: Key, timestamp: int) -> Iterator[JobRecords]:
        """Note that a job was deleted; task -1 stands for all tasks of its number.

        Its last records may come later, so it is returned only after records of `SETTLE` later.
        """
        self._deleted.put(key, timestamp)
        yield from self._let_go()

    def first_start(self, key: Key, submitted: int | None) -> int | None:
        """Return when the first run of a waiting job started; None if that is not known."""
        waiting = self._waiting.get(key)
        if waiting is None or not is_same_job(waiting.submitted, submitted):
            return None
        return waiting.started

    def _add(self, record: Accounting) -> Iterator[JobRecords]:
        key = record.job_number, record.task_number
        waiting = self._waiting.get(key)
        if waiting and not is_same_job(waiting.submitted, record.submission_time):
            yield from self._as_it_is(key)
            waiting = None
        if record.pe_taskid is not None and waiting is None and self._is_late(record):
            self.late += 1
            self._report("late")
            log.info("job %d, task %d: PE task %s came late: left out", *key, record.pe_taskid)
        elif record.pe_taskid is None and record.is_final:
            waiting = self._forget(key)
            self._ended.put(key, record.end_time or self.latest)
            yield JobRecords(record, tuple(waiting.tasks), tuple(waiting.runs))
        else:
            self._wait(key, record)

    def _is_late(self, task: Accounting) -> bool:
        """Return whether the job of a PE task was returned before."""
        end = self._ended.get((task.job_number, task.task_number))
        return end is not None and (task.start_time or 0) <= end

    def _wait(self, key: Key, record: Accounting) -> None:
        """Hold a record until its job ends."""
        waiting = self._waiting.setdefault(key, _Waiting())
        self._waiting.move_to_end(key)
        waiting.add(record)
        self._reach(record.end_time)
        waiting.seen = self.latest
        self._count += 1
        place = *key, self._count
        waiting.places.append(place)
        self._records.put(place, _Held(record, waiting.seen))

    def _let_go(self) -> Iterator[JobRecords]:
        """Yield jobs that waited too long or exceed the maximum."""
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if len(self._waiting) <= self.maximum and self.latest - oldest.seen < self.quiet:
                break
            yield from self._as_it_is(key)
        for which, deleted in [*self._final_deletions()]:
            self._deleted.pop(which)
            for key in self._waiting_of(which):
                if (self._waiting[key].started or 0) <= deleted:
                    yield from self._as_it_is(key)

    def _reach(self, timestamp: int | None) -> None:
        """Advance the time, but not into the future: such a record is damaged."""
        self.latest = max(self.latest, min(timestamp or 0, time.time_ns() + DAY))

    def _forget(self, key: Key) -> _Waiting:
        waiting = self._waiting.pop(key, None) or _Waiting()
        for place in waiting.places:
            self._records.pop(place)
        return waiting

    def _as_it_is(self, key: Key) -> Iterator[JobRecords]:
        """Yield a job with the records received so far."""
        waiting = self._forget(key)
        if waiting.runs:
            yield JobRecords(waiting.runs[-1], tuple(waiting.tasks), tuple(waiting.runs[:-1]))
        else:
            self.orphans += len(waiting.tasks)
            for _ in waiting.tasks:
                self._report("orphaned")
            log.info("job %d, task %d: PE tasks without a master: left out", *key)

    def _waiting_of(self, deleted: Key) -> list[Key]:
        """Return the waiting jobs that a deletion is about."""
        job, task = deleted
        if task < 0:
            return [key for key in self._waiting if key[0] == job]
        return [deleted] if deleted in self._waiting else []

    def _final_deletions(self) -> Iterator[tuple[Key, int]]:
        """Yield the deletions after which no more records are expected."""
        for key, deleted in self._deleted.items():
            if self.latest - deleted < SETTLE:
                return
            yield key, deleted


def is_same_job(one: int | None, other: int | None) -> bool:
    """Return whether two submissions of a job number can be of one job; an unknown one can."""
    return one is None or other is None or abs(one - other) <= REUSED
