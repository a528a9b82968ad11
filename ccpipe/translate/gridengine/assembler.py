"""Accounting records to jobs: the runs and the PE tasks of one job, put together.

What one job gives is told in docs/gridengine.md; the policies are here:

- The key is (job number, array task): every task of an array is a job of its own.
- Records of PE tasks wait for the record of their master, which usually comes last. One that
  comes after it is late: it is counted and left out.
- A record with which the job does not end (rescheduled, migrated, in error state, never started)
  waits for the next run, which then has it among ``earlier``. After `quiet` without one, by the
  records' own times, the job is handed over as it is; after `SETTLE` where it is known to be
  deleted. A run whose record comes later still is a job of its own.
- A job number is used again some day: records whose submission lies further apart than `gap`
  belong to different jobs.
- A record that comes again (same file, same offset) is the same record; equal content is not.
- Intermediate records of the reporting file hold only a part of the usage, and are left out.

All that is known stands on shelves of a ``Memory``, so that it outlives the process where that
has a file.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from ccpipe.formats.gridengine import Accounting, Origin, Outcome
from ccpipe.formats.gridengine.event import from_event, to_event
from ccpipe.message import Message
from ccpipe.pipeline.state import StateStore

log = logging.getLogger(__name__)

DAY = 86400 * 10**9
SETTLE = 600 * 10**9
"""Nanoseconds for which a deleted job's last records may still be under way."""

Key = tuple[int, int]
"""Job number and array task; 0 where there is no array."""


class Job(msgspec.Struct, frozen=True):
    """One job, or one task of an array, that has ended."""

    last: Accounting
    """The record with which it ended: that of the master where it was parallel."""
    tasks: tuple[Accounting, ...] = ()
    """Records of the PE tasks of its last run."""
    earlier: tuple[Accounting, ...] = ()
    """Its earlier runs, the oldest first."""

    @property
    def key(self) -> Key:
        """Job number and array task; 0 where there is no array."""
        return self.last.job_number, self.last.task_number

    @property
    def start(self) -> int | None:
        """When its first run began; None where none did."""
        starts = [record.start_time for record in (*self.earlier, self.last) if record.start_time]
        return min(starts, default=None)

    @property
    def end(self) -> int | None:
        """When its last run ended; where that one never began, when the last one did that began."""
        ends = [record.end_time for record in (*self.earlier, self.last) if record.end_time]
        return self.last.end_time or max(ends, default=None)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its last run, that of the master first."""
        records = (self.last, *self.tasks)
        return tuple(dict.fromkeys(record.hostname for record in records if record.hostname))

    @property
    def has_all_hosts(self) -> bool:
        """Whether `hosts` are all: a PE without a record for each task names the master's only."""
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
    """What is known of a job that has not ended."""

    runs: list[Accounting] = field(default_factory=list)
    tasks: list[Accounting] = field(default_factory=list)
    seen: int = 0
    """The latest time that any record had when the last of these came."""
    places: list[tuple[int, int, int]] = field(default_factory=list)
    """Where its records stand on the shelf."""

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
            self.tasks.clear()  # they were this run's, and its successor has its own


class _Held(msgspec.Struct, frozen=True):
    """A record that waits, and how late it was when it came; it is kept as the event it was."""

    record: Accounting
    seen: int

    def encode(self) -> bytes:
        return msgspec.msgpack.encode((to_event(self.record, cluster=""), self.seen))

    @classmethod
    def decode(cls, content: bytes) -> "_Held":
        message, seen = msgspec.msgpack.decode(content, type=tuple[Message, int])
        return cls(from_event(message), seen)


class Assembler:
    """Puts records together; holds those of jobs that have not ended, and no more than `most`."""

    def __init__(
        self,
        *,
        quiet: int = 7 * DAY,
        gap: int = 30 * DAY,
        maximum: int = 100_000,
        state: StateStore | None = None,
    ) -> None:
        """Take the policy's times in nanoseconds.

        Parameters
        ----------
        quiet
            After so long without a further run, a job has ended with the last one it had.
        gap
            Records of one number whose submissions lie further apart are of different jobs.
        most
            Jobs that are held at most; beyond, the one that waited longest is handed over.
        memory
            What outlives the process; where it is opened later, ``recall()`` follows.

        """
        self.quiet = quiet
        self.gap = gap
        self.maximum = maximum
        self.repeated = 0
        """Lines that came again."""
        self.late = 0
        """Records of PE tasks that came after their master's."""
        self.orphans = 0
        """Records of PE tasks whose master's never came."""
        state = state or StateStore()
        self._records = state.table(
            "waiting", tuple[int, int, int], _Held, maximum=2**63,
            encode=_Held.encode, decode=_Held.decode,
        )  # fmt: skip
        self._ended = state.table("ended", tuple[int, int], int, maximum=maximum)
        self._deleted = state.table("deleted", tuple[int, int], int, maximum=maximum)
        self._places = state.table("places", tuple[str, int], bool, maximum=maximum)
        self._waiting: OrderedDict[Key, _Waiting] = OrderedDict()
        self._count = 0
        self._now = 0

    def recall(self) -> None:
        """Go on from what the memory has kept."""
        for place, held in self._records.items():
            waiting = self._waiting.setdefault(place[:2], _Waiting())
            self._waiting.move_to_end(place[:2])
            waiting.add(held.record)
            waiting.places.append(place)
            waiting.seen = held.seen
            self._count = max(self._count, place[2])
            self._reach(held.seen)
        self._reach(max((end for _, end in self._ended.items()), default=0))

    def feed(self, records: Iterable[Accounting]) -> Iterator[Job]:
        """Take records in the order of the file; yield the jobs that have ended."""
        for record in records:
            if not self.is_repeated(record.origin):
                yield from self.add(record)

    def flush(self) -> Iterator[Job]:
        """Yield the jobs that still wait for a further run."""
        while self._waiting:
            yield from self._as_it_is(next(iter(self._waiting)))

    def is_repeated(self, origin: Origin) -> bool:
        """Say whether a line came before, and remember it; one without a file never did."""
        place = origin.file, origin.offset
        if not origin.file:
            return False
        if place in self._places:
            self.repeated += 1
            return True
        self._places.put(place, True)
        return False

    def add(self, record: Accounting) -> Iterator[Job]:
        """Take a record that did not come before; yield the jobs that have ended."""
        if not record.is_intermediate:
            yield from self._add(record)
            self._reach(record.end_time)
            yield from self._let_go()

    def delete(self, key: Key, timestamp: int) -> Iterator[Job]:
        """Note that a job is gone; task -1 means all those of its number.

        Its records may be yet to come, so that it is handed over only when others, by their own
        times, have come for `SETTLE`.
        """
        self._deleted.put(key, timestamp)
        yield from self._let_go()

    def has_ended(self, key: Key, timestamp: int | None) -> bool:
        """Say whether a job was handed over before that went on until a moment or longer."""
        end = self._ended.get(key)
        return end is not None and (timestamp or 0) <= end

    def first_start(self, key: Key, submitted: int | None) -> int | None:
        """Return when the first run of a waiting job began; None where nobody knows."""
        waiting = self._waiting.get(key)
        if waiting is None or not self.is_near(waiting.submitted, submitted):
            return None
        return waiting.started

    def is_near(self, one: int | None, other: int | None) -> bool:
        """Say whether two submissions can be those of one job; one that is not known can."""
        return one is None or other is None or abs(one - other) <= self.gap

    def _add(self, record: Accounting) -> Iterator[Job]:
        key = record.job_number, record.task_number
        waiting = self._waiting.get(key)
        if waiting and not self.is_near(waiting.submitted, record.submission_time):
            yield from self._as_it_is(key)
            waiting = None
        if (
            record.pe_taskid is not None
            and waiting is None
            and self.has_ended(key, record.start_time)
        ):
            self.late += 1
            log.info("job %d, task %d: PE task %s came late: left out", *key, record.pe_taskid)
        elif record.pe_taskid is None and record.is_final:
            waiting = self._forget(key)
            self._ended.put(key, record.end_time or self._now)
            yield Job(record, tuple(waiting.tasks), tuple(waiting.runs))
        else:
            self._wait(key, record)

    def _wait(self, key: Key, record: Accounting) -> None:
        """Hold a record until its job ends."""
        waiting = self._waiting.setdefault(key, _Waiting())
        self._waiting.move_to_end(key)
        waiting.add(record)
        self._reach(record.end_time)
        waiting.seen = self._now
        self._count += 1
        place = *key, self._count
        waiting.places.append(place)
        self._records.put(place, _Held(record, waiting.seen))

    def _let_go(self) -> Iterator[Job]:
        """Yield jobs that waited too long, or are too many."""
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if len(self._waiting) <= self.maximum and self._now - oldest.seen < self.quiet:
                break
            yield from self._as_it_is(key)
        for gone, deleted in [*self._settled()]:
            self._deleted.pop(gone)
            for key in self._meant_by(gone):
                if (self._waiting[key].started or 0) <= deleted:
                    yield from self._as_it_is(key)

    def _reach(self, timestamp: int | None) -> None:
        """Go on in time, but never to a moment of which only a damaged record can tell."""
        self._now = max(self._now, min(timestamp or 0, time.time_ns() + DAY))

    def _forget(self, key: Key) -> _Waiting:
        waiting = self._waiting.pop(key, None) or _Waiting()
        for place in waiting.places:
            self._records.pop(place)
        return waiting

    def _as_it_is(self, key: Key) -> Iterator[Job]:
        """Yield a job of which nothing more is waited for."""
        waiting = self._forget(key)
        if waiting.runs:
            yield Job(waiting.runs[-1], tuple(waiting.tasks), tuple(waiting.runs[:-1]))
        else:
            self.orphans += len(waiting.tasks)
            log.info("job %d, task %d: PE tasks without a master: left out", *key)

    def _meant_by(self, gone: Key) -> list[Key]:
        """Return the jobs that wait of those that were deleted."""
        job, task = gone
        if task < 0:
            return [key for key in self._waiting if key[0] == job]
        return [gone] if gone in self._waiting else []

    def _settled(self) -> Iterator[tuple[Key, int]]:
        """Yield the deletions that lie far enough back."""
        for key, deleted in self._deleted.items():
            if self._now - deleted < SETTLE:
                return
            yield key, deleted
