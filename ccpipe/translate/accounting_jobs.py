"""Accounting events to job events: the translator of the recipe ``bridges/gridengine.toml``."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ccpipe.config import Duration, Site
from ccpipe.errors import DataError
from ccpipe.formats.gridengine import Accounting
from ccpipe.formats.gridengine.event import from_event, is_event
from ccpipe.message import Message
from ccpipe.pipeline import Records
from ccpipe.translate.accounting_to_jobs import Assembler, Job
from ccpipe.translate.jobs_to_events import MAX_ARRAY_TASKS, Mapping, events, metrics

log = logging.getLogger(__name__)

_DAY = 86400 * 10**9
_REMEMBERED = 100_000


class AccountingJobs:
    """Puts accounting records together and says which jobs started and stopped, both at the end.

    What is no accounting event passes through as it is.
    """

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
        quiet: Duration = Duration(7 * 86400),
        live: bool = False,
    ) -> None:
        """Take what to emit, and what the records do not say: see ``jobs_to_events.Mapping``.

        Parameters
        ----------
        emit
            ``events``: start_job and stop_job; ``metrics``: those of ``MEASURES``; ``records``:
            the accounting events too, as they came.
        sub_cluster, short_hostnames, array_factor, project, threads_per_slot, per_slot, shared
            See ``Mapping``.
        command_line
            Whether to send the command line, where the source has sent it.
        quiet
            After so long without a further run a job that was to run again has ended.
        live
            Whether somebody else, such as the source ``qstat``, sends starts while jobs run, and
            they come along here: only the stop is then sent. Job events that come are not passed
            on, so that source and sink may be one bus.

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
        )
        self.emit = frozenset(emit)
        self.assembler = Assembler(quiet=round(quiet * 10**9))
        self.live = live
        self.refused: list[tuple[Message, str]] = []
        """Accounting events that hold no record, and why."""
        self._started: OrderedDict[int, int] = OrderedDict()
        self._running: OrderedDict[int, int] = OrderedDict()

    def feed(self, records: Records) -> Records:
        """Return the events of jobs that ended, and what is no accounting."""
        found: list[Message] = []
        for message in records:
            if self.live and (message.name, message.field) == ("job", "event"):
                self._note_start(message)
                continue
            if not is_event(message):
                found.append(message)
                continue
            if record := self._record(message):
                found += [message] * ("records" in self.emit)
                found += self._messages(self.assembler.feed([record]))
        return found

    def flush(self) -> Records:
        """Return the events of jobs that were to run again."""
        return self._messages(self.assembler.flush())

    def _record(self, message: Message) -> Accounting | None:
        try:
            return from_event(message)
        except DataError as error:
            self.refused.append((message, str(error)))
            return None

    def _messages(self, jobs: Iterable[Job]) -> list[Message]:
        found: list[Message] = []
        for job in jobs:
            if "events" in self.emit:
                name = self.mapping.job_id(*job.key)
                if (second := self._running.pop(name, None)) is not None:
                    found += events(job, self.mapping, started=second)
                elif self._is_first(job):
                    found += events(job, self.mapping)
            if "metrics" in self.emit:
                found += metrics(job, self.mapping)
        return found

    def _note_start(self, message: Message) -> None:
        """Remember a start of somebody else's; our own, which come back on the bus, are no news."""
        if message.tags.get("function") != "start_job":
            return
        try:
            start = msgspec.json.decode(str(message.value), type=_Start)
        except (msgspec.MsgspecError, UnicodeError):
            return  # it is not for us to complain
        own = self._started.get(start.jobId)
        if start.cluster == self.mapping.cluster and own is None:
            self._running[start.jobId] = start.startTime
            _forget(self._running)

    def _is_first(self, job: Job) -> bool:
        """Say whether a job's id was not used within the day in which cc-backend refuses it."""
        if job.start is None:
            return False
        name = self.mapping.job_id(*job.key)
        before = self._started.get(name)
        if before is not None and job.start - before < _DAY:
            log.warning("job %d started again within a day: no event", name)
            return False
        self._started[name] = job.start
        self._started.move_to_end(name)
        _forget(self._started)
        return True


class _Start(msgspec.Struct, frozen=True):
    """What of a ``start_job`` tells which job it is."""

    jobId: int  # noqa: N815 - cc-backend's key
    cluster: str
    startTime: int  # noqa: N815


def _forget(held: OrderedDict[int, int]) -> None:
    while len(held) > _REMEMBERED:
        held.popitem(last=False)
