"""Grid Engine's jobs as neutral jobs, job events and metrics.

docs/gridengine/jobs.md says which field becomes what.
"""

import math
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from ccpipe.formats.gridengine import Accounting, Outcome
from ccpipe.formats.gridengine.event import tag
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.gridengine.status import RunningJob
from ccpipe.jobs import RUNNING, Job, JobNode, is_complete, message
from ccpipe.message import Message, metric
from ccpipe.translate.gridengine.assembler import JobRecords

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
    """What replaces the project of a job that has none."""
    threads_per_slot: int = 1
    per_slot: bool = True
    """Whether memory and accelerators are requested by slot rather than by job."""
    shared: Literal["none", "single_user", "multi_user"] = "none"
    command_line: bool = False
    """Whether metaData holds ``submit_cmd_line``, which may hold secrets."""
    start_node: str = "unknown"
    """The node of starts from the reporting file, which does not name nodes."""

    def job_id(self, job_number: int, task_number: int) -> int:
        """Return an id that no other job or array task has."""
        return job_number * self.array_factor + task_number if task_number else job_number

    def node(self, hostname: str) -> str:
        """Return ClusterCockpit's name of a host."""
        return hostname.partition(".")[0] if self.short_hostnames else hostname

    def nodes(self, hosts: tuple[str, ...]) -> tuple[JobNode, ...]:
        """Return hosts as the nodes of a job."""
        names = dict.fromkeys(self.node(host) for host in hosts)
        return tuple(JobNode(name) for name in names if name)

    def project_of(self, record: Accounting | JobLog) -> str:
        """Return the project, or its replacement."""
        return record.project or (
            "" if self.project == "project" else str(getattr(record, self.project))
        )


def finished_job(job: JobRecords, mapping: Mapping) -> Job:
    """Return a job that has ended; one that never started has no start."""
    last = job.last
    asked = last.requests
    times = max(last.slots, 1) if mapping.per_slot else 1
    start = job.start or 0
    return Job(
        cluster=mapping.cluster,
        id=mapping.job_id(*job.key),
        array_id=last.job_number if last.task_number else 0,
        array_task=last.task_number or None,
        state=state_of(last),
        name=last.job_name,
        user=last.owner,
        project=mapping.project_of(last),
        partition=last.qname,
        sub_cluster=mapping.sub_cluster,
        submit=last.submission_time or 0,
        start=start,
        end=max(job.end or 0, start),
        nodes=mapping.nodes(job.hosts),
        hwthreads=last.slots * mapping.threads_per_slot,
        accelerators=(asked.gpu or 0) * times,
        memory=(asked.h_vmem or 0) * times // 10**6,
        shared=mapping.shared,
        walltime=math.ceil(asked.h_rt or 0),
        exit_code=last.exit_status,
        metadata=_metadata(job, mapping),
    )


def running_job(job: RunningJob, mapping: Mapping) -> Job:
    """Return a job that runs, as qstat or qhost list it."""
    return Job(
        cluster=mapping.cluster,
        id=mapping.job_id(job.job_number, job.task_number),
        array_id=job.job_number if job.task_number else 0,
        array_task=job.task_number or None,
        state=RUNNING,
        name=job.name,
        user=job.owner,
        partition=job.queue,
        sub_cluster=mapping.sub_cluster,
        start=job.start_time,
        nodes=mapping.nodes(job.hosts),
        hwthreads=job.slots * mapping.threads_per_slot,
        shared=mapping.shared,
    )


def logged_job(log: JobLog, start: int, mapping: Mapping) -> Job:
    """Return a job whose start a ``job_log`` line reports.

    The line names neither its nodes nor its slots: the node is ``start_node``, and metadata says
    so.
    """
    return Job(
        cluster=mapping.cluster,
        id=mapping.job_id(log.job_number, log.task_number),
        array_id=log.job_number if log.task_number else 0,
        array_task=log.task_number or None,
        state=RUNNING,
        name=log.job_name,
        user=log.owner,
        project=mapping.project_of(log),
        sub_cluster=mapping.sub_cluster,
        submit=log.submission_time,
        start=start,
        nodes=(JobNode(mapping.start_node),),
        shared=mapping.shared,
        metadata={
            "account": log.account,
            "department": log.department,
            "group": log.group,
            "submitTime": _seconds(log.submission_time),
            "nodes": "unknown: the reporting file does not name them",
        },
    )


def state_of(record: Accounting) -> str:
    """Return cc-backend's state for how a run ended.

    Before OCS 9.1.2 no record says who deleted a job: SIGKILL without a requested limit is taken
    for ``qdel``.
    """
    asked = record.requests
    limits = {"h_cpu", "s_cpu", "h_rss", "h_data", "h_stack", "h_fsize"} & asked.resources.keys()
    if (record.failed, record.exit_status) == (100, 137) and record.outcome is Outcome.KILLED:
        unlimited = asked.h_rt is None and asked.h_vmem is None and not limits
        return "cancelled" if unlimited else "failed"
    return STATES[record.outcome]


def _metadata(job: JobRecords, mapping: Mapping) -> dict[str, str]:
    """Return metadata that is not in other keys of the event."""
    last = job.last
    return {
        "account": last.account,
        "department": last.department,
        "group": last.group,
        "category": last.category,
        "submitTime": _seconds(last.submission_time),
        "submitCmdLine": (last.submit_cmd_line or "") if mapping.command_line else "",
        "pe": last.granted_pe or "",
        "failed": f"{last.failed}: {last.failure}",
        "deletedBy": last.deleted_by or "",
        "arid": str(last.arid or ""),
        "peTasks": str(len(job.tasks) or ""),
        "restarts": str(len(job.earlier) or ""),
        "nodes": "" if job.has_all_hosts else "incomplete: only the master's host is known",
    }


def _seconds(time: int | None) -> str:
    return str(time // SECOND) if time else ""


def clean(text: str) -> str:
    """Replace invalid UTF-8 with U+FFFD, which JSON requires."""
    return _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def events(job: JobRecords, mapping: Mapping) -> Iterator[Message]:
    """Yield ``start_job`` and ``stop_job`` of a job that ran; nothing where it never started."""
    finished = finished_job(job, mapping)
    if job.end is not None and is_complete(finished):
        yield message("start_job", finished)
        yield message("stop_job", finished)


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


def metrics(job: JobRecords, mapping: Mapping) -> Iterator[Message]:
    """Yield the metrics of a job that ran, with the time of its end."""
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
    tags = {
        key: tag(value)
        for key, value in {
            "cluster": mapping.cluster,
            "hostname": mapping.node(job.hosts[0]) if job.hosts else "",
            "type": "node",
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
