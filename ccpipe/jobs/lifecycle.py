"""The lifecycle of jobs: of many partial records each start and each stop, once.

Records arrive in any order, repeatedly, and from several sources with partial knowledge. The rules:

- A later record overrides an earlier one field by field; nothing overrides the end of a run.
- A start is emitted as soon as it is known whose the job is, when it began and where; a stop when
  the job has ended and its start was emitted. A job that is first seen at its end has both.
- Both are emitted once. Later records of an ended run are ignored.
- A run whose records arrive after a later run's is emitted when it is complete.
- A job that is requeued goes on: it keeps the start of its first run, and stops when its last run
  ends, since cc-backend refuses a second start of an id within a day. A run that ends as
  ``REQUEUED``, or in a state of ``RUN_AGAIN`` of a job that is known to be pending again, does not
  end the job. One that is cancelled while it waits has the end of its last run.
- A run that starts after the job's stop was emitted is a new job.
- Ids are used again some day. Where submissions lie more than ``REUSED`` apart, the end of the
  former job is unknown, and no stop is made up for it.
- A start and a stop that become known together are neighbours in what ``take()`` returns, so that
  they travel in one message. A stop in another message waits until ``delay`` after its start:
  cc-backend handles eight messages at a time in no order, and a stop before its start is lost.
"""

import logging
import time
import time as clocks
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar

import msgspec

from ccpipe.errors import DataError
from ccpipe.jobs.job import PENDING, REQUEUED, RUNNING, Job
from ccpipe.message import Message
from ccpipe.pipeline.state import StateStore, StateTable

log = logging.getLogger(__name__)

SECOND = 10**9
REUSED = 30 * 86400 * SECOND
"""Difference in nanoseconds between two submissions with one id that makes them different jobs."""
MAX_JOBS = 100_000
"""Maximum number of jobs per state (pending, running, ended) remembered; the oldest are dropped."""

RUN_AGAIN = frozenset({"boot_fail", "node_fail", "preempted"})
"""States in which a run ends, of a job that may run again."""
MAX_RUNS = 8
"""Maximum number of runs of a job remembered."""
CLOCK_CHANGES = (1800 * SECOND, 3600 * SECOND)
"""Daylight saving offset, by which Sonar's times of past runs may shift."""

Key = tuple[str, int]
Function = Literal["start_job", "stop_job"]
V = TypeVar("V")


class JobEvent(msgspec.Struct, frozen=True):
    """A start or a stop to be sent."""

    function: Function
    job: Job
    """The job as known then; for a stop, ``start`` is the one that was emitted."""
    time: int
    """Time of the record that caused it."""
    not_before: int = 0
    """When to send it, in nanoseconds since the epoch by the local clock; 0 for immediately."""


class _Open(msgspec.Struct, frozen=True):
    """A job that has not ended."""

    job: Job
    time: int
    """Time of its latest record."""
    start: int = 0
    """The start that was emitted; 0 before that."""
    sent: int = 0
    """When that was or will be sent, by the local clock."""


class _Ended(msgspec.Struct, frozen=True):
    """The latest run of a job that ended."""

    start: int
    end: int
    starts: tuple[int, ...]
    """Starts of the latest emitted runs, including this one."""
    time: int
    """Time of the record that reported the end."""
    run: int
    sent: int
    """When its stop was or will be sent, by the local clock."""


class Lifecycle:
    """Turns records of jobs into starts and stops. Its tables are in a ``StateStore``."""

    def __init__(
        self,
        state: StateStore,
        *,
        delay: int = 0,
        maximum: int = MAX_JOBS,
        clock: Callable[[], int] = clocks.time_ns,
    ) -> None:
        """Create the tables, before the store is opened; `delay` and `clock` are in nanoseconds."""
        self.delay = delay
        self.clock = clock
        self._pending = _table(state, "pending", _Open, maximum)
        self._running = _table(state, "running", _Open, maximum)
        self._ended = _table(state, "ended", _Ended, maximum)
        self._events: dict[Key, list[JobEvent]] = {}
        self._logged: set[str] = set()

    def __len__(self) -> int:
        return len(self._pending) + len(self._running) + len(self._ended)

    def add(self, job: Job, time: int) -> None:
        """Process a record created at `time`, in nanoseconds since the epoch."""
        if job.raw is not None:
            job = msgspec.structs.replace(job, raw=None)
        key = job.key
        known = self._open(key)
        ended = self._ended.get(key)
        is_new = known is None or (job.start > 0 and not known.start)
        if is_new and ended is not None and not _follows(job, time, ended):
            self._add_earlier(job, time, ended)
            return
        if known is None:
            new = _Open(job, time)
        elif known.start and _precedes(job, known):
            self._add_earlier(job, time, ended)
            return
        elif _is_other_job(job, known):
            if known.start:
                log.warning("job %d of %s: its id is used again, its end is unknown", *key[::-1])
                self._forget(key)
            new = _Open(job, time)
        else:
            merged = _merged(known, job, time)
            if merged == known.job:
                return  # unchanged, like most records of a poll
            new = msgspec.structs.replace(known, job=merged, time=max(time, known.time))
        self._advance(new, time)

    def note_start(self, job: Job, time: int) -> None:
        """Record a start sent by another source; its stop will be emitted here."""
        ended = self._ended.get(job.key)
        if ended is None or _follows(job, time, ended):
            self._store(_Open(job, time, job.start, self.clock()))

    def started(self, cluster: str, id_: int) -> Job | None:
        """Return a job whose start was sent but not its stop, with that start."""
        known = self._running.get((cluster, id_))
        return None if known is None else msgspec.structs.replace(known.job, start=known.start)

    def state_of(self, cluster: str, id_: int) -> str:
        """Return the state of a job that runs, or ended without having started; "" of others."""
        known = self._open((cluster, id_))
        return known.job.state if known else ""

    def running(self, cluster: str) -> Iterator[Job]:
        """Yield the jobs of a cluster that run now, with their latest nodes."""
        for (name, _), known in self._running.items():
            if name == cluster and known.job.state == RUNNING:
                yield known.job

    def check_reported(self, job: Job) -> None:
        """Raise DataError if a job has run and ended, but its start cannot be emitted."""
        known = self._pending.get(job.key)
        if known is not None and known.job.nodes and _never_reported(known.job):
            raise DataError("it has ended, but its user is unknown")

    def take(self) -> list[JobEvent]:
        """Return the events since the last call; events of one job are adjacent."""
        events, self._events = self._events, {}
        return [event for group in events.values() for event in group]

    def _open(self, key: Key) -> _Open | None:
        return self._running.get(key) or self._pending.get(key)

    def _advance(self, new: _Open, time: int) -> None:
        """Emit the events that are now complete, and record them."""
        if not new.start and new.job.can_be_reported:
            sent = self._emit("start_job", new.job, time, new.sent)
            new = msgspec.structs.replace(new, start=new.job.start, sent=sent)
        if new.start and new.job.start_metadata:
            job = msgspec.structs.replace(new.job, start_metadata={})
            new = msgspec.structs.replace(new, job=job)
        if new.start and new.job.has_ended:
            self._stop(new, new.job, time)
        else:
            if reason := _never_reported(new.job):
                self._log_once(reason, new.job)
            self._store(new)

    def _log_once(self, reason: str, job: Job) -> None:
        if reason not in self._logged:
            self._logged.add(reason)
            log.warning("jobs whose records %s are not reported, such as job %d", reason, job.id)

    def _add_earlier(self, job: Job, time: int, ended: _Ended | None) -> None:
        if not (job.has_ended and job.can_be_reported) or (ended and not _is_unseen(job, ended)):
            return
        sent = self._emit("start_job", job, time)
        self._emit("stop_job", job, time)
        self._put_ended(job, time, sent)

    def _stop(self, known: _Open, job: Job, time: int) -> None:
        stop = msgspec.structs.replace(job, start=known.start, end=max(job.end, known.start))
        sent = self._emit("stop_job", stop, time, known.sent)
        self._forget(job.key)
        self._put_ended(stop, time, sent)

    def _put_ended(self, job: Job, time: int, sent: int) -> None:
        before = self._ended.get(job.key)
        starts = (*(before.starts if before else ()), job.start)[-MAX_RUNS:]
        if before and before.start > job.start:
            new = msgspec.structs.replace(before, starts=starts, sent=max(sent, before.sent))
        else:
            new = _Ended(job.start, job.end, starts, time, job.run, sent)
        self._ended.put(job.key, new)

    def _store(self, known: _Open) -> None:
        key = known.job.key
        table, other = (
            (self._running, self._pending) if known.start else (self._pending, self._running)
        )
        other.pop(key)
        table.put(key, known)

    def _forget(self, key: Key) -> None:
        self._pending.pop(key)
        self._running.pop(key)

    def _emit(self, function: Function, job: Job, time: int, before: int = 0) -> int:
        """Add an event; return when it will be sent. The previous one was sent at `before`."""
        now = self.clock()
        group = self._events.setdefault(job.key, [])
        if group:
            not_before = group[-1].not_before
        else:
            ended = self._ended.get(job.key)
            before = max(before, ended.sent if ended else 0)
            not_before = min(before, now) + self.delay if before + self.delay > now else 0
        group.append(JobEvent(function, job, time, not_before))
        return max(now, not_before)


def _table(state: StateStore, name: str, value: type[V], maximum: int) -> StateTable[Key, V]:
    """Create a table; its values are JSON, which can represent integers of any size."""
    return state.table(
        name,
        tuple[str, int],
        value,
        maximum=maximum,
        encode=msgspec.json.encode,
        decode=msgspec.json.Decoder(value).decode,
    )


def _follows(job: Job, time: int, ended: _Ended) -> bool:
    """Return whether a record describes a later run than the one that ended."""
    if _is_shifted(job, ended):
        return False
    if job.start:
        return job.start > ended.end or (job.start > ended.start and job.run > ended.run)
    return time > ended.time and not job.has_ended


def _is_unseen(job: Job, ended: _Ended) -> bool:
    is_apart = job.end <= ended.start or job.start > ended.end
    return is_apart and job.start not in ended.starts and not _is_shifted(job, ended)


def _is_shifted(job: Job, ended: _Ended) -> bool:
    """Return whether a record describes the run that ended, shifted by a different UTC offset."""
    shift = job.start - ended.start
    return abs(shift) in CLOCK_CHANGES and job.end - ended.end == shift


def _never_reported(job: Job) -> str:
    """Return why a job that ran and ended has no events; empty where it has, or has not ended."""
    if not (job.has_ended and job.start) or job.can_be_reported:
        return ""
    if not job.user:
        return "name no user"
    # One that was cancelled before it started may have a start, but no nodes.
    return "name no nodes" if job.state == "completed" and not job.nodes else ""


def is_same_job(one: int, other: int) -> bool:
    """Return whether two submissions of an id can be of one job; an unknown one, 0, can."""
    return not one or not other or abs(one - other) <= REUSED


def _precedes(job: Job, known: _Open) -> bool:
    """Return whether a record describes a run that ended before the known one started."""
    return 0 < job.start < known.start and 0 < job.end <= known.start


def _is_other_job(job: Job, known: _Open) -> bool:
    """Return whether a record describes another job than the known one, which has not ended."""
    before = known.job
    if not known.start:
        return before.has_ended and max(job.start, job.submit) > before.end
    is_later = job.state != PENDING and job.start > known.start
    return is_later and not is_same_job(before.submit, job.submit)


def _merged(known: _Open, job: Job, time: int) -> Job:
    """Return what is known of a job, with a record of it, perhaps of one of its earlier runs."""
    before = known.job
    has_run_ended = job.has_ended or job.state == REQUEUED
    if known.start and has_run_ended and 0 < job.start < before.start >= job.end:
        return before  # the run before
    if job.has_ended and before.state in (PENDING, REQUEUED):
        if job.state in RUN_AGAIN and job.start and _waits_again(known, job, time):
            job = msgspec.structs.replace(job, state=REQUEUED)
        elif known.start and before.end and (not job.start or _never_ran(job)):
            job = msgspec.structs.replace(job, start=0, end=before.end)
    is_newer = time >= known.time or (has_run_ended and job.start == before.start)
    older, newer = (before, job) if is_newer else (job, before)
    merged = older.updated(newer)
    is_next_run = 0 < older.start < newer.start
    return msgspec.structs.replace(merged, end=newer.end) if is_next_run else merged


def _waits_again(known: _Open, job: Job, time: int) -> bool:
    """Return whether a job that is pending is so after a run that ended, not before it."""
    before = known.job
    return job.start <= before.start or job.submit < before.submit or time == known.time


def _never_ran(job: Job) -> bool:
    """Return whether a job was cancelled while it waited: sacct then prints that as its start."""
    return job.state == "cancelled" and job.start == job.end


RECALL_DELAY = 2 * 10**9
"""Minimum time in nanoseconds for which a message restored after a crash is held back."""

Held = tuple[Message, int]
"""A message, and the time in nanoseconds since the epoch until which it is held back, or 0."""


class Outbox:
    """Messages that are not yet known to be stored downstream.

    Feeds of a translator are numbered from 1 in each process. With a ``StateStore`` that has a file
    the messages survive a crash in three steps:

    1. A feed's messages are written, with the state that they depend on, in one transaction before
       the feed returns.
    2. When the pipe reports that they were written downstream, they are removed, durably.
    3. Only then is the batch acknowledged upstream.

    After a crash the remaining messages are returned again, byte for byte, with the first feed, or
    held back again. So nothing is lost; a message sent twice was written before 2., and a broker
    recognises it by its message id.
    """

    def __init__(self, state: StateStore, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.feed = 0
        self.clock = clock
        self._state = state
        self._made = state.table("made", int, list[Held], maximum=2**63)
        self._committed = state.table("committed", int, int, maximum=1)
        self._held: list[tuple[int, int, Message]] = []  # time, feed, message
        self._is_open = False

    @property
    def oldest_held(self) -> int | None:
        return min((feed for _, feed, _ in self._held), default=None)

    def put(self, messages: Iterable[Held]) -> list[Message]:
        """End a feed with its output; return what is to be sent now, the oldest first.

        Raises ConfigError or UnavailableError if the state cannot be read or written.
        """
        now = self.clock()
        made = [*self._take_uncommitted(now), *messages]
        self.feed += 1
        send = self._release(now)
        for message, not_before in made:
            if not_before > now:
                self._held.append((not_before, self.feed, message))
            else:
                send.append(message)
        if made and self._state.is_persistent:
            self._made.put(self.feed, made)
        self._state.commit(is_durable=False)
        return send

    def flush(self) -> list[Message]:
        return self._release(2**63)

    def commit(self, feed: int) -> None:
        """Remove the output up to a feed: it is stored downstream.

        Raises UnavailableError if that cannot be written.
        """
        for number in [number for number in self._made if number <= feed]:
            self._made.pop(number)
        self._committed.put(0, feed)  # a change, so that the feed's state becomes durable
        self._state.commit(is_durable=True)

    def _release(self, now: int) -> list[Message]:
        """Take out messages that need no longer be held back, in order."""
        due = [message for not_before, _, message in self._held if not_before <= now]
        if due:
            self._held = [held for held in self._held if held[0] > now]
        return due

    def _take_uncommitted(self, now: int) -> list[Held]:
        """Take out, once, what the previous process did not commit."""
        if self._is_open:
            return []
        self._is_open = True
        left = [
            (message, max(not_before, now + RECALL_DELAY) if not_before else 0)
            for _, made in self._made.items()
            for message, not_before in made
        ]
        for number in list(self._made):
            self._made.pop(number)
        return left
