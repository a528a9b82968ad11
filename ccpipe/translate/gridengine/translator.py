"""Accounting events to job events: the translator of the recipe ``bridges/gridengine.toml``.

With a `state` file it continues after SIGKILL at any time: see ``jobs.Outbox``. Lines that come
again make nothing.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from ccpipe.config import Duration, Site
from ccpipe.errors import DataError
from ccpipe.formats.gridengine.event import from_event, is_event
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.jobs import RUNNING, Job, Lifecycle, Outbox, function_of, read_event
from ccpipe.jobs import message as job_message
from ccpipe.message import Message
from ccpipe.pipeline import Translator
from ccpipe.pipeline.state import StateStore
from ccpipe.telemetry import Telemetry
from ccpipe.translate.gridengine import job_log
from ccpipe.translate.gridengine.assembler import Assembler, JobRecords, is_same_job
from ccpipe.translate.gridengine.events import (
    MAX_ARRAY_TASKS,
    SECOND,
    Mapping,
    finished_job,
    logged_job,
    metrics,
)

log = logging.getLogger(__name__)


class AccountingJobs(Translator):
    """Puts accounting records together and reports which jobs started and stopped.

    A job's start is sent with its stop, unless a ``job_log`` line or another source reported it
    while the job ran. Other events pass through unchanged.
    """

    takes = gives = Messages
    is_stateful = True

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
        quiet: Duration = Duration(7 * 86400),
        stop_delay: Duration = Duration(2),
        live: bool = False,
        state: str = "",
    ) -> None:
        """Take what to emit, and what the records do not say.

        Parameters
        ----------
        emit
            ``events``: start_job and stop_job; ``metrics``: those of ``MEASURES``; ``records``:
            the accounting events as they came, each once.
        sub_cluster, short_hostnames, array_factor, project, threads_per_slot, per_slot, shared
            See ``Mapping``.
        command_line
            Whether to send the command line, where the source sent it.
        start_node
            The node of a start from the reporting file, which does not name nodes.
        quiet
            Time without a further run after which a job that was to run again has ended.
        stop_delay
            Time between a start and a stop that are known at different times; see ``Lifecycle``.
        live
            Whether another source, such as ``qstat``, sends starts while jobs run, and they come
            along here: only the stop is then sent. Job events that come are not passed on, so
            that source and sink may be one bus.
        state
            A file, on a local disk, that keeps what waits and what was sent. Without it, waiting
            jobs are sent as they are when the process ends, and are lost when it is killed.

        """
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
        self._rejected: list[tuple[Message, str]] = []
        """Accounting events that hold no record, and why."""
        self._state = StateStore(state)
        telemetry = telemetry or Telemetry()
        self.assembler = Assembler(
            quiet=round(quiet * SECOND),
            state=self._state,
            count=partial(telemetry.count, telemetry.left_out),
        )
        self._lifecycle = Lifecycle(self._state, delay=round(stop_delay * SECOND))
        self._outbox = Outbox(self._state)
        self._is_open = self._is_warned = False

    @property
    def oldest_held(self) -> int | None:
        """The oldest feed of which a stop is held back; see ``Translator``."""
        return self._outbox.oldest_held

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Return the events of jobs that started or ended, and other events unchanged."""
        self._open()
        passed: list[Message] = []
        made: list[Message] = []
        for message in records:
            if self.live and (message.name, message.field) == ("job", "event"):
                self._note_start(message)
            elif is_event(message) or job_log.is_event(message):
                made += self._accounting(message)
            else:
                passed.append(message)
        return passed + self._put(made)

    def take_rejected(self) -> list[tuple[Any, str]]:
        """Return what could not be translated since the last call, with reasons."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def flush(self) -> Sequence[Message]:
        """Return what is held back; without a state also the jobs that were to run again."""
        if self._state.is_persistent:
            return self._outbox.flush()
        found = self._put(self._ended(self.assembler.flush()))
        return found + self._outbox.flush()

    def commit(self, feed: int) -> None:
        """Forget the output up to a feed: it is stored downstream; see ``Translator``."""
        self._outbox.commit(feed)

    def _open(self) -> None:
        if not self._is_open:
            self._state.open()
            self.assembler.recall()
            self._is_open = True

    def _put(self, made: list[Message]) -> list[Message]:
        """End a feed; return its output that is to be sent now."""
        events = [
            (job_message(event.function, event.job), event.not_before)
            for event in self._lifecycle.take()
            if "events" in self.emit
        ]
        return self._outbox.put([*((message, 0) for message in made), *events])

    def _accounting(self, message: Message) -> list[Message]:
        """Process an accounting event; return it and the metrics of the jobs that it ends."""
        try:
            found = self._record(message) if is_event(message) else self._log(message)
        except DataError as error:
            self._rejected.append((message, str(error)))
            return []
        if found is None:
            return []
        return [self._with_time(message)] * ("records" in self.emit) + found

    def _with_time(self, message: Message) -> Message:
        """Give a record of a run that never started the time of its neighbours.

        cc-backend drops all lines of a payload from the first one on that has no time.
        """
        if message.time:
            return message
        latest = self.assembler.latest or time.time_ns()
        return msgspec.structs.replace(message, time=latest)

    def _record(self, message: Message) -> list[Message] | None:
        """Process a record; None if it is repeated."""
        record = from_event(message)
        if self.assembler.is_repeated(record.origin):
            return None
        return self._ended(self.assembler.add(record))

    def _log(self, message: Message) -> list[Message] | None:
        """Process a ``job_log`` line; None if it is repeated."""
        reported = job_log.from_event(message)
        if self.assembler.is_repeated(reported.origin):
            return None
        if reported.log.event == job_log.DELETED:
            return self._ended(self.assembler.delete(reported.key, reported.log.time))
        self._start(reported)
        return []

    def _start(self, reported: job_log.LoggedEvent) -> None:
        """Add a start reported by a line, unless it is a later run of a started job."""
        line = reported.log
        submitted = line.submission_time or None
        if self._started(self.mapping.job_id(*reported.key), submitted) is not None:
            return
        first = self.assembler.first_start(reported.key, submitted) or line.time
        self._warn_of_nodes()
        self._lifecycle.add(logged_job(line, min(first, line.time), self.mapping), line.time)

    def _warn_of_nodes(self) -> None:
        """Warn once that cc-backend cannot assign an unknown node to a subcluster."""
        if not self._is_warned and not self.mapping.sub_cluster and "events" in self.emit:
            log.warning(
                "starts from the reporting file name the node %r: cc-backend refuses them unless "
                "it knows that node, or sub_cluster is configured", self.mapping.start_node,
            )  # fmt: skip
        self._is_warned = True

    def _ended(self, jobs: Iterable[JobRecords]) -> list[Message]:
        """Add jobs that ended; return their metrics."""
        found: list[Message] = []
        for records in jobs:
            job = finished_job(records, self.mapping)
            started = self._started(job.id, records.last.submission_time)
            if started is not None:  # an end that no record tells is the start
                end = max(records.end or 0, started.start)
                job = msgspec.structs.replace(job, start=started.start, end=end)
            if job.start:
                self._lifecycle.add(job, job.end)
            if "metrics" in self.emit:
                found += metrics(records, self.mapping)
        return found

    def _started(self, id_: int, submitted: int | None) -> Job | None:
        """Return a job whose start was sent and that these records continue."""
        job = self._lifecycle.started(self.mapping.cluster, id_)
        if job is None or not is_same_job(job.submit or None, submitted):
            return None
        return job

    def _note_start(self, message: Message) -> None:
        """Remember a start that another source sent; ours, which come back, change nothing."""
        try:
            job = read_event(message)
        except DataError:
            return  # whoever is to store it reports it
        if job.cluster == self.mapping.cluster and function_of(message) == "start_job":
            start = Job(cluster=job.cluster, id=job.id, state=RUNNING, start=job.start)
            self._lifecycle.note_start(start, job.start)
