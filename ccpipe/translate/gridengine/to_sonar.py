"""Grid Engine's jobs as Sonar's ``job`` envelopes.

docs/gridengine/jobs.md says what becomes what, and what has no place there.
"""

import math
from collections.abc import Iterable

from ccpipe import __version__
from ccpipe.formats.gridengine import Accounting, Outcome
from ccpipe.formats.sonar import (
    UNSET,
    ExtendedUint,
    JobsAttributes,
    JobsData,
    JobsEnvelope,
    MetadataObject,
    SacctData,
    SlurmJob,
    timestamp,
)
from ccpipe.translate.gridengine.assembler import JobRecords
from ccpipe.translate.gridengine.events import Mapping, clean, state_of

STATES = {
    "completed": "COMPLETED",
    "failed": "FAILED",
    "timeout": "TIMEOUT",
    "cancelled": "CANCELLED",
    "preempted": "PENDING",
    "node_fail": "FAILED",
}
"""Sonar's state for each of ClusterCockpit's."""

KIB = 1024


def jobs_to_sonar(jobs: Iterable[JobRecords], mapping: Mapping, *, time: int) -> JobsEnvelope:
    """Return an envelope of jobs that ended, made at `time`, in nanoseconds since the epoch.

    A job is one record without a step, and one for each PE task with the task's id as the step.
    """
    records = tuple(record for job in jobs for record in _records(job, mapping))
    attributes = JobsAttributes(
        time=timestamp.write(time), cluster=mapping.cluster, slurm_jobs=records
    )
    meta = MetadataObject(producer="ccpipe", version=__version__)
    return JobsEnvelope(meta=meta, data=JobsData(attributes=attributes))


def _records(job: JobRecords, mapping: Mapping) -> Iterable[SlurmJob]:
    yield _record(job.last, job.hosts, mapping)
    for task in job.tasks:
        yield _record(task, (task.hostname,), mapping)


def _record(record: Accounting, hosts: tuple[str, ...], mapping: Mapping) -> SlurmJob:
    asked, slots = record.requests, record.slots
    times = max(slots, 1) if mapping.per_slot else 1
    memory_per_node = (asked.h_vmem or 0) * times // max(len(hosts), 1)
    resources = _tres(slots, (asked.h_vmem or 0) * times, (asked.gpu or 0) * times)
    never = record.outcome is Outcome.START_FAILED and not record.is_final
    return SlurmJob(
        job_id=mapping.job_id(record.job_number, record.task_number),
        job_step=record.pe_taskid or "",
        job_name=clean(record.job_name),
        job_state="PENDING" if never else STATES[state_of(record)],
        array_job_id=record.job_number if record.task_number else 0,
        array_task_id=record.task_number,
        user_name=clean(record.owner),
        account=clean(record.project or record.account),
        submit_time=_time(record.submission_time),
        time_limit=UNSET if asked.h_rt is None else ExtendedUint(math.ceil(asked.h_rt / 60)),
        partition=clean(record.qname),
        reservation=str(record.arid) if record.arid else "",
        nodes=tuple(clean(mapping.node(host)) for host in hosts if mapping.node(host)),
        requested_cpus=max(slots, 0),
        requested_memory_per_node=memory_per_node // KIB,
        requested_node_count=len(hosts),
        start_time=_time(record.start_time),
        end_time=_time(record.end_time),
        exit_code=max(record.exit_status, 0),
        sacct=_sacct(record, resources),
        requested_resources=resources,
        allocated_resources=resources,
    )


def _sacct(record: Accounting, resources: str) -> SacctData:
    return SacctData(
        AllocTRES=resources,
        AveCPU=_whole(record.cpu),
        MinCPU=_whole(record.cpu),
        ElapsedRaw=_whole(record.wallclock),
        SystemCPU=_whole(record.amount("rusage", "ru_stime")),
        UserCPU=_whole(record.amount("rusage", "ru_utime")),
        MaxRSS=_whole(record.maxrss / KIB),
        MaxVMSize=_whole(record.maxvmem / KIB),
    )


def _whole(amount: float) -> int:
    """Round; 0 for what 64 bits cannot hold, which is no measurement."""
    whole = round(amount)
    return whole if 0 <= whole < 2**63 else 0


def _tres(slots: int, memory: int, gpus: int) -> str:
    parts = {"cpu": slots, "mem": memory // KIB, "gres/gpu": gpus}
    return ",".join(
        f"{name}={value}{'K' if name == 'mem' else ''}"
        for name, value in parts.items()
        if value > 0
    )


def _time(time: int | None) -> str:
    return "" if time is None else timestamp.write(time)
