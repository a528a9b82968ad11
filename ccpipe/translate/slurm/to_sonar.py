"""Slurm's jobs, nodes and partitions as Sonar's records, in the specification's units.

What the specification leaves open, or what differs from Sonar's own output:

- ``exit_code`` is 128 + signal where a signal ended the job (out of memory, ``0:125``, is 253).
- ``requested_memory_per_node`` is what the job requests on one of its nodes.
- ``UserCPU`` and ``SystemCPU`` are rounded to seconds, the other CPU times are whole already.
- ``AveDiskRead`` and ``AveDiskWrite`` come from the exact ``fs/disk`` where Slurm prints it.
- ``gres_detail`` holds scontrol's own text about the allocation: ``OverSubscribe=OK``, then for
  each group of nodes ``Nodes=c[1-2] CPU_IDs=0-3 Mem=800 GRES=gpu:a100:1(IDX:0)``.
- ``job_state`` is Slurm's own word, unless ``spec_state`` makes it one of the specification's.
- An array's pending tasks are one record with the array's number and task 0.

Source: Sonar JSON format output specification, *SlurmJob*, *SacctData*, *ClusterAttributes*.
"""

import functools
import math
from collections.abc import Iterable

import msgspec

from ccpipe import __version__
from ccpipe.errors import DataError
from ccpipe.formats import nodelist
from ccpipe.formats.slurm import Allocation, Cluster, LiveJob, SacctRow, tres
from ccpipe.formats.sonar import (
    INFINITE,
    UNSET,
    ClusterAttributes,
    ClusterData,
    ClusterEnvelope,
    ClusterNodes,
    ClusterPartition,
    ExtendedUint,
    JobsAttributes,
    JobsData,
    JobsEnvelope,
    MetadataObject,
    SacctData,
    SlurmJob,
    timestamp,
)
from ccpipe.jobs import is_final

META = MetadataObject(producer="ccpipe", version=__version__)
MIB = 2**20
_ALMOST_KIB = 2**10 - 1
"""Added before a number of bytes is divided, so that KiB are rounded up."""
_SIGNAL = 128
_HOUR = 3600
_REST_OF_HOUR = tuple(f"{second // 60:02}:{second % 60:02}Z" for second in range(_HOUR))
MAX_CACHED = 4096
"""Values whose text in an envelope is remembered: the rows of one job have most in common."""


def jobs_envelope(jobs: Iterable[SlurmJob], *, cluster: str, time: int) -> JobsEnvelope:
    """Return an envelope of jobs, obtained at `time`, in nanoseconds since the epoch."""
    attributes = JobsAttributes(timestamp.write(time), cluster, tuple(jobs))
    return JobsEnvelope(META, JobsData(attributes))


def cluster_envelope(cluster: Cluster, *, name: str, time: int) -> ClusterEnvelope:
    """Return an envelope of partitions and of nodes, grouped by their states."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in cluster.nodes:
        groups.setdefault(node.states, []).append(node.name)
    partitions = [
        ClusterPartition(partition.name, node_ranges(partition.node_list))
        for partition in cluster.partitions
    ]
    nodes = [
        ClusterNodes(tuple(nodelist.compress(names)), states) for states, names in groups.items()
    ]
    attributes = ClusterAttributes(
        timestamp.write(time), name, slurm=True, partitions=tuple(partitions), nodes=tuple(nodes)
    )
    return ClusterEnvelope(META, ClusterData(attributes))


def job_of_row(row: SacctRow, allocation: tuple[str, ...] = ()) -> SlurmJob:
    """Return a row of sacct as a record, with the `allocation` of a ``Detail``.

    A job that has not ended has no elapsed and suspended time: both change all the time.
    """
    number = row.id
    has_ended = row.end is not None
    signal = row.exit_signal
    return SlurmJob(  # by position, in a quarter of the time; calls for what is rare are spared
        number.job,
        number.step,
        _clean(row.job_name),
        row.state or "",
        number.array_job or 0,
        number.array_task or 0,
        number.het_job or 0,
        number.het_offset or 0,
        _clean(row.user) if row.user else _user(None, row.uid),
        _clean(row.account),
        _time(row.submit),
        _minutes(row.time_limit),
        row.partition or "",
        _clean(row.reservation) if row.reservation else "",
        node_ranges(row.node_list),
        _extended(row.priority),
        row.layout or "",
        allocation,
        row.req_cpus or 0,
        0,  # minimum_cpus_per_node
        (_memory_per_node(row) or 0) + _ALMOST_KIB >> 10,
        row.req_nodes or 0,
        _time(row.start),
        int(row.suspended or 0) if has_ended else 0,
        _time(row.end),
        _SIGNAL + signal if signal else row.exit_code or 0,
        _sacct(row, has_ended=has_ended),
        row.req_tres or "",
        row.alloc_tres or "",
    )


def job_of_live(job: LiveJob, detail: "Detail | None" = None) -> SlurmJob:
    """Return a job of squeue as a record, with what scontrol reports of it.

    When a pending job is expected to start, and when a running one must end, is left out.
    """
    state = job.state or ""
    started = has_started(job)
    detail = detail or detail_of(job)
    number = job.id
    return SlurmJob(
        job_id=number.job,
        job_step=number.step,
        array_job_id=number.array_job or 0,
        array_task_id=number.array_task or 0,
        het_job_id=number.het_job or 0,
        het_job_offset=number.het_offset or 0,
        job_name=_clean(job.name),
        job_state=state,
        user_name=_user(job.user, job.uid),
        account=_clean(job.account),
        submit_time=_time(job.submit),
        time_limit=_minutes(job.time_limit),
        partition=job.partition or "",
        reservation=_clean(job.reservation),
        nodes=node_ranges(job.node_list),
        priority=_extended(job.priority),
        gres_detail=detail.allocation,
        requested_cpus=job.cpus or 0,
        requested_memory_per_node=_kib(detail.memory_per_node),
        requested_node_count=job.nodes or 0,
        start_time=_time(job.start) if started else "",
        end_time=_time(job.end) if is_final(state.lower()) else "",
        requested_resources=detail.req_tres,
        allocated_resources=detail.alloc_tres if started else "",
    )


def has_started(job: LiveJob) -> bool:
    """Return whether a job's start is a fact, not what the scheduler expects."""
    return job.state not in PENDING and job.node_list is not None


def pending_if_requeued(job: LiveJob, time: int) -> LiveJob:
    """Return a requeued job as pending while its last run still completes.

    `time` is when squeue was called. While an epilog runs, squeue prints such a job as COMPLETING
    on the nodes of the run that ended, without a start or with the current time as its start, and
    the end of its time limit from then on as its end. The end of a run that really completes has
    passed.
    """
    if job.state != "COMPLETING" or not _ends_by_limit(job, time):
        return job
    return msgspec.structs.replace(job, state="PENDING", start=None, end=None, node_list=None)


def _ends_by_limit(job: LiveJob, time: int) -> bool:
    """Return whether a job has not ended at a time: its end is that of its time limit."""
    limit = job.time_limit
    if job.start is None or limit is None or math.isinf(limit):
        return job.end is None or job.end > time
    return job.end is not None and job.start < job.end == job.start + round(limit) * 10**9 > time


PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
                      "SPECIAL_EXIT", "RESV_DEL_HOLD", "REVOKED"})  # fmt: skip
"""States of jobs that have not started."""


def spec_state(job: SlurmJob) -> SlurmJob:
    """Return a job whose state is one of the eight that the specification knows."""
    state = job.job_state
    if state in _SPEC_STATES:
        return job
    if job.end_time:
        state = "FAILED" if state in {"NODE_FAIL", "BOOT_FAIL"} else "CANCELLED"
    else:
        state = "PENDING" if state in PENDING else "RUNNING"
    return msgspec.structs.replace(job, job_state=state)


_SPEC_STATES = frozenset({"PENDING", "RUNNING", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED",
                          "OUT_OF_MEMORY", "TIMEOUT"})  # fmt: skip


class Detail(msgspec.Struct, frozen=True, gc=False):
    """What only scontrol reports of a job."""

    start: int | None = None
    allocation: tuple[str, ...] = ()
    memory_per_node: int | None = None
    req_tres: str = ""
    alloc_tres: str = ""


def detail_of(job: LiveJob) -> Detail:
    """Return what is worth remembering of a job that scontrol printed."""
    shared = (f"OverSubscribe={job.oversubscribe}",) if job.oversubscribe else ()
    return Detail(
        job.start,
        (*shared, *map(_allocation, job.allocation)) if has_started(job) else (),
        _live_memory_per_node(job),
        job.req_tres or "",
        job.alloc_tres or "",
    )


def _allocation(allocation: Allocation) -> str:
    parts = {
        "Nodes": allocation.node_list,
        "CPU_IDs": allocation.cpu_ids or "",
        "Mem": "" if allocation.memory is None else str(allocation.memory // MIB),
        "GRES": allocation.gres or "",
    }
    return " ".join(f"{key}={text}" for key, text in parts.items())


@functools.lru_cache(MAX_CACHED)
def node_ranges(node_list: str | None) -> tuple[str, ...]:
    """Split a list of nodes at its outer commas; empty if it is no such list."""
    try:
        return tuple(nodelist.split(node_list)) if node_list else ()
    except DataError:
        return ()


def _sacct(row: SacctRow, *, has_ended: bool) -> SacctData:
    return SacctData(
        int(row.min_cpu or 0),
        row.alloc_tres or "",
        int(row.ave_cpu or 0),
        _disk(row.tres_usage_in_ave, row.ave_disk_read)
        if row.tres_usage_in_ave
        else (row.ave_disk_read or 0) + _ALMOST_KIB >> 10,
        _disk(row.tres_usage_out_ave, row.ave_disk_write)
        if row.tres_usage_out_ave
        else (row.ave_disk_write or 0) + _ALMOST_KIB >> 10,
        (row.ave_rss or 0) + _ALMOST_KIB >> 10,
        (row.ave_vm_size or 0) + _ALMOST_KIB >> 10,
        _elapsed(row) if has_ended else 0,
        round(row.system_cpu) if row.system_cpu else 0,
        round(row.user_cpu) if row.user_cpu else 0,
        (row.max_rss or 0) + _ALMOST_KIB >> 10,
        (row.max_vm_size or 0) + _ALMOST_KIB >> 10,
    )


def _elapsed(row: SacctRow) -> int:
    """Return seconds from start to end, without those suspended."""
    if row.elapsed is not None:
        return int(row.elapsed)
    if row.start is None or row.end is None:
        return 0
    return max(0, (row.end - row.start) // 10**9 - int(row.suspended or 0))


def _disk(usage: str, rounded: int | None) -> int:
    """Return KiB, of the exact number of bytes where `usage` has it."""
    try:
        exact = tres(usage).get("fs/disk")
    except DataError:
        exact = None
    return _kib(rounded if exact is None else int(exact))


def _memory_per_node(row: SacctRow) -> int | None:
    if row.req_mem is None or row.req_mem_of == "node":
        return row.req_mem
    whole = row.requested_memory
    return None if whole is None else whole // max(row.req_nodes or 1, 1)


def _live_memory_per_node(job: LiveJob) -> int | None:
    if job.memory_per_node is not None or job.memory_per_cpu is None:
        return job.memory_per_node
    return job.memory_per_cpu * (job.cpus or 1) // max(job.nodes or 1, 1)


def _kib(volume: int | None) -> int:
    return (volume or 0) + _ALMOST_KIB >> 10


@functools.lru_cache(MAX_CACHED)
def _extended(number: int | None) -> ExtendedUint:
    return UNSET if number is None else ExtendedUint(number)


@functools.lru_cache(MAX_CACHED)
def _minutes(seconds: float | None) -> ExtendedUint:
    if seconds is None:
        return UNSET
    return INFINITE if math.isinf(seconds) else ExtendedUint(math.ceil(seconds / 60))


def _user(name: str | None, uid: int | None) -> str:
    if name:
        return _clean(name)
    return "" if uid is None else str(uid)


def _time(nanoseconds: int | None) -> str:
    if not nanoseconds:
        return ""
    hour, second = divmod(nanoseconds // 10**9, _HOUR)
    return _hour(hour) + _REST_OF_HOUR[second]


@functools.lru_cache(MAX_CACHED)
def _hour(hour: int) -> str:
    """Return the beginning of times in UTC, such as ``2026-11-20T10:``."""
    return timestamp.write(hour * _HOUR * 10**9)[:-6]


def _clean(text: str | None) -> str:
    """Return a text as JSON can carry it."""
    if not text or text.isascii():
        return text or ""
    return text.encode(errors="replace").decode()
