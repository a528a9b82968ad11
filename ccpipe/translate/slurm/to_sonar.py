"""Slurm's jobs, nodes and partitions as Sonar's records, in the specification's units.

Choices where the specification is open, and differences from Sonar's own output:

- ``exit_code`` is 128 + signal where a signal ended the job (out of memory, ``0:125``, is 253).
- ``requested_memory_per_node`` is what the job requests on one of its nodes.
- ``UserCPU`` and ``SystemCPU`` are rounded to seconds, the other CPU times are whole already.
- ``AveDiskRead`` and ``AveDiskWrite`` are taken from the exact ``fs/disk`` where Slurm prints it.
- ``gres_detail`` is scontrol's own text about the allocation: ``OverSubscribe=OK``, then for
  each group of nodes ``Nodes=c[1-2] CPU_IDs=0-3 Mem=800 GRES=gpu:a100:1(IDX:0)``.
- ``job_state`` is Slurm's own word, unless ``spec_state`` makes it one of the specification's.
- An array's pending tasks are one record with the array's number and task 0.

Source: Sonar JSON format output specification, *SlurmJob*, *SacctData*, *ClusterAttributes*.
"""

import functools
import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from ccpipe import __version__
from ccpipe.config import Site
from ccpipe.errors import ConfigError, DataError
from ccpipe.formats import nodelist
from ccpipe.formats.slurm.cluster import Cluster
from ccpipe.formats.slurm.records import Allocation, LiveJob, SacctRow
from ccpipe.formats.slurm.values import tres
from ccpipe.formats.sonar import (
    INFINITE,
    UNSET,
    ClusterAttributes,
    ClusterData,
    ClusterEnvelope,
    ClusterNodes,
    ClusterPartition,
    Envelope,
    ErrorObject,
    ExtendedUint,
    JobsAttributes,
    JobsData,
    JobsEnvelope,
    MetadataObject,
    SacctData,
    SlurmJob,
    timestamp,
)
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.jobs import Job, Jobs, is_final
from ccpipe.pipeline import Translator
from ccpipe.records import RejectedRecord
from ccpipe.translate.slurm.jobs import (
    MIB,
    NOT_STARTED,
    clean,
    exit_code,
    has_started,
    live_memory_per_node,
    memory_per_node,
    minutes,
    original,
    user_name,
)

META = MetadataObject(producer="ccpipe", version=__version__)
_ALMOST_KIB = 2**10 - 1
"""Added before a number of bytes is divided, so that KiB are rounded up."""
_HOUR = 3600
_REST_OF_HOUR = tuple(f"{second // 60:02}:{second % 60:02}Z" for second in range(_HOUR))
MAX_CACHED = 4096
"""Values whose text in an envelope is remembered: the rows of one job have most in common."""


class SlurmToSonar(Translator[Jobs, Envelopes]):
    """Turns jobs of the source ``slurm``, and the state of its cluster, into Sonar's envelopes."""

    takes = Jobs
    gives = Envelopes

    def __init__(
        self,
        *,
        site: Site,
        states: Literal["slurm", "spec"] = "slurm",
        batch_size: int = 500,
    ) -> None:
        """Take the options.

        Parameters
        ----------
        states
            ``slurm`` sends Slurm's own words; ``spec`` one of the eight states that the
            specification knows.
        batch_size
            Records in one envelope.

        Raises
        ------
        ConfigError
            if `batch_size` is not positive.

        """
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}: it must be positive")
        self.site = site
        self.is_spec = states == "spec"
        self.batch_size = batch_size

    def feed(self, records: Jobs) -> Envelopes:
        name = self.site.cluster
        jobs, rejected = [], []
        for job in records:
            try:
                jobs.append(slurm_job(job))
            except DataError as error:
                rejected.append(RejectedRecord(original(job), str(error)))
        if self.is_spec:
            jobs = list(map(spec_state, jobs))
        envelopes: list[Envelope] = [
            jobs_envelope(jobs[at : at + self.batch_size], cluster=name, time=records.time)
            for at in range(0, len(jobs), self.batch_size)
        ]
        if records.cluster is not None:
            envelopes.append(cluster_envelope(records.cluster, name=name, time=records.time))
        if records.errors:
            time, node = timestamp.write(records.time), self.site.hostname
            errors = tuple(ErrorObject(time, text, name, node) for text in records.errors)
            envelopes.append(Envelope(META, errors=errors))
        return Envelopes(envelopes, rejected=rejected)


def jobs_envelope(jobs: Iterable[SlurmJob], *, cluster: str, time: int) -> JobsEnvelope:
    attributes = JobsAttributes(timestamp.write(time), cluster, tuple(jobs))
    return JobsEnvelope(META, JobsData(attributes))


def cluster_envelope(cluster: Cluster, *, name: str, time: int) -> ClusterEnvelope:
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


def slurm_job(job: Job) -> SlurmJob:
    """Return the record of a job as Sonar writes it; raises DataError if it is not Slurm's."""
    match job.raw:
        case SacctRow() as row:
            return job_of_row(row)
        case LiveJob() as live:
            return job_of_live(live)
    raise DataError(f"job {job.id} is not Slurm's: envelopes are made of records of Slurm only")


def job_of_row(row: SacctRow) -> SlurmJob:
    """Return a row of sacct as a record.

    A job that has not ended has no elapsed and suspended time: both change all the time.
    """
    number = row.id
    has_ended = row.end is not None
    return SlurmJob(  # by position, in a quarter of the time; calls for what is rare are spared
        number.job,
        number.step,
        clean(row.job_name),
        row.state or "",
        number.array_job or 0,
        number.array_task or 0,
        number.het_job or 0,
        number.het_offset or 0,
        user_name(row.user, row.uid),
        clean(row.account),
        _time(row.submit),
        _minutes(row.time_limit),
        row.partition or "",
        clean(row.reservation) if row.reservation else "",
        node_ranges(row.node_list),
        _extended(row.priority),
        row.layout or "",
        _allocation(row.oversubscribe, row.allocation),
        row.req_cpus or 0,
        0,  # minimum_cpus_per_node
        _kib(memory_per_node(row)),
        row.req_nodes or 0,
        _time(row.start),
        int(row.suspended or 0) if has_ended else 0,
        _time(row.end),
        exit_code(row),
        _sacct(row, has_ended=has_ended),
        row.req_tres or "",
        row.alloc_tres or "",
    )


def job_of_live(job: LiveJob) -> SlurmJob:
    """Return a job of squeue as a record.

    When a pending job is expected to start, and when a running one must end, is left out.
    """
    state = job.state or ""
    started = has_started(job)
    number = job.id
    return SlurmJob(
        job_id=number.job,
        job_step=number.step,
        array_job_id=number.array_job or 0,
        array_task_id=number.array_task or 0,
        het_job_id=number.het_job or 0,
        het_job_offset=number.het_offset or 0,
        job_name=clean(job.name),
        job_state=state,
        user_name=user_name(job.user, job.uid),
        account=clean(job.account),
        submit_time=_time(job.submit),
        time_limit=_minutes(job.time_limit),
        partition=job.partition or "",
        reservation=clean(job.reservation),
        nodes=node_ranges(job.node_list),
        priority=_extended(job.priority),
        gres_detail=_allocation(job.oversubscribe, job.allocation) if started else (),
        requested_cpus=job.cpus or 0,
        requested_memory_per_node=_kib(live_memory_per_node(job)),
        requested_node_count=job.nodes or 0,
        start_time=_time(job.start) if started else "",
        end_time=_time(job.end) if is_final(state.lower()) else "",
        requested_resources=job.req_tres or "",
        allocated_resources=(job.alloc_tres or "") if started else "",
    )


def spec_state(job: SlurmJob) -> SlurmJob:
    """Return a job whose state is one of the eight that the specification knows."""
    state = job.job_state
    if state in _SPEC_STATES:
        return job
    if job.end_time:
        state = "FAILED" if state in {"NODE_FAIL", "BOOT_FAIL"} else "CANCELLED"
    else:
        state = "PENDING" if state in NOT_STARTED else "RUNNING"
    return msgspec.structs.replace(job, job_state=state)


_SPEC_STATES = frozenset({"PENDING", "RUNNING", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED",
                          "OUT_OF_MEMORY", "TIMEOUT"})  # fmt: skip


def _allocation(oversubscribe: str | None, parts: Iterable[Allocation]) -> tuple[str, ...]:
    shared = (f"OverSubscribe={oversubscribe}",) if oversubscribe else ()
    return (*shared, *map(_allocated, parts))


def _allocated(allocation: Allocation) -> str:
    parts = {
        "Nodes": allocation.node_list,
        "CPU_IDs": allocation.cpu_ids or "",
        "Mem": "" if allocation.memory is None else str(allocation.memory // MIB),
        "GRES": allocation.gres or "",
    }
    return " ".join(f"{key}={text}" for key, text in parts.items())


@functools.lru_cache(MAX_CACHED)
def node_ranges(node_list: str | None) -> tuple[str, ...]:
    """Split a list of nodes at its outer commas; empty if it is not a list of nodes."""
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


def _kib(volume: int | None) -> int:
    return (volume or 0) + _ALMOST_KIB >> 10


@functools.lru_cache(MAX_CACHED)
def _extended(number: int | None) -> ExtendedUint:
    return UNSET if number is None else ExtendedUint(number)


@functools.lru_cache(MAX_CACHED)
def _minutes(seconds: float | None) -> ExtendedUint:
    if seconds is not None and math.isinf(seconds):
        return INFINITE
    limit = minutes(seconds)
    return UNSET if limit is None else ExtendedUint(limit)


def _time(nanoseconds: int | None) -> str:
    if not nanoseconds:
        return ""
    hour, second = divmod(nanoseconds // 10**9, _HOUR)
    return _hour(hour) + _REST_OF_HOUR[second]


@functools.lru_cache(MAX_CACHED)
def _hour(hour: int) -> str:
    """Return the beginning of times in UTC, such as ``2026-11-20T10:``."""
    return timestamp.write(hour * _HOUR * 10**9)[:-6]
