"""Records of Grid Engine to job events: the translator of the recipe ``bridges/gridengine.toml``.

With a `state` file it continues after SIGKILL at any time: see ``jobs.Outbox``. Lines that come
again make nothing.
"""

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from ccpipe.config import Duration, Site
from ccpipe.errors import DataError
from ccpipe.formats.gridengine import Accounting
from ccpipe.formats.gridengine.event import from_event, is_event, tag, to_event
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.jobs import RUNNING, Job, Jobs, JobUsage, Lifecycle, Outbox, is_same_job, read_event
from ccpipe.jobs import message as job_message
from ccpipe.message import Message, metric
from ccpipe.pipeline import HoldingTranslator, Scope
from ccpipe.pipeline.state import StateStore
from ccpipe.telemetry import Telemetry
from ccpipe.translate.gridengine.assembler import Assembler, JobRuns
from ccpipe.translate.gridengine.jobs import MAX_ARRAY_TASKS, SECOND, Mapping, job_of

log = logging.getLogger(__name__)


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
            the records as events of class ``accounting``, each once.
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
            Whether records come as events from the bus, rather than from the source
            ``accounting``, and with them the starts that another source, such as ``qstat``, sends
            while jobs run: only the stop is then sent. Job events that come are not passed on, so
            that source and sink may be one bus; other events pass through unchanged.
        state
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
        """Accounting events that hold no record."""
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

    def _read(self, records: Jobs | Lines, passed: list[Message]) -> Iterator[Job]:
        """Yield jobs and those of events from the bus; add other messages to `passed`.

        A start that cannot be read is for whoever stores it to report.
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
            self._warn_of_nodes()
            self._lifecycle.add(start, job.start)

    def _warn_of_nodes(self) -> None:
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
            if started is not None:  # an end that no record tells is the start
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
        """Remember a start that another source sent; ours, which come back, change nothing."""
        if job.cluster == self.mapping.cluster:
            start = Job(cluster=job.cluster, id=job.id, state=RUNNING, start=job.start)
            self._lifecycle.note_start(start, job.start)


MEASURES = {
    "job_wallclock": "seconds from start to end",
    "job_wait": "seconds from submission to start",
    "job_cpu": "seconds of processor time, all tasks",
    "job_efficiency": "processor time over slots times wall clock",
    "job_slots": "slots",
    "job_mem": "GiB·s, all tasks",
    "job_io": "GiB read and written, all tasks",
    "job_maxrss": "bytes, the largest of any task",
    "job_maxvmem": "bytes, the largest of any task",
    "job_exit_status": "128 + signal where a signal ended it",
}
"""The metrics of a finished job."""


def metrics(job: JobRuns, mapping: Mapping) -> Iterator[Message]:
    """Yield the metrics of a job that ran, with the time of its end."""
    last = job.last
    if not last.start or not last.end:
        return
    used = [each.usage or JobUsage() for each in (last, *job.tasks)]
    wallclock = used[0].wallclock
    room = last.hwthreads * wallclock
    values: dict[str, float | None] = {
        "job_wallclock": wallclock,
        "job_wait": (last.start - last.submit) / SECOND if last.submit else None,
        "job_cpu": job.cpu,
        "job_efficiency": job.cpu / room if room else None,
        "job_slots": last.hwthreads,
        "job_mem": sum(each.memory for each in used),
        "job_io": sum(each.io for each in used),
        "job_maxrss": max(each.max_rss for each in used),
        "job_maxvmem": max(each.max_vmem for each in used),
        "job_exit_status": last.exit_code,
    }
    known = mapping.apply(last)
    tags = {
        "cluster": known.cluster,
        "hostname": known.nodes[0].hostname if known.nodes else "",
        "type": "node",
        "jobid": str(known.id),
        "user": last.user,
        "project": last.project,
        "queue": last.partition,
        "outcome": last.outcome,
    }
    tags = {key: tag(value) for key, value in tags.items() if value}
    for name, value in values.items():
        if value is not None:
            yield metric(name, value, time=last.end, tags=tags)
