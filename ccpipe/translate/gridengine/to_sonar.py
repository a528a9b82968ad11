"""Grid Engine's jobs as Sonar's ``job`` envelopes.

docs/gridengine/jobs.md says what becomes what, and what has no place there.
"""

import math
from collections.abc import Iterable

from ccpipe import __version__
from ccpipe.formats import sonar
from ccpipe.jobs import Job, JobUsage
from ccpipe.translate.gridengine.assembler import JobRuns
from ccpipe.translate.gridengine.jobs import Mapping

STATES = {
    "completed": "COMPLETED",
    "failed": "FAILED",
    "timeout": "TIMEOUT",
    "cancelled": "CANCELLED",
    "preempted": "PENDING",
    "node_fail": "FAILED",
}

KIB = 1024


def jobs_to_sonar(jobs: Iterable[JobRuns], mapping: Mapping, *, time: int) -> sonar.JobsEnvelope:
    """Return an envelope of jobs that ended, made at `time`, in nanoseconds since the epoch.

    A job is one record without a step, and one for each PE task with the task's id as the step.
    """
    attributes = sonar.JobsAttributes(
        time=sonar.timestamp.write(time),
        cluster=mapping.cluster,
        slurm_jobs=tuple(
            slurm_job(mapping.apply(each, nodes))
            for job in jobs
            for each, nodes in ((job.last, job.nodes), *((task, None) for task in job.tasks))
        ),
    )
    meta = sonar.MetadataObject(producer="ccpipe", version=__version__)
    return sonar.JobsEnvelope(meta=meta, data=sonar.JobsData(attributes=attributes))


def slurm_job(job: Job) -> sonar.SlurmJob:
    memory = job.memory // KIB
    amounts = {"cpu": job.hwthreads, "mem": memory, "gres/gpu": job.accelerators}
    resources = ",".join(
        f"{name}={amount}{'K' if name == 'mem' else ''}"
        for name, amount in amounts.items()
        if amount > 0
    )
    is_pending = job.runs_again and not job.start
    return sonar.SlurmJob(
        job_id=job.id,
        job_step=job.step,
        job_name=job.name,
        job_state="PENDING" if is_pending else STATES[job.state],
        array_job_id=job.array_id,
        array_task_id=job.array_task or 0,
        user_name=job.user,
        account=job.project or job.metadata.get("account", ""),
        submit_time=_time(job.submit),
        time_limit=sonar.ExtendedUint(math.ceil(job.walltime / 60))
        if job.walltime
        else sonar.UNSET,
        partition=job.partition,
        reservation=job.metadata.get("arid", ""),
        nodes=tuple(node.hostname for node in job.nodes),
        requested_cpus=max(job.hwthreads, 0),
        requested_memory_per_node=memory // max(len(job.nodes), 1),
        requested_node_count=len(job.nodes),
        start_time=_time(job.start),
        end_time=_time(job.end),
        exit_code=max(job.exit_code or 0, 0),
        sacct=_sacct(job.usage or JobUsage(), resources),
        requested_resources=resources,
        allocated_resources=resources,
    )


def _sacct(usage: JobUsage, resources: str) -> sonar.SacctData:
    return sonar.SacctData(
        AllocTRES=resources,
        AveCPU=_whole(usage.cpu),
        MinCPU=_whole(usage.cpu),
        ElapsedRaw=_whole(usage.wallclock),
        SystemCPU=_whole(usage.system),
        UserCPU=_whole(usage.user),
        MaxRSS=_whole(usage.max_rss / KIB),
        MaxVMSize=_whole(usage.max_vmem / KIB),
    )


def _whole(amount: float) -> int:
    """Round; 0 for what 64 bits cannot hold, which is no measurement."""
    whole = round(amount)
    return whole if 0 <= whole < 2**63 else 0


def _time(time: int) -> str:
    return sonar.timestamp.write(time) if time else ""
