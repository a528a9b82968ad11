"""Sonar's job records as neutral jobs, for the lifecycle that emits their starts and stops."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import expand
from ccpipe.formats.slurm import gpu_count, gres, index_list, tres
from ccpipe.formats.sonar import JobId, SlurmJob
from ccpipe.formats.sonar.types.timestamp import parse as parse_time
from ccpipe.jobs import PENDING, REQUEUED, RUNNING, Job, JobNode, is_final

Shared = Literal["none", "single_user", "multi_user"]

_NO_NODES = frozenset({(), ("None assigned",)})
"""Of a job that never ran: Slurm's text."""
_NEVER_STARTED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REVOKED"})


def job_of(
    cluster: str,
    record: SlurmJob,
    shared: Shared = "none",
    gpu_ids: Mapping[str, Sequence[str]] | None = None,
    hwthreads: Mapping[str, Sequence[int]] | None = None,
) -> Job | None:
    """Return what a record says of a job; None for a step, which adds nothing.

    `shared` is for jobs of which the record does not say whether their nodes are shared. `gpu_ids`
    has the accelerators' ids of a node in the order of Slurm's indices, which stand where a node
    is not in it; `hwthreads` has its hardware threads in Slurm's order, likewise.

    Raises DataError if the record does not identify a job, or its nodes cannot be read.
    """
    if record.job_step:
        return None
    if not record.job_id or not cluster:
        raise DataError(f"the {'cluster' if record.job_id else 'job_id'} is missing")
    number = JobId.of(record)
    allocated = _resources(record)
    nodes = _nodes(record, gpu_ids or {}, hwthreads or {})
    return Job(
        cluster=cluster,
        id=record.job_id,
        array_id=record.array_job_id,
        array_task=number.array_task,
        het_id=record.het_job_id,
        het_offset=number.het_offset,
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


def _nodes(
    record: SlurmJob,
    gpu_ids: Mapping[str, Sequence[str]],
    hwthreads: Mapping[str, Sequence[int]],
) -> tuple[JobNode, ...]:
    if record.nodes in _NO_NODES:
        return ()
    names = expand(",".join(record.nodes))
    known: dict[str, JobNode] = {}
    for text in record.gres_detail:
        if text.startswith("Nodes="):
            with contextlib.suppress(DataError):
                found = _allocated_nodes(text, gpu_ids, hwthreads)
                known |= {node.hostname: node for node in found}
    nodes = tuple(known.get(name) or JobNode(name) for name in dict.fromkeys(names))
    return (_only_node(nodes[0], record),) if len(nodes) == 1 else nodes


def _only_node(node: JobNode, record: SlurmJob) -> JobNode:
    """Return the node of a job that has no other: all of its allocation is there."""
    try:
        amounts = tres(_allocated(record))
    except DataError:
        return node
    cpus, memory = amounts.get("cpu"), amounts.get("mem")
    if node.cpus is not None or cpus is None:
        return node
    gpus = gpu_count(_allocated(record))
    size = None if memory is None else int(memory) // 2**20
    return msgspec.structs.replace(node, cpus=int(cpus), gpus=gpus, memory=size)


def _allocated_nodes(
    text: str, gpu_ids: Mapping[str, Sequence[str]], hwthreads: Mapping[str, Sequence[int]]
) -> Iterator[JobNode]:
    """Read ``Nodes=c[1-2] CPU_IDs=0-3 Mem=800 GRES=gpu:a100:1(IDX:0)``; raises DataError."""
    values = dict(pair.partition("=")[::2] for pair in text.split(" "))
    cpus = index_list(values.get("CPU_IDs"))
    gpus = [resource for resource in gres(values.get("GRES")) if resource.name == "gpu"]
    indices = [index for resource in gpus for index in resource.indices]
    memory = values.get("Mem", "")
    for name in expand(values["Nodes"]):
        ids = gpu_ids.get(name, ())
        accelerators = [ids[index] if index < len(ids) else str(index) for index in indices]
        yield JobNode(
            name,
            _physical(cpus, hwthreads.get(name)),
            tuple(accelerators),
            cpus=len(cpus) or None,
            gpus=sum(resource.count for resource in gpus) if cpus else None,
            memory=int(memory) if memory.isascii() and memory.isdecimal() else None,
        )


def _physical(cpus: tuple[int, ...], order: Sequence[int] | None) -> tuple[int, ...]:
    """Return Linux's numbers of Slurm's CPUs; none where the node's topology has fewer."""
    if order is None:
        return cpus
    return tuple(sorted(order[cpu] for cpu in cpus)) if max(cpus, default=0) < len(order) else ()


class NodeUse(msgspec.Struct):
    """What the running jobs have of one node; None where that is not known of each of them."""

    jobs: int = 0
    cpus: int | None = 0
    gpus: int | None = 0
    memory: int | None = 0
    """MB."""

    def add(self, node: JobNode) -> None:
        """Add the part of one job."""
        self.jobs += 1
        self.cpus = _sum(self.cpus, node.cpus)
        self.gpus = _sum(self.gpus, node.gpus)
        self.memory = _sum(self.memory, node.memory)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def uses_of(jobs: Iterable[Job]) -> dict[str, NodeUse]:
    """Return what running jobs have of each of their nodes."""
    uses: dict[str, NodeUse] = {}
    for job in jobs:
        for node in job.nodes:
            uses.setdefault(node.hostname, NodeUse()).add(node)
    return uses


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
