"""Records of Grid Engine to job events: the translator of the recipe ``bridges/gridengine.toml``.

With a `state_file` it continues after SIGKILL at any time: see ``jobs.Outbox``. Repeated lines are
ignored.

docs/gridengine/jobs.md describes the output for a job's records; the ``Assembler`` joins its runs
and tasks by these rules:

- The key is (job number, array task): every task of an array is a job.
- Records of PE tasks wait for the record of their master, which is usually last. One that
  arrives after it is late: it is counted and dropped.
- A record with which the job does not end (rescheduled, migrated, in error state, never started)
  waits for the next run, which then has it among ``earlier``. After `rerun_timeout` without one,
  by the records' own times, the job is returned as it is; after `SETTLE` where it was deleted. A
  run whose record arrives after that is a job of its own.
- Job numbers are used again: records whose submissions lie further apart than ``REUSED`` belong
  to different jobs.
- A record with the same file and offset is a repetition; one with equal content is not.
- Intermediate records of the reporting file contain only part of the usage, and are dropped.

All of it is in tables of a ``StateStore``, so that it outlives the process where that has a file.
"""

import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgspec

from ccpipe.config import Duration, Site
from ccpipe.errors import DataError
from ccpipe.formats.gridengine import Accounting
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.jobs import RUNNING, Job, Jobs, Lifecycle, Outbox, is_same_job, read_event
from ccpipe.jobs import message as job_message
from ccpipe.message import Message
from ccpipe.pipeline import HoldingTranslator, Scope
from ccpipe.pipeline.state import StateStore
from ccpipe.telemetry import Telemetry
from ccpipe.translate.gridengine.jobs import (
    MAX_ARRAY_TASKS,
    SECOND,
    JobRuns,
    Mapping,
    from_event,
    is_event,
    job_of,
    metrics,
    to_event,
)

log = logging.getLogger(__name__)

DAY = 86400 * 10**9
SETTLE = 600 * 10**9
"""Time in nanoseconds within which the last records of a deleted job may still arrive."""

Key = tuple[int, int]
"""Job number and array task; the task is 0 if the job is not an array."""


@dataclass(slots=True)
class _Waiting:
    """A job that has not ended."""

    runs: list[Job] = field(default_factory=list)
    tasks: list[Job] = field(default_factory=list)
    seen: int = 0
    """The latest time of any record when the last of these arrived."""
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


class _WaitingRecord(msgspec.Struct, frozen=True):
    """A run or task that waits, without its raw record."""

    job: Job
    seen: int
    """The latest time of any record when it arrived."""


class Assembler:
    """Joins the records of a job; keeps at most `maximum` jobs that have not ended.

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
        """Create the tables; call ``load()`` after the store was opened.

        After `quiet` nanoseconds without a further run a job has ended with its last one. `count`
        is called for each record that is dropped, with the reason.
        """
        self.quiet = quiet
        self.maximum = maximum
        self._report = count
        state = state or StateStore()
        self._records = state.table(  # as JSON, which has integers of any size
            "waiting", tuple[int, int, int], _WaitingRecord, maximum=2**63,
            encode=msgspec.json.encode, decode=msgspec.json.Decoder(_WaitingRecord).decode,
        )  # fmt: skip
        self._ended = state.table("assembled", tuple[int, int], int, maximum=maximum)
        self._deleted = state.table("deleted", tuple[int, int], int, maximum=maximum)
        self._places = state.table("places", tuple[str, int], bool, maximum=maximum)
        self._waiting: OrderedDict[Key, _Waiting] = OrderedDict()
        self._count = 0
        self.latest = 0
        """The latest time of any record, in nanoseconds."""

    def load(self) -> None:
        for place, held in self._records.items():
            self._hold(place, held)
            self._count = max(self._count, place[2])
            self._advance(held.seen)
        self._advance(max((end for _, end in self._ended.items()), default=0))

    def feed(self, jobs: Iterable[Job]) -> Iterator[JobRuns]:
        """Process records in the order of the file; yield the jobs that have ended."""
        for job in jobs:
            if not self.is_repeated(job):
                yield from self.add(job)

    def flush(self) -> Iterator[JobRuns]:
        while self._waiting:
            yield from self._return_incomplete(next(iter(self._waiting)))

    def is_repeated(self, job: Job) -> bool:
        """Return whether a line was seen before, and remember it; never true without a file."""
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

        The last records of a deleted job may arrive later, so it is returned only after records
        that are `SETTLE` newer.
        """
        if isinstance(job.raw, JobLog):
            self._deleted.put(key_of(job), job.end)
            yield from self._return_due()
        elif job.state != RUNNING:  # that is usage since midnight
            yield from self._add(job)
            self._advance(job.end)
            yield from self._return_due()

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
            yield from self._return_incomplete(key)
            waiting = None
        if job.step and waiting is None and self._is_late(job):
            self._report("late")
            log.info("job %d, task %d: PE task %s is late: dropped", *key, job.step)
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
        self._advance(job.end)
        self._count += 1
        held = _WaitingRecord(msgspec.structs.replace(job, raw=None), self.latest)
        self._hold((*key, self._count), held)
        self._records.put((*key, self._count), held)

    def _hold(self, place: tuple[int, int, int], held: _WaitingRecord) -> None:
        waiting = self._waiting.setdefault(place[:2], _Waiting())
        self._waiting.move_to_end(place[:2])
        waiting.add(held.job)
        waiting.seen = held.seen
        waiting.places.append(place)

    def _return_due(self) -> Iterator[JobRuns]:
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if len(self._waiting) <= self.maximum and self.latest - oldest.seen < self.quiet:
                break
            yield from self._return_incomplete(key)
        for which, deleted in [*self._final_deletions()]:
            self._deleted.pop(which)
            for key in self._waiting_of(which):
                if self._waiting[key].started <= deleted:
                    yield from self._return_incomplete(key)

    def _advance(self, timestamp: int) -> None:
        """Advance the time, but not into the future: such a record is damaged."""
        self.latest = max(self.latest, min(timestamp, time.time_ns() + DAY))

    def _forget(self, key: Key) -> _Waiting:
        waiting = self._waiting.pop(key, None) or _Waiting()
        for place in waiting.places:
            self._records.pop(place)
        return waiting

    def _return_incomplete(self, key: Key) -> Iterator[JobRuns]:
        waiting = self._forget(key)
        if waiting.runs:
            yield JobRuns(waiting.runs[-1], tuple(waiting.tasks), tuple(waiting.runs[:-1]))
        else:
            for _ in waiting.tasks:
                self._report("orphaned")
            log.info("job %d, task %d: PE tasks without a master: dropped", *key)

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


class AccountingJobs(HoldingTranslator[Any, Lines]):
    """Puts records together and reports which jobs started and stopped.

    A job's start is sent with its stop, unless a ``job_log`` line or another source reported it
    while the job ran.
    """

    takes: type[Jobs] | type[Lines] = Jobs
    gives = Lines
    scope = Scope.CLUSTER

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry | None = None,
        emit: Sequence[Literal["records", "events", "metrics"]] = ("events",),
        sub_cluster: str = "",
        short_hostnames: bool = True,
        array_factor: int = MAX_ARRAY_TASKS,
        project: Literal["project", "department", "account"] = "project",
        threads_per_slot: int = 1,
        per_slot: bool = True,
        shared: Literal["none", "single_user", "multi_user"] = "none",
        command_line: bool = False,
        start_node: str = "unknown",
        rerun_timeout: Duration = Duration(7 * 86400),
        stop_delay: Duration = Duration(2),
        live: bool = False,
        state_file: str = "",
    ) -> None:
        """Configure the output, and what the records do not contain.

        Parameters
        ----------
        emit
            ``events``: start_job and stop_job; ``metrics``: the metrics of ``MEASURES``;
            ``records``: the records as events of class ``accounting``, each once.
        sub_cluster, short_hostnames, array_factor, project, threads_per_slot, per_slot, shared
            See ``Mapping``.
        command_line
            Whether to send the command line, where the source sent it.
        start_node
            The node of a start from the reporting file, which does not name nodes.
        rerun_timeout
            Time without a further run after which a job that was to run again has ended.
        stop_delay
            Time between a start and a stop that are known at different times; see ``Lifecycle``.
        live
            Whether records arrive as events from the bus, rather than from the source
            ``gridengine_accounting``, and with them the starts that another source, such as
            ``qstat``, sends while jobs run: only the stop is then sent. Incoming job events are not
            passed on, so that source and sink may be one bus; other events pass through unchanged.
        state_file
            A file, on a local disk, that keeps what waits and what was sent. Without it, waiting
            jobs are sent as they are when the process ends, and are lost when it is killed.

        """
        if live:
            self.takes = Lines
        self.site = site
        self.mapping = Mapping(
            cluster=site.cluster,
            sub_cluster=sub_cluster,
            short_hostnames=short_hostnames,
            array_factor=array_factor,
            project=project,
            threads_per_slot=threads_per_slot,
            per_slot=per_slot,
            shared=shared,
            command_line=command_line,
            start_node=start_node,
        )
        self.emit = frozenset(emit)
        self.live = live
        self._rejected: list[RejectedLine] = []
        """Accounting events without a record."""
        self._state = StateStore(state_file)
        telemetry = telemetry or Telemetry()
        self.assembler = Assembler(
            quiet=round(rerun_timeout * SECOND),
            state=self._state,
            count=partial(telemetry.count, telemetry.dropped_records),
        )
        self._lifecycle = Lifecycle(self._state, delay=round(stop_delay * SECOND))
        self._outbox = Outbox(self._state)
        self._is_open = self._is_warned = False

    def oldest_held(self) -> int | None:
        """Return the oldest feed of which a stop is held back; see ``HoldingTranslator``."""
        return self._outbox.oldest_held

    def feed(self, records: Jobs | Lines) -> Lines:
        self._open()
        passed: list[Message] = []
        made: list[Message] = []
        for job in self._read(records, passed):
            made += self._add(job)
        rejected, self._rejected = self._rejected, []
        return to_lines(passed + self._put(made), rejected)

    def flush(self) -> Lines:
        """Return what is held back; without a state also the jobs that were to run again."""
        if self._state.is_persistent:
            return to_lines(self._outbox.flush())
        found = self._put(self._ended(self.assembler.flush()))
        return to_lines(found + self._outbox.flush())

    def commit(self, feed: int) -> None:
        self._outbox.commit(feed)

    def _open(self) -> None:
        if not self._is_open:
            self._state.open()
            self.assembler.load()
            self._is_open = True

    def _put(self, made: list[Message]) -> list[Message]:
        """End a feed; return its output that is to be sent now."""
        events = [
            (job_message(event.function, event.job), event.not_before)
            for event in self._lifecycle.take()
            if "events" in self.emit
        ]
        return self._outbox.put([*((message, 0) for message in made), *events])

    def _read(self, records: Jobs | Lines, passed: list[Message]) -> Iterator[Job]:
        """Yield jobs, also from events of the bus; add other messages to `passed`.

        An unreadable start is skipped: the bridge that stores it reports it.
        """
        for record in records:
            if isinstance(record, Job):
                yield record
            elif is_event(record):
                try:
                    yield job_of(from_event(record), self.mapping.cluster)
                except DataError as error:
                    self._rejected.append(RejectedLine(0, 0, 0, str(error), original(record)))
            elif (record.name, record.field) != ("job", "event"):
                passed.append(record)
            elif record.tags.get("function") == "start_job":
                with contextlib.suppress(DataError):
                    yield read_event(record)

    def _add(self, job: Job) -> list[Message]:
        """Process a record; return it as an event, and the metrics of the jobs that it ends."""
        record = job.raw
        if not isinstance(record, Accounting | JobLog):
            self._note_start(job)
            return []
        if self.assembler.is_repeated(job):
            return []
        found: list[Message] = []
        if isinstance(record, JobLog) and record.is_start:
            self._start(job)
        else:
            found = self._ended(self.assembler.add(job))
        if "records" in self.emit:
            found.insert(0, self._event(record))
        return found

    def _event(self, record: Accounting | JobLog) -> Message:
        """Return a record as an event; one of a run that never started has the latest time.

        cc-backend drops all lines of a payload from the first one on that has no time.
        """
        site = self.site
        message = to_event(record, cluster=site.cluster, hostname=site.hostname)
        if message.time:
            return message
        return msgspec.structs.replace(message, time=self.assembler.latest or time.time_ns())

    def _start(self, job: Job) -> None:
        """Add a start reported by a line, unless it is a later run of a started job."""
        first = self.assembler.first_start(job) or job.start
        start = self.mapping.started(job, min(first, job.start))
        if self._started(start) is None:
            self._warn_of_unknown_node()
            self._lifecycle.add(start, job.start)

    def _warn_of_unknown_node(self) -> None:
        """Warn once that cc-backend cannot assign an unknown node to a subcluster."""
        if not self._is_warned and not self.mapping.sub_cluster and "events" in self.emit:
            log.warning(
                "starts from the reporting file name the node %r: cc-backend refuses them unless "
                "it knows that node, or sub_cluster is configured", self.mapping.start_node,
            )  # fmt: skip
        self._is_warned = True

    def _ended(self, jobs: Iterable[JobRuns]) -> list[Message]:
        """Add jobs that ended; return their metrics."""
        found: list[Message] = []
        for runs in jobs:
            job = runs.finished(self.mapping)
            started = self._started(job)
            if started is not None:  # an unknown end is taken as the start
                end = max(runs.end, started.start)
                job = msgspec.structs.replace(job, start=started.start, end=end)
            if job.start:
                self._lifecycle.add(job, job.end)
            if "metrics" in self.emit:
                found += metrics(runs, self.mapping)
        return found

    def _started(self, job: Job) -> Job | None:
        """Return the job whose start was sent and that a record continues."""
        started = self._lifecycle.started(*job.key)
        return started if started and is_same_job(started.submit, job.submit) else None

    def _note_start(self, job: Job) -> None:
        """Remember a start that another source sent; our own, received again, change nothing."""
        if job.cluster == self.mapping.cluster:
            start = Job(cluster=job.cluster, id=job.id, state=RUNNING, start=job.start)
            self._lifecycle.note_start(start, job.start)
