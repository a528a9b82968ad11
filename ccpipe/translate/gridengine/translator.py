"""Accounting events to job events: the translator of the recipe ``bridges/gridengine.toml``.

With a `state` file it survives SIGKILL at any moment, in three steps:

1. What it knows and what it gives are written, in one transaction, before ``feed`` returns.
2. When the pipe says that it was written downstream, it is forgotten, and all is made safe from
   power cuts too: once for a whole write, for that takes milliseconds.
3. Only then are the batches acknowledged upstream.

After a crash it first gives again, byte for byte, what nobody said was written; lines that come
again give nothing. So no event is lost, and one is doubled only where the process died between
2. and the write before it: then a broker knows it by its message id.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from ccpipe.config import Duration, Site
from ccpipe.errors import DataError
from ccpipe.formats.gridengine.event import from_event, is_event
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Translator
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.gridengine import job_log
from ccpipe.translate.gridengine.assembler import Assembler, Job
from ccpipe.translate.gridengine.events import (
    MAX_ARRAY_TASKS,
    SECOND,
    Mapping,
    events,
    metrics,
    start_logged,
    stop_of,
)

log = logging.getLogger(__name__)

_DAY = 86400
_REMEMBERED = 100_000


class _Running(msgspec.Struct, frozen=True):
    """A job whose start was sent, and not its stop."""

    second: int
    """That of its start."""
    submitted: int | None = None
    """Nanoseconds since the epoch."""


class AccountingJobs(Translator):
    """Puts accounting records together and says which jobs started and stopped.

    A start is told with the stop, unless a ``job_log`` line or somebody else told of it while the
    job ran. What is no accounting event passes through as it is.
    """

    takes = gives = Messages

    def __init__(
        self,
        *,
        site: Site,
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
        live: bool = False,
        state: str = "",
    ) -> None:
        """Take what to emit, and what the records do not say: see ``jobs_to_events.Mapping``.

        Parameters
        ----------
        emit
            ``events``: start_job and stop_job; ``metrics``: those of ``MEASURES``; ``records``:
            the accounting events too, as they came, each once.
        sub_cluster, short_hostnames, array_factor, project, threads_per_slot, per_slot, shared
            See ``Mapping``.
        command_line
            Whether to send the command line, where the source has sent it.
        start_node
            The node of a start from the reporting file, which does not say where it was.
        quiet
            After so long without a further run a job that was to run again has ended.
        live
            Whether somebody else, such as the source ``qstat``, sends starts while jobs run, and
            they come along here: only the stop is then sent. Job events that come are not passed
            on, so that source and sink may be one bus.
        state
            A file, on a local disk, that keeps what waits and what was sent. Without it a process
            that ends hands over the jobs that wait, and one that is killed forgets them.

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
        self._feeds = 0
        self._state = StateStore(state)
        self.assembler = Assembler(quiet=round(quiet * 10**9), state=self._state)
        self._started = self._state.table("started", int, int, maximum=_REMEMBERED)
        self._running = self._state.table("running", int, _Running, maximum=_REMEMBERED)
        self._given = self._state.table("given", int, list[Message], maximum=2**63)
        self._written = self._state.table("written", int, int, maximum=1)
        self._is_open = self._is_warned = False

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Return the events of jobs that started or ended, and what is no accounting."""
        given = self._open()
        found: list[Message] = []
        for message in records:
            if self.live and (message.name, message.field) == ("job", "event"):
                self._note_start(message)
            elif is_event(message) or job_log.is_event(message):
                given += self._accounting(message)
            else:
                found.append(message)
        self._feeds += 1
        if given and self._state.is_persistent:
            self._given.put(self._feeds, given)
        self._state.commit(is_durable=False)
        return found + given

    def take_rejected(self) -> list[tuple[Any, str]]:
        """Return what could not be translated since the last call, with reasons."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def flush(self) -> Sequence[Message]:
        """Return the events of jobs that were to run again; none where they are kept."""
        if self._state.is_persistent:
            return []
        return self._ended(self.assembler.flush())

    def commit(self, feed: int) -> None:
        """Forget what was returned up to a feed: it is safe downstream; see ``Translator``."""
        for number in [number for number in self._given if number <= feed]:
            self._given.pop(number)
        self._written.put(0, feed)  # also where nothing was given: what was read must be safe
        self._state.commit(is_durable=True)

    def _open(self) -> list[Message]:
        """Once, recall what was kept; return what was given and perhaps never written."""
        if self._is_open:
            return []
        self._state.open()
        self.assembler.recall()
        self._is_open = True
        kept = [message for _, messages in self._given.items() for message in messages]
        for number in list(self._given):
            self._given.pop(number)
        return kept

    def _accounting(self, message: Message) -> list[Message]:
        """Return what comes of an accounting event."""
        try:
            found = self._record(message) if is_event(message) else self._log(message)
        except DataError as error:
            self._rejected.append((message, str(error)))
            return []
        if found is None:
            return []
        return [message] * ("records" in self.emit) + found

    def _record(self, message: Message) -> list[Message] | None:
        """Return the events of the jobs that a record ends; None where it came before."""
        record = from_event(message)
        if self.assembler.is_repeated(record.origin):
            return None
        return self._ended(self.assembler.add(record))

    def _log(self, message: Message) -> list[Message] | None:
        """Return the start that a ``job_log`` line tells of; None where the line came before."""
        reported = job_log.from_event(message)
        if self.assembler.is_repeated(reported.origin):
            return None
        if reported.log.event == job_log.DELETED:
            return self._ended(self.assembler.delete(reported.key, reported.log.time))
        return self._start(reported)

    def _start(self, reported: job_log.Told) -> list[Message]:
        """Return the start of a job, if this is the first line that tells of it."""
        line, name = reported.log, self.mapping.job_id(*reported.key)
        submitted = line.submission_time or None
        is_running = self._pop_running(name, submitted)
        if is_running is not None:
            self._running.put(name, is_running)
            return []
        if not line.owner or self.assembler.has_ended(reported.key, line.time):
            return []
        first = self.assembler.first_start(reported.key, submitted) or line.time
        second = min(first, line.time) // SECOND
        if not self._is_first(name, second):
            return []
        self._warn_of_nodes()
        self._running.put(name, _Running(second, submitted))
        return [start_logged(line, second, self.mapping)] * ("events" in self.emit)

    def _warn_of_nodes(self) -> None:
        """Say once that cc-backend cannot find the subcluster of a node that it does not know."""
        if not self._is_warned and not self.mapping.sub_cluster:
            log.warning(
                "starts from the reporting file name the node %r: cc-backend refuses them unless "
                "it knows that node, or sub_cluster is configured", self.mapping.start_node,
            )  # fmt: skip
        self._is_warned = True

    def _ended(self, jobs: Iterable[Job]) -> list[Message]:
        found: list[Message] = []
        for job in jobs:
            if "events" in self.emit:
                found += self._events(job)
            if "metrics" in self.emit:
                found += metrics(job, self.mapping)
        return found

    def _events(self, job: Job) -> Iterable[Message]:
        name = self.mapping.job_id(*job.key)
        running = self._pop_running(name, job.last.submission_time)
        if running is not None:
            self._started.put(name, running.second)
            return [stop_of(job, running.second, self.mapping)]
        if job.start is None or not self._is_first(name, job.start // SECOND):
            return []
        return events(job, self.mapping)

    def _note_start(self, message: Message) -> None:
        """Remember a start of somebody else's; our own, which come back on the bus, are no news."""
        if message.tags.get("function") != "start_job":
            return
        try:
            start = msgspec.json.decode(str(message.value), type=_Start)
        except (msgspec.MsgspecError, UnicodeError):
            return  # it is not for us to complain
        before = self._started.get(start.jobId)
        is_known = before is not None and start.startTime - before < _DAY
        if start.cluster == self.mapping.cluster and not is_known:
            self._running.put(start.jobId, _Running(start.startTime))

    def _pop_running(self, name: int, submitted: int | None) -> _Running | None:
        """Take a job off those that run; one that had its number long before does not count."""
        running = self._running.pop(name)
        if running is None or self.assembler.is_near(running.submitted, submitted):
            return running
        log.warning("job %d started, its number was used again, and its end was never told", name)
        return None

    def _is_first(self, name: int, second: int) -> bool:
        """Say whether a job's id was not used within the day in which cc-backend refuses it."""
        before = self._started.get(name)
        if before is not None and second - before < _DAY:
            log.warning("job %d started again within a day: no event", name)
            return False
        self._started.put(name, second)
        return True


class _Start(msgspec.Struct, frozen=True):
    """What of a ``start_job`` tells which job it is."""

    jobId: int  # noqa: N815 - cc-backend's key
    cluster: str
    startTime: int  # noqa: N815
