"""Sonar's job records as neutral jobs, for the lifecycle that emits their starts and stops."""

from typing import Literal

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import expand
from ccpipe.formats.slurm.records import Allocation
from ccpipe.formats.sonar import SlurmJob
from ccpipe.formats.sonar.types.timestamp import parse as parse_time
from ccpipe.jobs import PENDING, REQUEUED, RUNNING, Job, JobNode, is_final
from ccpipe.translate.slurm.jobs import MIB, job_nodes

Shared = Literal["none", "single_user", "multi_user"]

_NO_NODES = frozenset({(), ("None assigned",)})
"""Of a job that never ran: Slurm's text."""
_NEVER_STARTED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REVOKED"})


def job_of(cluster: str, record: SlurmJob, shared: Shared = "none") -> Job | None:
    """Return what a record says of a job; None for a step, which adds nothing.

    `shared` is for jobs of which the record does not say whether their nodes are shared. Hardware
    threads and accelerators have Slurm's numbers.

    Raises DataError if the record does not identify a job, or its nodes cannot be read.
    """
    if record.job_step:
        return None
    if not record.job_id or not cluster:
        raise DataError(f"the {'cluster' if record.job_id else 'job_id'} is missing")
    allocated = _resources(record)
    nodes = _nodes(record)
    return Job(
        cluster=cluster,
        id=record.job_id,
        array_id=record.array_job_id,
        array_task=record.array_task_id if record.array_job_id else None,
        het_id=record.het_job_id,
        het_offset=record.het_job_offset if record.het_job_id else None,
        state=_state(record),
        name=record.job_name,
        user=record.user_name,
        project=record.account,
        partition=record.partition,
        submit=parse_time(record.submit_time) or 0,
        start=parse_time(record.start_time) or 0,
        end=parse_time(record.end_time) or 0,
        nodes=nodes,
        hwthreads=allocated.get("cpu", 0),
        requested_hwthreads=record.requested_cpus,
        accelerators=allocated.get("gres/gpu", 0) or sum(len(node.accelerators) for node in nodes),
        memory=record.requested_memory_per_node // 1024 * 10**6,
        shared=_shared(record, shared),
        walltime=60 * (record.time_limit.value or 0),
        metadata=_metadata(record),
    )


def _state(record: SlurmJob) -> str:
    """Return a state without what Slurm adds to it, as in ``CANCELLED by 1000``."""
    state = record.job_state.partition(" ")[0]
    if state == "REQUEUED" and record.start_time and record.end_time:
        return REQUEUED
    if not state or is_final(state.lower()):
        return state.lower()
    return PENDING if state in _NEVER_STARTED else RUNNING


def _shared(record: SlurmJob, default: Shared) -> str:
    """Return whether other jobs may run on the job's nodes; empty for an exclusive job."""
    found = next((text for text in record.gres_detail if text.startswith("OverSubscribe=")), "")
    match found.partition("=")[2]:
        case "":
            return "" if default == "none" else default
        case "NO":
            return ""
        case "USER":
            return "single_user"
    return "multi_user"


def _nodes(record: SlurmJob) -> tuple[JobNode, ...]:
    if record.nodes in _NO_NODES:
        return ()
    names = expand(",".join(record.nodes))
    parts = [_allocation(text) for text in record.gres_detail if text.startswith("Nodes=")]
    if not parts and len(names) > 1:  # Sonar's own records do not divide what a job has
        return tuple(map(JobNode, dict.fromkeys(names)))
    return job_nodes(names, parts, _allocated(record))


def _allocation(text: str) -> Allocation:
    """Read ``Nodes=c[1-2] CPU_IDs=0-3 Mem=800 GRES=gpu:a100:1(IDX:0)``."""
    values = dict(pair.partition("=")[::2] for pair in text.split(" "))
    memory = values.get("Mem", "")
    return Allocation(
        node_list=values["Nodes"],
        cpu_ids=values.get("CPU_IDs"),
        memory=int(memory) * MIB if memory.isascii() and memory.isdecimal() else None,
        gres=values.get("GRES"),
    )


def _metadata(record: SlurmJob) -> dict[str, str]:
    """Return what no key of the event holds, without what is empty."""
    texts = {
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
