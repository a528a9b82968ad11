"""Sonar's job records as neutral jobs, for the lifecycle that emits their starts and stops."""

from typing import Literal

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import expand
from ccpipe.formats.sonar import JobId, SlurmJob
from ccpipe.formats.sonar.timestamp import parse as parse_time
from ccpipe.jobs import PENDING, RUNNING, Job, Node, is_final

Shared = Literal["none", "single_user", "multi_user"]

_NEVER_STARTED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REVOKED"})


def job_of(cluster: str, record: SlurmJob, shared: Shared = "none") -> Job | None:
    """Return what a record says of a job; None for a step, which adds nothing.

    `shared` stands for every job, since Sonar does not know whether nodes are shared.
    """
    if record.job_step or not record.job_id:
        return None
    number = JobId.of(record)
    allocated = _resources(record)
    return Job(
        cluster=cluster,
        id=record.job_id,
        array_id=record.array_job_id,
        array_task=number.array_task,
        het_id=record.het_job_id,
        het_offset=number.het_offset,
        state=_state(record.job_state),
        user=record.user_name,
        project=record.account,
        partition=record.partition,
        submit=parse_time(record.submit_time) or 0,
        start=parse_time(record.start_time) or 0,
        end=parse_time(record.end_time) or 0,
        nodes=_nodes(record),
        hwthreads=allocated.get("cpu", 0),
        requested_hwthreads=record.requested_cpus,
        accelerators=allocated.get("gres/gpu", 0),
        memory=record.requested_memory_per_node // 1024,
        shared="" if shared == "none" else shared,
        walltime=60 * (record.time_limit.value or 0),
        metadata=_metadata(record),
    )


def _state(text: str) -> str:
    """Return a state without what Slurm adds to it, as in ``CANCELLED by 1000``."""
    state = text.partition(" ")[0]
    if not state or is_final(state.lower()):
        return state.lower()
    return PENDING if state in _NEVER_STARTED else RUNNING


def _nodes(record: SlurmJob) -> tuple[Node, ...]:
    try:
        names = expand(",".join(record.nodes))
    except DataError:  # as "None assigned", which is no list of nodes
        return ()
    return tuple(map(Node, dict.fromkeys(names)))


def _metadata(record: SlurmJob) -> dict[str, str]:
    """Return what no key of the event holds, without what is empty."""
    texts = {
        "jobName": record.job_name,
        "reservation": record.reservation,
        "distribution": record.distribution,
        "requestedCpus": str(record.requested_cpus or ""),
        "requestedNodes": str(record.requested_node_count or ""),
        "allocatedResources": _allocated(record),
    }
    return {key: text for key, text in texts.items() if text}


def _allocated(record: SlurmJob) -> str:
    return record.allocated_resources or (record.sacct.AllocTRES if record.sacct else "")


def _resources(record: SlurmJob) -> dict[str, int]:
    """Read whole numbers out of ``billing=8,cpu=8,gres/gpu=2,mem=16G,node=1``."""
    pairs = (piece.split("=", 1) for piece in _allocated(record).split(",") if "=" in piece)
    return {key: int(value) for key, value in pairs if value.isascii() and value.isdecimal()}
