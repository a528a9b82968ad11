"""Slurm's records as jobs: rows of sacct, and what squeue and scontrol print."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats import nodelist
from ccpipe.formats.slurm.records import Allocation, LiveJob, SacctRow, SlurmId
from ccpipe.formats.slurm.values import gpu_count, gres, index_list, tres
from ccpipe.jobs import PENDING, REQUEUED, RUNNING, Job, JobNode, Jobs, JobUsage, is_final
from ccpipe.jobs.pending import MAX_TEXT, PendingJob, count_tasks

MIB = 2**20
SIGNAL = 128
"""Added to the number of the signal that ended a job."""
NOT_STARTED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
                         "SPECIAL_EXIT", "RESV_DEL_HOLD", "REVOKED"})  # fmt: skip
WAITING = NOT_STARTED - {"REVOKED"}
"""States of jobs that are in the queue: a revoked one runs in another cluster of a federation."""
_NEVER_STARTED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REVOKED"})


def job_of_row(row: SacctRow, cluster: str) -> Job:
    number = row.id
    job = Job(
        cluster=cluster,
        id=number.job,
        step=number.step,
        state=neutral_state(row.state or "", has_run=bool(row.start and row.end)),
        submit=row.submit or 0,
        start=row.start or 0,
        end=row.end or 0,
        user=user_name(row.user, row.uid),
        array_task=array_task(number),
        raw=row,
    )
    if number.step:
        return job
    usage = JobUsage(
        wallclock=row.elapsed, cpu=row.total_cpu, user=row.user_cpu, system=row.system_cpu
    )
    return replace(
        job,
        array_id=number.array_job or 0,
        het_id=number.het_job or 0,
        het_offset=number.het_offset,
        name=clean(row.job_name),
        project=clean(row.account),
        partition=row.partition or "",
        **resources(_names(row.node_list), row.allocation, row.alloc_tres),
        requested_hwthreads=row.req_cpus or 0,
        memory=_megabytes(memory_per_node(row)),
        shared=shared_by(row.oversubscribe),
        walltime=60 * (minutes(row.time_limit) or 0),
        metadata=metadata_of(
            row.reservation, row.layout, row.req_cpus, row.req_nodes, row.alloc_tres
        ),
        usage=usage if row.end else None,
    )


def job_of_live(live: LiveJob, cluster: str) -> Job:
    """Return a job that squeue lists.

    When a pending job is expected to start, and when a running one must end, is left out.
    """
    number, state = live.id, live.state or ""
    started = has_started(live)
    start = live.start or 0 if started else 0
    end = live.end or 0 if is_final(state.lower()) else 0
    allocated = live.alloc_tres if started else None
    return Job(
        cluster=cluster,
        id=number.job,
        step=number.step,
        array_id=number.array_job or 0,
        array_task=array_task(number),
        het_id=number.het_job or 0,
        het_offset=number.het_offset,
        state=neutral_state(state, has_run=bool(start and end)),
        name=clean(live.name),
        user=user_name(live.user, live.uid),
        project=clean(live.account),
        partition=live.partition or "",
        submit=live.submit or 0,
        start=start,
        end=end,
        **resources(_names(live.node_list), live.allocation if started else (), allocated),
        requested_hwthreads=live.cpus or 0,
        memory=_megabytes(live_memory_per_node(live)),
        shared=shared_by(live.oversubscribe) if started else "",
        walltime=60 * (minutes(live.time_limit) or 0),
        metadata=metadata_of(live.reservation, None, live.cpus, live.nodes, allocated),
        raw=live,
    )


def pending_of_live(live: LiveJob, cluster: str) -> PendingJob:
    """Return a job that squeue lists in a state of ``WAITING``."""
    number = live.id
    is_array = number.array_job is not None
    texts = {
        "user": user_name(live.user, live.uid), "name": clean(live.name),
        "project": clean(live.account), "partition": clean(live.partition),
        "reason": clean(live.reason) or _STATE_REASONS.get(live.state or "", ""),
    }  # fmt: skip
    return PendingJob(
        cluster=cluster,
        id=number.job,
        submit=(live.submit or 0) // 10**9,
        nodes=live.nodes or 0,
        hwthreads=live.cpus or 0,
        walltime=60 * (minutes(live.time_limit) or 0),
        tasks=max(1, count_tasks(number.pending_tasks)) if is_array else 0,
        **{name: text[:MAX_TEXT] for name, text in texts.items()},
    )


_STATE_REASONS = {"CONFIGURING": "Configuring", "REQUEUED": "Requeued"}
"""Reasons of jobs for which Slurm has none."""


def with_comment_gpus(job: Job) -> Job:
    """Return a job of one node with the GPUs that its comment names, if Slurm names none."""
    raw = job.raw
    if len(job.nodes) != 1 or not isinstance(raw, SacctRow | LiveJob) or not raw.allocation:
        return job
    node, gpus = job.nodes[0], raw.allocation[0].comment_gpus
    if node.accelerators or not gpus:
        return job
    node = replace(node, accelerators=gpus, gpus=node.gpus or len(gpus))
    return replace(job, nodes=(node,), accelerators=job.accelerators or len(gpus))


def original(job: Job) -> bytes:
    """Return a job for a dead letter, without its script, which may contain secrets."""
    return Jobs([replace(job, start_metadata={})]).original(0)


def has_started(job: LiveJob) -> bool:
    """Return whether a job's start is a fact, not what the scheduler expects."""
    return job.state not in NOT_STARTED and job.node_list is not None


def steady(raw: SacctRow | LiveJob) -> SacctRow | LiveJob:
    """Return a record without what changes all the time, or is only expected."""
    if isinstance(raw, LiveJob):
        start = raw.start if has_started(raw) else None
        end = raw.end if is_final((raw.state or "").lower()) else None
        return replace(raw, priority=None, reason=None, start=start, end=end)
    if raw.end is None:
        return replace(raw, priority=None, elapsed=None, suspended=None)
    return replace(raw, priority=None)


def array_task(number: SlurmId) -> int | None:
    """Return the task of an array; 0 of the tasks that are still pending together."""
    return None if number.array_job is None else number.array_task or 0


def exit_code(row: SacctRow) -> int:
    """Return the exit code; 128 + signal where a signal ended the job."""
    return SIGNAL + row.exit_signal if row.exit_signal else row.exit_code or 0


def minutes(seconds: float | None) -> int | None:
    """Return a time limit in whole minutes; None without one."""
    return None if seconds is None or math.isinf(seconds) else math.ceil(seconds / 60)


def memory_per_node(row: SacctRow) -> int | None:
    if row.req_mem is None or row.req_mem_of == "node":
        return row.req_mem
    whole = row.requested_memory
    return None if whole is None else whole // max(row.req_nodes or 1, 1)


def live_memory_per_node(job: LiveJob) -> int | None:
    if job.memory_per_node is not None or job.memory_per_cpu is None:
        return job.memory_per_node
    return job.memory_per_cpu * (job.cpus or 1) // max(job.nodes or 1, 1)


def user_name(name: str | None, uid: int | None) -> str:
    """Return a user's name, or the number if the name is unknown."""
    if name:
        return clean(name)
    return "" if uid is None else str(uid)


def clean(text: str | None) -> str:
    if not text or text.isascii():
        return text or ""
    return text.encode(errors="replace").decode()


def neutral_state(state: str, *, has_run: bool) -> str:
    """Return a job's state by Slurm's word for it; REQUEUED is the end of a run that there was."""
    if state == "REQUEUED" and has_run:
        return REQUEUED
    if not state or is_final(state.lower()):
        return state.lower()
    return PENDING if state in _NEVER_STARTED else RUNNING


def _megabytes(size: int | None) -> int:
    """Return bytes in units of MB, as events have them: Slurm's MB are MiB."""
    return (-(-(size or 0) // 1024) // 1024) * 10**6


def shared_by(oversubscribe: str | None) -> str:
    """Return whether other jobs may run on the job's nodes; empty if none may."""
    if oversubscribe in (None, "", "NO"):
        return ""
    return "single_user" if oversubscribe == "USER" else "multi_user"


def resources(
    names: Iterable[str], allocation: Iterable[Allocation], alloc_tres: str | None
) -> dict[str, Any]:
    """Return what a job has; of ``cpu=8,gres/gpu=2,mem=16G,node=1`` only the whole numbers."""
    nodes = _job_nodes(names, allocation, alloc_tres or "")
    pairs = (pair.split("=", 1) for pair in (alloc_tres or "").split(",") if "=" in pair)
    amounts = {key: int(text) for key, text in pairs if text.isascii() and text.isdecimal()}
    return {
        "nodes": nodes,
        "hwthreads": amounts.get("cpu", 0),
        "accelerators": amounts.get("gres/gpu", 0) or sum(len(node.accelerators) for node in nodes),
    }


def _names(node_list: str | None) -> list[str]:
    try:
        return nodelist.expand(node_list) if node_list else []
    except DataError:
        return []


def _job_nodes(
    names: Iterable[str], allocation: Iterable[Allocation], alloc_tres: str
) -> tuple[JobNode, ...]:
    """Return the nodes of a job, with Slurm's numbers of the CPUs and GPUs that it has of them."""
    known: dict[str, JobNode] = {}
    for part in allocation:
        with contextlib.suppress(DataError):
            known |= {node.hostname: node for node in _allocated_nodes(part)}
    nodes = tuple(known.get(name) or JobNode(name) for name in dict.fromkeys(names))
    return (_only_node(nodes[0], alloc_tres),) if len(nodes) == 1 else nodes


def _allocated_nodes(part: Allocation) -> Iterator[JobNode]:
    """Yield the nodes of an allocation; raises DataError."""
    cpus = index_list(part.cpu_ids)
    gpus = [resource for resource in gres(part.gres) if resource.name == "gpu"]
    accelerators = tuple(str(index) for resource in gpus for index in resource.indices)
    for name in nodelist.expand(part.node_list):
        yield JobNode(
            name,
            cpus,
            accelerators,
            cpus=len(cpus) or None,
            gpus=sum(resource.count for resource in gpus) if cpus else None,
            memory=None if part.memory is None else part.memory // MIB,
        )


def _only_node(node: JobNode, alloc_tres: str) -> JobNode:
    """Return the node of a job that has no other: all of its allocation is there."""
    try:
        amounts = tres(alloc_tres)
    except DataError:
        return node
    cpus, memory = amounts.get("cpu"), amounts.get("mem")
    if node.cpus is not None or cpus is None:
        return node
    size = None if memory is None else int(memory) // MIB
    return replace(node, cpus=int(cpus), gpus=gpu_count(alloc_tres), memory=size)


def metadata_of(
    reservation: str | None,
    layout: str | None,
    cpus: int | None,
    nodes: int | None,
    alloc_tres: str | None,
) -> dict[str, str]:
    texts = {
        "reservation": clean(reservation),
        "distribution": layout or "",
        "requestedCpus": str(cpus or ""),
        "requestedNodes": str(nodes or ""),
        "allocatedResources": alloc_tres or "",
    }
    return {key: text for key, text in texts.items() if text}
