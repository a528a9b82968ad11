"""Sonar's job records to what cc-backend wants to hear: that a job started, that it stopped.

Records are partial and come again and again: what a later one says overrides what an earlier one
said, field by field. Each start and each stop is told once, the start first.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Literal

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import STATES, Resource, StartJob, StopJob
from ccpipe.formats.nodelist import expand
from ccpipe.formats.sonar import JobId, JobsAttributes, SlurmJob
from ccpipe.formats.sonar.layout import fields
from ccpipe.formats.sonar.timestamp import parse as parse_time

SECOND = 10**9
MAX_JOBS = 100_000
"""Jobs that are remembered; beyond, the one is forgotten that was not spoken of for longest."""

_NEVER_STARTED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REVOKED"})
_FIELDS = tuple(fields(SlurmJob).items())

Shared = Literal["none", "single_user", "multi_user"]
Told = tuple[str, StartJob | StopJob]
"""The function of an event, and what it says."""


class _Known(msgspec.Struct):
    """What is known of one job."""

    job: SlurmJob | None
    """All that its records said; None once it has stopped."""
    time: int
    """When the latest of them was made."""
    started: int = 0
    """The start that was told, in seconds; 0 for none."""
    stopped: bool = False


class Jobs:
    """Makes events of job records."""

    def __init__(self, *, shared: Shared = "none") -> None:
        """Say of all nodes that they are `shared` in this way: Sonar does not tell."""
        self.shared = shared
        self._known: OrderedDict[tuple[str, int], _Known] = OrderedDict()

    def feed(self, attributes: JobsAttributes, time: int) -> Iterator[Told]:
        """Yield what is new in one envelope, which was made at `time`; steps tell nothing new."""
        for job in attributes.slurm_jobs:
            if not job.job_step and job.job_id:
                yield from self._feed(attributes.cluster, job, time)

    def _feed(self, cluster: str, record: SlurmJob, time: int) -> Iterator[Told]:
        key = cluster, record.job_id
        known = self._known.pop(key, None)
        if known is None or _is_another_run(known, record):
            known = _Known(record, time)
        elif known.job is not None:
            older, newer = (known.job, record) if time >= known.time else (record, known.job)
            known.job, known.time = _merged(older, newer), max(time, known.time)
        self._known[key] = known
        if len(self._known) > MAX_JOBS:
            self._known.popitem(last=False)
        if known.job is not None:
            yield from self._tell(cluster, known, known.job)

    def _tell(self, cluster: str, known: _Known, job: SlurmJob) -> Iterator[Told]:
        state = job.job_state.partition(" ")[0]
        if not known.started and state not in _NEVER_STARTED:
            start = start_job(cluster, job, self.shared)
            if start is not None:
                known.started = start.startTime
                yield "start_job", start
        end = _seconds(job.end_time)
        if known.started and end and is_final(state):
            known.stopped, known.job = True, None
            yield (
                "stop_job",
                StopJob(
                    jobId=job.job_id,
                    cluster=cluster,
                    startTime=known.started,
                    stopTime=max(end, known.started),
                    jobState=state.lower() if state.lower() in STATES else "failed",
                ),
            )


def is_final(state: str) -> bool:
    """Say whether a job in this state has ended."""
    return state.lower() in STATES


def _is_another_run(known: _Known, record: SlurmJob) -> bool:
    """Say whether a record tells of a later run of a job that was put back into the queue."""
    start = _seconds(record.start_time)
    return bool(known.stopped and known.started and start > known.started)


def _merged(older: SlurmJob, newer: SlurmJob) -> SlurmJob:
    said = {
        name: value for name, field in _FIELDS if (value := getattr(newer, name)) != field.default
    }
    return msgspec.structs.replace(older, **said)


def start_job(cluster: str, job: SlurmJob, shared: Shared) -> StartJob | None:
    """Return a job's start; None until its records say who, when and where."""
    start = _seconds(job.start_time)
    if not (start and job.user_name and cluster and job.nodes):
        return None
    try:
        nodes = list(dict.fromkeys(expand(",".join(job.nodes))))
    except DataError:  # as "None assigned", which is no list of nodes
        return None
    allocated = _resources(job)
    return StartJob(
        jobId=job.job_id,
        user=job.user_name,
        cluster=cluster,
        startTime=start,
        numNodes=len(nodes),
        resources=[Resource(node) for node in nodes],
        project=job.account,
        partition=job.partition,
        arrayJobId=job.array_job_id,
        numHwthreads=allocated.get("cpu", job.requested_cpus),
        numAcc=allocated.get("gres/gpu", 0),
        shared="" if shared == "none" else shared,
        walltime=60 * (job.time_limit.value or 0),
        submitTime=_seconds(job.submit_time),
        requestedMemory=job.requested_memory_per_node // 1024,
        metaData=_meta(job),
    )


def _meta(job: SlurmJob) -> dict[str, str]:
    """Return what has no key of its own, as texts; what is empty is left out."""
    number = JobId.of(job)
    meta = {
        "jobName": job.job_name,
        "arrayTaskId": "" if number.array_task is None else str(number.array_task),
        "hetJobId": str(job.het_job_id or ""),
        "hetJobOffset": "" if number.het_offset is None else str(number.het_offset),
        "reservation": job.reservation,
        "distribution": job.distribution,
        "requestedCpus": str(job.requested_cpus or ""),
        "requestedNodes": str(job.requested_node_count or ""),
        "allocatedResources": _allocated(job),
    }
    return {key: text for key, text in meta.items() if text}


def _allocated(job: SlurmJob) -> str:
    return job.allocated_resources or (job.sacct.AllocTRES if job.sacct else "")


def _resources(job: SlurmJob) -> dict[str, int]:
    """Read whole numbers out of ``billing=8,cpu=8,gres/gpu=2,mem=16G,node=1``."""
    pairs = (piece.split("=", 1) for piece in _allocated(job).split(",") if "=" in piece)
    return {key: int(value) for key, value in pairs if value.isascii() and value.isdecimal()}


def _seconds(time: str) -> int:
    return (parse_time(time) or 0) // SECOND
