"""Accounting records to jobs: the runs and the PE tasks of one job, put together.

What one job gives is told in docs/gridengine.md; the policies are here:

- The key is (job number, array task): every task of an array is a job of its own.
- Records of PE tasks wait for the record of their master, which usually comes last. One that
  comes after it is late: it is counted and left out.
- A record with which the job does not end (rescheduled, migrated, in error state, never started)
  waits for the next run, which then has it among ``earlier``. After `quiet` without one, by the
  records' own times, the job is handed over as it is.
- A job number is used again some day: records whose submission lies further apart than `gap`
  belong to different jobs.
- A record that comes again (same file, same offset) is the same record; equal content is not.
- Intermediate records of the reporting file hold only a part of the usage, and are left out.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from ccpipe.formats.gridengine import Accounting, Outcome

DAY = 86400 * 10**9


class Job(msgspec.Struct, frozen=True):
    """One job, or one task of an array, that has ended."""

    last: Accounting
    """The record with which it ended: that of the master where it was parallel."""
    tasks: tuple[Accounting, ...] = ()
    """Records of the PE tasks of its last run."""
    earlier: tuple[Accounting, ...] = ()
    """Its earlier runs, the oldest first."""

    @property
    def key(self) -> tuple[int, int]:
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

    @property
    def submitted(self) -> int | None:
        times = [record.submission_time for record in (*self.runs, *self.tasks)]
        return next((time for time in times if time), None)


class Assembler:
    """Puts records together; holds those of jobs that have not ended, and no more than `most`."""

    def __init__(self, *, quiet: int = 7 * DAY, gap: int = 30 * DAY, most: int = 100_000) -> None:
        """Take the policy's times in nanoseconds.

        Parameters
        ----------
        quiet
            After so long without a further run, a job has ended with the last one it had.
        gap
            Records of one number whose submissions lie further apart are of different jobs.
        most
            Jobs that are held at most; beyond, the one that waited longest is handed over.

        """
        self.quiet = quiet
        self.gap = gap
        self.most = most
        self.repeated = 0
        """Records that came again."""
        self.late = 0
        """Records of PE tasks that came after their master's."""
        self.orphans = 0
        """Records of PE tasks whose master's never came."""
        self._waiting: OrderedDict[tuple[int, int], _Waiting] = OrderedDict()
        self._ended: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._places: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._now = 0

    def feed(self, records: Iterable[Accounting]) -> Iterator[Job]:
        """Take records in the order of the file; yield the jobs that have ended."""
        for record in records:
            if self._is_repeated(record) or record.is_intermediate:
                continue
            self._now = max(self._now, record.end_time or 0)
            yield from self._feed_one(record)
            yield from self._let_go()

    def flush(self) -> Iterator[Job]:
        """Yield the jobs that still wait for a further run."""
        while self._waiting:
            _, waiting = self._waiting.popitem(last=False)
            yield from self._as_it_is(waiting)

    def _feed_one(self, record: Accounting) -> Iterator[Job]:
        key = record.job_number, record.task_number
        waiting = self._waiting.get(key)
        if waiting and not self._is_near(waiting.submitted, record.submission_time):
            del self._waiting[key]
            yield from self._as_it_is(waiting)
            waiting = None
        if record.pe_taskid is not None and waiting is None and self._has_ended(key, record):
            self.late += 1
            return
        waiting = waiting or _Waiting()
        waiting.seen = self._now
        if record.pe_taskid is not None:
            waiting.tasks.append(record)
        elif record.is_final:
            self._waiting.pop(key, None)
            self._note_end(key, record)
            yield Job(record, tuple(waiting.tasks), tuple(waiting.runs))
            return
        else:
            waiting.runs.append(record)
            waiting.tasks.clear()  # they were this run's, and its successor has its own
        self._waiting[key] = waiting
        self._waiting.move_to_end(key)

    def _let_go(self) -> Iterator[Job]:
        """Yield jobs that waited too long, or are too many."""
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if len(self._waiting) <= self.most and self._now - oldest.seen < self.quiet:
                return
            del self._waiting[key]
            yield from self._as_it_is(oldest)

    def _as_it_is(self, waiting: _Waiting) -> Iterator[Job]:
        """Yield a job of which nothing more is waited for."""
        if waiting.runs:
            yield Job(waiting.runs[-1], tuple(waiting.tasks), tuple(waiting.runs[:-1]))
        else:
            self.orphans += len(waiting.tasks)

    def _is_near(self, one: int | None, other: int | None) -> bool:
        """Say whether two submissions can be those of one job; one that is not known can."""
        return one is None or other is None or abs(one - other) <= self.gap

    def _has_ended(self, key: tuple[int, int], record: Accounting) -> bool:
        """Say whether the job of a PE task's record was handed over before."""
        end = self._ended.get(key)
        return end is not None and (record.start_time or 0) <= end

    def _note_end(self, key: tuple[int, int], record: Accounting) -> None:
        self._ended[key] = record.end_time or self._now
        self._ended.move_to_end(key)
        while len(self._ended) > self.most:
            self._ended.popitem(last=False)

    def _is_repeated(self, record: Accounting) -> bool:
        place = record.origin.file, record.origin.offset
        if not record.origin.file:
            return False
        if place in self._places:
            self.repeated += 1
            return True
        self._places[place] = None
        while len(self._places) > self.most:
            self._places.popitem(last=False)
        return False
