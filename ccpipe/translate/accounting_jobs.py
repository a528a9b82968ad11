"""Accounting events to job events: the translator of the recipe ``bridges/gridengine.toml``."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal

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
        self._started: OrderedDict[int, int] = OrderedDict()

    def feed(self, records: Records) -> Records:
        """Return the events of jobs that ended, and what is no accounting."""
        found: list[Message] = []
        for message in records:
            record = self._record(message)
            if record is None or "records" in self.emit:
                found.append(message)
            if record is not None:
                found += self._messages(self.assembler.feed([record]))
        return found

    def flush(self) -> Records:
        """Return the events of jobs that were to run again."""
        return self._messages(self.assembler.flush())

    def _record(self, message: Message) -> Accounting | None:
        if not is_event(message):
            return None
        try:
            return from_event(message)
        except DataError as error:
            log.warning("an accounting event that cannot be read is passed on: %s", error)
            return None

    def _messages(self, jobs: Iterable[Job]) -> list[Message]:
        found: list[Message] = []
        for job in jobs:
            if "events" in self.emit and self._is_first(job):
                found += events(job, self.mapping)
            if "metrics" in self.emit:
                found += metrics(job, self.mapping)
        return found

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
        while len(self._started) > _REMEMBERED:
            self._started.popitem(last=False)
        return True
