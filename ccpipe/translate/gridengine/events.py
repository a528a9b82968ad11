"""Jobs to what ClusterCockpit knows of them: ``start_job`` and ``stop_job``, and metrics.

cc-backend refuses a whole event for one unknown key; ``cc_events`` holds those that it knows.
What becomes of which field stands in docs/gridengine.md.
"""

import math
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from ccpipe.formats.clustercockpit import Resource, StartJob, StopJob
from ccpipe.formats.gridengine import Accounting, Outcome
from ccpipe.formats.gridengine.event import tag
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.gridengine.status import Running
from ccpipe.message import Message, event, metric
from ccpipe.translate.gridengine.assembler import Job

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
"""An outcome in cc-backend's words; see ``state_of`` for ``qdel``."""


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the records do not say about a site."""

    cluster: str
    sub_cluster: str = ""
    """Empty: cc-backend finds it by the nodes."""
    short_hostnames: bool = True
    """Whether nodes are called by the part before the first dot."""
    array_factor: int = MAX_ARRAY_TASKS
    """The id of an array's task is job number times this, plus task number."""
    project: Literal["project", "department", "account"] = "project"
    """What stands for the project of a job that has none, if not nothing."""
    threads_per_slot: int = 1
    per_slot: bool = True
    """Whether memory and accelerators are asked for by slot rather than by job."""
    shared: Literal["none", "single_user", "multi_user"] = "none"
    command_line: bool = False
    """Whether metaData holds ``submit_cmd_line``, which may hold secrets."""
    start_node: str = "unknown"
    """The node of a start from the reporting file, which does not say where it was."""

    def job_id(self, job_number: int, task_number: int) -> int:
        """Return an id that no other job or array task has."""
        return job_number * self.array_factor + task_number if task_number else job_number

    def node(self, hostname: str) -> str:
        """Return what ClusterCockpit calls a host."""
        return hostname.partition(".")[0] if self.short_hostnames else hostname


def start_job(job: Job, mapping: Mapping) -> StartJob | None:
    """Return the start of a job; None where it never began, or nobody knows whose it was."""
    last, start = job.last, job.start
    nodes = [Resource(name) for host in job.hosts if (name := mapping.node(host))]
    if start is None or job.end is None or not last.owner or not nodes:
        return None
    asked, slots = last.requests, last.slots
    times = max(slots, 1) if mapping.per_slot else 1
    other = "" if mapping.project == "project" else str(getattr(last, mapping.project))
    return StartJob(
        jobId=mapping.job_id(*job.key),
        user=last.owner,
        cluster=mapping.cluster,
        subCluster=mapping.sub_cluster,
        startTime=start // SECOND,
        numNodes=len(nodes),
        resources=nodes,
        partition=last.qname,
        project=last.project or other,
        walltime=math.ceil(asked.h_rt or 0),
        numHwthreads=slots * mapping.threads_per_slot,
        numAcc=(asked.gpu or 0) * times,
        shared=mapping.shared,
        arrayJobId=last.job_number if last.task_number else 0,
        requestedMemory=(asked.h_vmem or 0) * times // 10**6,
        metaData=_meta(job, mapping),
    )


def start_running(job: Running, mapping: Mapping) -> Message:
    """Return the start of a job that still runs, as qstat or qhost tell of it."""
    start = StartJob(
        jobId=mapping.job_id(job.job_number, job.task_number),
        user=clean(job.owner),
        cluster=mapping.cluster,
        subCluster=mapping.sub_cluster,
        startTime=job.start_time // SECOND,
        numNodes=len(job.hosts),
        resources=[Resource(clean(mapping.node(host))) for host in job.hosts],
        partition=clean(job.queue),
        numHwthreads=job.slots * mapping.threads_per_slot,
        shared=mapping.shared,
        arrayJobId=job.job_number if job.task_number else 0,
        metaData={"jobName": clean(job.name)} if job.name else {},
    )
    tags = {"cluster": mapping.cluster, "hostname": tag(mapping.node(job.hosts[0])), "type": "node"}
    return _event("start_job", start, start.startTime, tags)


def start_logged(log: JobLog, second: int, mapping: Mapping) -> Message:
    """Return the start of a job of which a ``job_log`` line tells; `second` is when it began.

    Neither its node nor its slots stand there: the node is ``start_node``, and metaData says so.
    """
    other = "" if mapping.project == "project" else str(getattr(log, mapping.project))
    meta = {
        "jobName": log.job_name,
        "account": log.account,
        "department": log.department,
        "group": log.group,
        "submitTime": str(log.submission_time // SECOND) if log.submission_time else "",
        "nodes": "unknown: the reporting file does not say them",
    }
    start = StartJob(
        jobId=mapping.job_id(log.job_number, log.task_number),
        user=log.owner,
        cluster=mapping.cluster,
        subCluster=mapping.sub_cluster,
        startTime=second,
        numNodes=1,
        resources=[Resource(mapping.start_node)],
        project=log.project or other,
        shared=mapping.shared,
        arrayJobId=log.job_number if log.task_number else 0,
        metaData={key: clean(text) for key, text in meta.items() if text},
    )
    tags = {"cluster": mapping.cluster, "hostname": tag(mapping.start_node), "type": "node"}
    return _event("start_job", start, second, tags)


def stop_job(job: Job, mapping: Mapping) -> StopJob | None:
    """Return the end of a job; None where there was no start."""
    if job.start is None or job.end is None:
        return None
    start = job.start // SECOND
    return StopJob(
        jobId=mapping.job_id(*job.key),
        cluster=mapping.cluster,
        startTime=start,
        stopTime=max(job.end // SECOND, start),
        jobState=state_of(job.last),
    )


def state_of(record: Accounting) -> str:
    """Return an outcome in cc-backend's words.

    Before OCS 9.1.2 nobody wrote down who deleted a job. SIGKILL where no limit was asked for is
    taken for ``qdel``.
    """
    asked = record.requests
    limits = {"h_cpu", "s_cpu", "h_rss", "h_data", "h_stack", "h_fsize"} & asked.resources.keys()
    if (record.failed, record.exit_status) == (100, 137) and record.outcome is Outcome.KILLED:
        unlimited = asked.h_rt is None and asked.h_vmem is None and not limits
        return "cancelled" if unlimited else "failed"
    return STATES[record.outcome]


def _meta(job: Job, mapping: Mapping) -> dict[str, str]:
    """Return what has no key of its own, as texts; what is empty is left out."""
    last = job.last
    meta = {
        "jobName": last.job_name,
        "account": last.account,
        "department": last.department,
        "group": last.group,
        "category": last.category,
        "submitTime": str(last.submission_time // SECOND) if last.submission_time else "",
        "submitCmdLine": (last.submit_cmd_line or "") if mapping.command_line else "",
        "pe": last.granted_pe or "",
        "exitStatus": str(last.exit_status),
        "failed": f"{last.failed}: {last.failure}",
        "deletedBy": last.deleted_by or "",
        "arid": str(last.arid) if last.arid else "",
        "peTasks": str(len(job.tasks)) if job.tasks else "",
        "restarts": str(len(job.earlier)) if job.earlier else "",
        "nodes": "" if job.has_all_hosts else "incomplete: only the master's host is known",
    }
    return {key: clean(text) for key, text in meta.items() if text}


def clean(text: str) -> str:
    """Put U+FFFD for bytes that are not UTF-8, which no JSON can hold."""
    return _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def events(job: Job, mapping: Mapping) -> Iterator[Message]:
    """Yield ``start_job`` and ``stop_job`` at the moments they tell of; nothing without a start."""
    start, stop = start_job(job, mapping), stop_job(job, mapping)
    if start is not None and stop is not None:
        tags = _tags(job, mapping)
        yield _event("start_job", start, start.startTime, tags)
        yield _event("stop_job", stop, stop.stopTime, tags)


def stop_of(job: Job, second: int, mapping: Mapping) -> Message:
    """Return the end of a job whose start, at `second`, was sent while it ran.

    One of whose runs no record has a time ended when it began.
    """
    stop = StopJob(
        jobId=mapping.job_id(*job.key),
        cluster=mapping.cluster,
        startTime=second,
        stopTime=max((job.end or 0) // SECOND, second),
        jobState=state_of(job.last),
    )
    return _event("stop_job", stop, stop.stopTime, _tags(job, mapping))


def _event(function: str, what: StartJob | StopJob, second: int, tags: dict[str, str]) -> Message:
    payload = msgspec.json.encode(_cleaned(what)).decode()
    return event("job", function, payload, time=second * SECOND, tags=tags)


def _cleaned(what: StartJob | StopJob) -> StartJob | StopJob:
    if isinstance(what, StopJob):
        return what
    texts = {name: clean(getattr(what, name)) for name in ("user", "partition", "project")}
    nodes = [Resource(clean(node.hostname)) for node in what.resources]
    return msgspec.structs.replace(what, **texts, resources=nodes)


def _tags(job: Job, mapping: Mapping) -> dict[str, str]:
    host = tag(mapping.node(job.hosts[0])) if job.hosts else ""
    tags = {"cluster": mapping.cluster, "hostname": host, "type": "node"}
    return {key: value for key, value in tags.items() if value}


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
    "job_exit_status": "as a shell says it",
}
"""The metrics of a finished job."""


def metrics(job: Job, mapping: Mapping) -> Iterator[Message]:
    """Yield the metrics of a job that ran, stamped with its end."""
    last = job.last
    if last.start_time is None or last.end_time is None:
        return
    records = (last, *job.tasks)
    room = last.slots * last.wallclock
    wait = last.start_time - last.submission_time if last.submission_time else None
    values: dict[str, float | None] = {
        "job_wallclock": last.wallclock,
        "job_wait": wait / SECOND if wait is not None else None,
        "job_cpu": job.cpu,
        "job_efficiency": job.cpu / room if room else None,
        "job_slots": last.slots,
        "job_mem": sum(record.amount("eusage", "mem") for record in records),
        "job_io": sum(record.amount("eusage", "io") for record in records),
        "job_maxrss": max(record.maxrss for record in records),
        "job_maxvmem": max(record.maxvmem for record in records),
        "job_exit_status": last.exit_status,
    }
    tags = _tags(job, mapping) | {
        key: tag(value)
        for key, value in {
            "jobid": str(mapping.job_id(*job.key)),
            "user": last.owner,
            "project": last.project,
            "queue": last.qname,
            "outcome": str(job.outcome),
        }.items()
        if value
    }
    for name, value in values.items():
        if value is not None:
            yield metric(name, value, time=last.end_time, tags=tags)
