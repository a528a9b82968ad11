"""Grid Engine's records as jobs, what a site adds to them, and their metrics and events.

The mapping of fields is in docs/gridengine/jobs.md.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal
from urllib.parse import quote

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine import Accounting, Outcome, encode_jsonl
from ccpipe.formats.gridengine.jsonl import parse_jsonl
from ccpipe.formats.gridengine.record import Origin, clean
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.gridengine.status import PendingTasks, Share
from ccpipe.jobs import RUNNING, Job, JobNode, JobUsage
from ccpipe.jobs.pending import MAX_TEXT, PendingJob, count_tasks
from ccpipe.message import Message, event, metric

SECOND = 10**9
MAX_ARRAY_TASKS = 1_000_000

STATES = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.KILLED: "failed",
    Outcome.TIMEOUT: "timeout",
    Outcome.CANCELLED: "cancelled",
    Outcome.REQUEUED: "preempted",
    Outcome.NODE_FAIL: "node_fail",
    Outcome.START_FAILED: "failed",
}
"""cc-backend's state for each outcome; see ``state_of`` for ``qdel``."""


def job_of(record: Accounting | JobLog, cluster: str) -> Job:
    """Return what a record or a ``job_log`` line reports of a job or of one of its PE tasks."""
    if isinstance(record, JobLog):
        return _logged(record, cluster)
    requests, slots = record.requests, max(record.slots, 1)
    is_array = record.task_number > 0
    metadata = {
        "account": record.account,
        "department": record.department,
        "group": record.group,
        "category": record.category,
        "submitTime": _seconds(record.submission_time),
        "submitCmdLine": record.submit_cmd_line,
        "pe": record.granted_pe,
        "failed": f"{record.failed}: {record.failure}",
        "deletedBy": record.deleted_by,
        "arid": str(record.arid or ""),
    }
    return Job(
        cluster=cluster,
        id=array_id(record.job_number, record.task_number),
        array_id=record.job_number if is_array else 0,
        array_task=record.task_number if is_array else None,
        step=clean(record.pe_taskid or ""),
        state=RUNNING if record.is_intermediate else state_of(record),
        outcome=str(record.outcome),
        runs_again=not record.is_final,
        name=clean(record.job_name),
        user=clean(record.owner),
        project=clean(record.project or ""),
        partition=clean(record.qname),
        submit=record.submission_time or 0,
        start=record.start_time or 0,
        end=record.end_time or 0,
        nodes=(JobNode(clean(record.hostname)),) if record.hostname else (),
        hwthreads=record.slots,
        accelerators=(requests.gpu or 0) * slots,
        memory=(requests.h_vmem or 0) * slots,
        walltime=math.ceil(requests.h_rt or 0),
        exit_code=record.exit_status,
        metadata={key: clean(text) for key, text in metadata.items() if text},
        usage=_usage(record),
        raw=record,
    )


def _logged(log: JobLog, cluster: str) -> Job:
    """Return a start, or a deletion; the deletion of a whole array has no task."""
    is_array = log.task_number > 0
    metadata = {
        "account": log.account,
        "department": log.department,
        "group": log.group,
        "submitTime": _seconds(log.submission_time),
    }
    return Job(
        cluster=cluster,
        id=array_id(log.job_number, log.task_number),
        array_id=log.job_number if is_array else 0,
        array_task=log.task_number if is_array else None,
        state=RUNNING if log.is_start else "cancelled",
        name=clean(log.job_name),
        user=clean(log.owner),
        project=clean(log.project or ""),
        submit=log.submission_time,
        start=log.time if log.is_start else 0,
        end=0 if log.is_start else log.time,
        metadata={key: clean(text) for key, text in metadata.items() if text},
        raw=log,
    )


def running_jobs(shares: Iterable[Share], cluster: str) -> list[Job]:
    """Put the shares of each job that runs together.

    With ``-g t`` and in qhost a parallel job has one MASTER share, which only names its host, and
    a SLAVE share for the slots of each host. A job without SLAVE is where its MASTER is.
    """
    groups: dict[tuple[int, int], list[Share]] = {}
    for share in shares:
        if share.start_time is not None and share.hostname:
            groups.setdefault((share.job_number, share.task_number), []).append(share)
    return [_running(group, cluster) for group in groups.values()]


def _running(shares: list[Share], cluster: str) -> Job:
    shares = sorted(shares, key=lambda share: share.role == "SLAVE")
    first = shares[0]
    slaves = [share for share in shares if share.role == "SLAVE"]
    return Job(
        cluster=cluster,
        id=array_id(first.job_number, first.task_number),
        array_id=first.job_number if first.task_number else 0,
        array_task=first.task_number or None,
        state=RUNNING,
        name=first.name,
        user=first.owner,
        partition=first.queue,
        start=min(share.start_time or 0 for share in shares),
        nodes=tuple(map(JobNode, dict.fromkeys(share.hostname for share in shares))),
        hwthreads=sum(share.slots for share in slaves or shares),
    )


_REASONS = {"E": "error", "h": "hold", "R": "restarted", "d": "deletion"}
"""Words of qstat(1) for the letters of a state that tell why a job is pending."""


def pending_jobs(rows: Iterable[PendingTasks], mapping: "Mapping") -> list[PendingJob]:
    """Return the jobs that wait; an array, whose tasks may be in several rows, is one."""
    found: dict[int, PendingJob] = {}
    for row in rows:
        tasks = max(1, count_tasks(row.tasks)) if row.tasks else 0
        if known := found.get(row.job_number):
            found[row.job_number] = msgspec.structs.replace(known, tasks=known.tasks + tasks)
            continue
        reasons = (word for letter, word in _REASONS.items() if letter in row.state)
        found[row.job_number] = PendingJob(
            cluster=mapping.cluster,
            id=row.job_number,
            user=row.owner[:MAX_TEXT],
            name=row.name[:MAX_TEXT],
            submit=(row.submission_time or 0) // SECOND,
            hwthreads=row.slots * mapping.threads_per_slot,
            tasks=tasks,
            reason=", ".join(reasons),
        )
    return list(found.values())


def array_id(job_number: int, task_number: int, factor: int = MAX_ARRAY_TASKS) -> int:
    """Return an id that no other job or array task has."""
    return job_number * factor + task_number if task_number > 0 else job_number


def state_of(record: Accounting) -> str:
    """Return cc-backend's state for how a run ended.

    Before OCS 9.1.2 records do not name who deleted a job: SIGKILL without a requested limit is
    taken for ``qdel``.
    """
    asked = record.requests
    limits = {"h_cpu", "s_cpu", "h_rss", "h_data", "h_stack", "h_fsize"} & asked.resources.keys()
    if (record.failed, record.exit_status) == (100, 137) and record.outcome is Outcome.KILLED:
        unlimited = asked.h_rt is None and asked.h_vmem is None and not limits
        return "cancelled" if unlimited else "failed"
    return STATES[record.outcome]


def _seconds(time: int | None) -> str:
    return str(time // SECOND) if time else ""


def _usage(record: Accounting) -> JobUsage:
    """Return what a run used: whole numbers of ``rusage`` as integers, all else as floats.

    The events of records have the same types: a store may refuse a metric whose type changes.
    """

    def known(container: str, name: str) -> float | None:
        amount = record.usage.get(container, {}).get(name)
        return float(amount) if isinstance(amount, int | float) else None

    wallclock, measured = known("rusage", "ru_wallclock"), known("eusage", "maxrss")
    return JobUsage(
        wallclock=None if wallclock is None else _whole(wallclock),
        cpu=known("eusage", "cpu"),
        user=known("rusage", "ru_utime"),
        system=known("rusage", "ru_stime"),
        max_rss=measured if measured == record.maxrss else _whole(record.maxrss) or None,
        max_vmem=known("eusage", "maxvmem"),
        memory=known("eusage", "mem"),
        io=known("eusage", "io"),
    )


def _whole(amount: float) -> float:
    if not math.isfinite(amount):
        return 0
    return int(amount) if float(amount).is_integer() else amount


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A site's choices for its jobs."""

    cluster: str
    sub_cluster: str = ""
    """Empty: cc-backend finds it by the nodes."""
    short_hostnames: bool = True
    """Whether nodes are named by the part before the first dot."""
    array_factor: int = MAX_ARRAY_TASKS
    """The id of an array's task is job number times this, plus task number."""
    project: Literal["project", "department", "account"] = "project"
    """The project of jobs that have none."""
    threads_per_slot: int = 1
    per_slot: bool = True
    """Whether memory and accelerators are requested by slot rather than by job."""
    shared: Literal["none", "single_user", "multi_user"] = "none"
    command_line: bool = False
    """Whether metaData includes ``submit_cmd_line``, which may contain secrets."""
    start_node: str = "unknown"
    """The node of starts from the reporting file, which does not name nodes."""

    def apply(self, job: Job, nodes: tuple[JobNode, ...] | None = None) -> Job:
        """Return a job as the site has it, on `nodes` rather than its own if they are given.

        Grid Engine's requests are for the whole job, of which each node has an equal part.
        """
        slots = 1 if self.per_slot else max(job.hwthreads, 1)
        names = self.nodes(job.nodes if nodes is None else nodes)
        metadata = job.metadata
        if not self.command_line:
            metadata = {key: text for key, text in metadata.items() if key != "submitCmdLine"}
        replacement = "" if self.project == "project" else metadata.get(self.project, "")
        return msgspec.structs.replace(
            job,
            cluster=self.cluster,
            id=array_id(job.array_id or job.id, job.array_task or 0, self.array_factor),
            project=job.project or replacement,
            sub_cluster=self.sub_cluster,
            nodes=names,
            hwthreads=job.hwthreads * self.threads_per_slot,
            accelerators=job.accelerators // slots,
            memory=job.memory // slots // max(len(names), 1),
            shared=self.shared,
            metadata=metadata,
        )

    def started(self, job: Job, start: int) -> Job:
        """Return the job of a ``job_log`` line: the line names neither its nodes nor its slots."""
        job = self.apply(job, (JobNode(self.start_node),))
        unknown = {"nodes": "unknown: the reporting file does not name them"}
        return msgspec.structs.replace(job, start=start, metadata=job.metadata | unknown)

    def nodes(self, nodes: Iterable[JobNode]) -> tuple[JobNode, ...]:
        """Return the nodes by the site's names, each once."""
        names = dict.fromkeys(self.node(node.hostname) for node in nodes)
        return tuple(JobNode(name) for name in names if name)

    def node(self, hostname: str) -> str:
        return hostname.partition(".")[0] if self.short_hostnames else hostname


class JobRuns(msgspec.Struct, frozen=True):
    """A job, or a task of an array, that has ended."""

    last: Job
    """Its last run; of a parallel job, the master's."""
    tasks: tuple[Job, ...] = ()
    earlier: tuple[Job, ...] = ()
    """Its earlier runs, the oldest first."""

    @property
    def start(self) -> int:
        """When its first run started; 0 if none did."""
        return min((run.start for run in (*self.earlier, self.last) if run.start), default=0)

    @property
    def end(self) -> int:
        """When its last run ended; where that never started, the end of the last one that did."""
        return self.last.end or max(run.end for run in (*self.earlier, self.last))

    @property
    def nodes(self) -> tuple[JobNode, ...]:
        """The nodes of its last run, the master's first."""
        return tuple(dict.fromkeys(node for job in (self.last, *self.tasks) for node in job.nodes))

    @property
    def has_all_nodes(self) -> bool:
        """Whether `nodes` is complete: without records of PE tasks only the master's is known."""
        last = self.last
        return "pe" not in last.metadata or bool(self.tasks) or last.hwthreads <= 1

    @property
    def cpu(self) -> float | None:
        """Seconds of processor time of the last run, over all its tasks; None if unknown."""
        return self.used("cpu", sum)

    def used(self, what: str, of: Callable[[list[float]], float]) -> float | None:
        """Return the sum, or another function, of what is known of the run and all its tasks."""
        usages = [job.usage for job in (self.last, *self.tasks) if job.usage]
        known = [value for usage in usages if (value := getattr(usage, what)) is not None]
        return of(known) if known else None

    def finished(self, mapping: Mapping) -> Job:
        """Return the job from the start of its first run to the end of its last."""
        job = mapping.apply(self.last, self.nodes)
        counts = {
            "peTasks": str(len(self.tasks) or ""),
            "restarts": str(len(self.earlier) or ""),
            "nodes": "" if self.has_all_nodes else "incomplete: only the master's host is known",
        }
        return msgspec.structs.replace(
            job, start=self.start, end=max(self.end, self.start), metadata=job.metadata | counts
        )


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
    wallclock = last.usage.wallclock if last.usage else None
    room = last.hwthreads * (wallclock or 0)
    cpu = job.cpu
    values: dict[str, float | None] = {
        "job_wallclock": wallclock,
        "job_wait": (last.start - last.submit) / SECOND if last.submit else None,
        "job_cpu": cpu,
        "job_efficiency": cpu / room if room and cpu is not None else None,
        "job_slots": last.hwthreads or None,
        "job_mem": job.used("memory", sum),
        "job_io": job.used("io", sum),
        "job_maxrss": job.used("max_rss", max),
        "job_maxvmem": job.used("max_vmem", max),
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


ACCOUNTING, RECORD, JOB_LOG = "accounting", "record", "job_log"
"""The class of the events, and their functions."""


def to_event(record: Accounting | JobLog, *, cluster: str, hostname: str = "") -> Message:
    """Return a record or line as an event for the bus; `hostname` is for jobs that never ran.

    The payload is the record as OCS writes it in JSON lines, or the fields of the line, with the
    additional key ``origin``: where it was read. No two have the same origin, so no two events are
    equal, and a broker that deduplicates by content stores each once.

    The time is the end of a record, else its latest known time, else none.
    """
    time: int | None
    if isinstance(record, JobLog):
        function, time, host = JOB_LOG, record.time, clean(record.host)
        texts = {
            key: clean(value) if isinstance(value, str) else value
            for key, value in msgspec.structs.asdict(record).items()
        }
        payload = msgspec.json.encode(texts).decode()
    else:
        function, host = RECORD, record.hostname or hostname
        extra = {**record.extra, "origin": msgspec.to_builtins(record.origin)}
        line = encode_jsonl(msgspec.structs.replace(record, extra=extra))
        payload = line.decode("utf-8", "replace").rstrip("\n")
        times = (record.end_time, record.reported, record.start_time, record.submission_time)
        time = next((each for each in times if each), None)
    tags = {"cluster": cluster, **({"hostname": tag(host)} if host else {}), "type": "node"}
    return msgspec.structs.replace(
        event(ACCOUNTING, function, payload, time=0, tags=tags), time=time
    )


def tag(text: str) -> str:
    """Escape a text for a tag: a line feed becomes ``%0A``."""
    if text.isprintable() and not text.endswith("\\"):
        return text
    return quote(text.encode("utf-8", "surrogatepass"))


def is_event(message: Message) -> bool:
    is_accounting = message.name == ACCOUNTING and message.field == "event"
    return is_accounting and message.tags.get("function") in (RECORD, JOB_LOG)


def from_event(message: Message) -> Accounting | JobLog:
    """Return the record or line of such an event; raises DataError if its payload is neither."""
    if message.tags.get("function") == JOB_LOG:
        try:
            return msgspec.json.decode(str(message.value), type=JobLog)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"an event without a job_log line: {error}") from None
    record = parse_jsonl(str(message.value).encode("utf-8", "surrogatepass"))
    if record is None:
        raise DataError("an event of class accounting without a record")
    extra = dict(record.extra)
    try:
        origin = msgspec.convert(extra.pop("origin", {}), Origin)
    except msgspec.ValidationError as error:
        raise DataError(f"origin: {error}") from None
    return msgspec.structs.replace(record, extra=extra, origin=origin)
