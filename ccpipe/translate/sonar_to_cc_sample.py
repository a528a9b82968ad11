"""Sonar's samples to metrics: counters become what they grew by since the node's last sample."""

import math
from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter, sub
from typing import NamedTuple

from ccpipe.formats.sonar import SampleAttributes, SampleDisk, SampleGpu, SampleJob, SampleSystem
from ccpipe.formats.sonar.timestamp import moment
from ccpipe.translate.columns import Codes, Columns
from ccpipe.translate.sonar_metrics import (
    BOOT,
    CPU_USED,
    DISK,
    GPU,
    IN_PROGRESS,
    JOB_FLOATS,
    JOB_GPU,
    JOB_INTS,
    PERFORMANCE_STATE,
    SYSTEM,
    Row,
)

SECOND = 10**9
JITTER = 60 * SECOND
"""By how much the kernel's own notion of when it booted may wander."""

_MOST_DEVICES = 1024

_SYSTEM_FLOATS = [row for row in SYSTEM if row.kind is float]
_SYSTEM_INTS = [row for row in SYSTEM if row.kind is int]
_system_floats = attrgetter(*(row.field for row in _SYSTEM_FLOATS))
_system_ints = attrgetter(*(row.field for row in _SYSTEM_INTS))
_GPU_INTS = [row for row in GPU if row.kind is int]
_gpu_ints = attrgetter(*(row.field for row in _GPU_INTS))
(_GPU_MEMORY,) = (row for row in GPU if row.kind is float)

Process = tuple[int, int, int]
"""``cpu_time``, ``data_read`` and ``data_written``, all cumulative."""
Processes = dict[int | tuple[int, str], Process]
"""By process number; where it is zero, for a rolled-up process, by parent and command."""


_JobKey = tuple[int, int, str]
"""Number, epoch and user."""


class _JobCodes(NamedTuple):
    floats: Codes
    ints: Codes
    gpus: dict[str, Codes]


class Node:
    """What is known of one node: its last counters, and the numbers of its series."""

    def __init__(self, cluster: str, name: str, columns: Columns) -> None:
        """Begin without a last sample."""
        tags = {"cluster": cluster, "hostname": name, "type": "node"}
        self._tags = tags
        self._table = columns.table
        self._system = (_codes(columns, _SYSTEM_FLOATS, tags), _codes(columns, _SYSTEM_INTS, tags))
        (self._cpu_used, self._boot_time) = _codes(columns, (CPU_USED, BOOT), tags)
        self._hwthreads = array("i")
        self._gpus: dict[str, tuple[Codes, Codes]] = {}
        self._disks: dict[str, Codes] = {}
        self._jobs: dict[_JobKey, _JobCodes] = {}
        self._time = self._system_time = 0
        self._booted: int | None = None
        self._cpus: Sequence[int] = ()
        self._stats: dict[str, tuple[int, ...]] = {}
        self._processes: dict[_JobKey, Processes] = {}

    def fits(self, columns: Columns) -> bool:
        """Say whether the numbers of our series are those of the table that is written to."""
        return self._table is columns.table

    @property
    def series(self) -> int:
        """How many series it has, about."""
        return (
            len(SYSTEM)
            + len(self._hwthreads)
            + len(GPU) * len(self._gpus)
            + len(DISK) * len(self._disks)
            + (len(JOB_FLOATS) + len(JOB_INTS)) * len(self._jobs)
        )

    def take(self, other: "Node") -> "Node":
        """Take over the last counters of a node whose numbers are of another table."""
        for name in ("_time", "_system_time", "_booted", "_cpus", "_stats", "_processes"):
            setattr(self, name, getattr(other, name))
        return self

    def add(
        self, sample: SampleAttributes, time: int, columns: Columns, *, batch_only: bool
    ) -> None:
        """Write a sample's metrics; `batch_only` leaves out jobs that are no batch jobs."""
        if sample.system is not None:
            self._add_node(sample.system, time, columns)
        most = 100.0 * len(self._cpus) or math.inf
        late = time <= self._time
        seconds = (time - self._time) / SECOND if self._time else 0.0
        self._add_jobs(sample.jobs, None if late else seconds, columns, most, batch_only=batch_only)
        self._time = max(time, self._time)

    def _add_node(self, system: SampleSystem, time: int, columns: Columns) -> None:
        """Write what is told of the node as a whole, which not every sample does."""
        booted = moment(system.boot)
        if booted is not None and booted > (self._booted or booted) + JITTER:
            self._system_time, self._time, self._processes = 0, 0, {}
        late = time <= self._system_time
        seconds = (time - self._system_time) / SECOND if self._system_time and not late else 0.0
        self._add_system(system, booted, seconds, columns)
        self._add_disks(system.disks, seconds, columns)
        if not late:
            self._system_time = time
            self._booted = booted or self._booted
            self._cpus = system.cpus
            self._stats = {disk.name: disk.stats for disk in system.disks}

    def _add_system(
        self, system: SampleSystem, booted: int | None, seconds: float, columns: Columns
    ) -> None:
        floats, ints = self._system
        columns.floats(floats, _system_floats(system))
        columns.ints(ints, _system_ints(system))
        if booted is not None:
            columns.ints((self._boot_time,), (booted // SECOND,))
        cpus, before = system.cpus, self._cpus
        if seconds and cpus and len(cpus) == len(before):
            gains = list(map(sub, cpus, before))
            if min(gains) >= 0:
                share = 100 / seconds
                codes = self._codes_of_cpus(len(cpus), columns)
                columns.floats(codes, [share * gain for gain in gains])
                columns.floats((self._cpu_used,), (share * sum(gains),))
        for gpu in system.gpus:
            self._add_gpu(gpu, columns)

    def _codes_of_cpus(self, count: int, columns: Columns) -> Codes:
        for cpu in range(len(self._hwthreads), count):
            tags = {**self._tags, "type": "hwthread", "type-id": str(cpu)}
            self._hwthreads.append(columns.code(CPU_USED.name, tags))
        return _first(self._hwthreads, count)

    def _add_gpu(self, gpu: SampleGpu, columns: Columns) -> None:
        if gpu.uuid not in self._gpus:
            if len(self._gpus) > _MOST_DEVICES:
                self._gpus.clear()
            tags = {**self._tags, "type": "accelerator", "type-id": gpu.uuid or str(gpu.index)}
            rest = _codes(columns, (_GPU_MEMORY, PERFORMANCE_STATE), tags)
            self._gpus[gpu.uuid] = _codes(columns, _GPU_INTS, tags), rest
        codes, (memory, state) = self._gpus[gpu.uuid]
        columns.ints(codes, _gpu_ints(gpu))
        columns.floats((memory,), (gpu.memory * _GPU_MEMORY.scale,))
        if gpu.performance_state.value is not None:
            columns.ints((state,), (gpu.performance_state.value,))

    def _add_disks(self, disks: Sequence[SampleDisk], seconds: float, columns: Columns) -> None:
        for disk in disks:
            before = self._stats.get(disk.name)
            if not seconds or before is None or len(before) != len(disk.stats):
                continue
            gains = list(map(sub, disk.stats, before))[: len(DISK)]
            if len(gains) > IN_PROGRESS:
                gains[IN_PROGRESS] = disk.stats[IN_PROGRESS]
            if gains and min(gains) >= 0:
                if disk.name not in self._disks:
                    if len(self._disks) > _MOST_DEVICES:
                        self._disks.clear()
                    tags = {**self._tags, "stype": "device", "stype-id": disk.name}
                    self._disks[disk.name] = _codes(columns, DISK, tags)
                columns.ints(_first(self._disks[disk.name], len(gains)), gains)

    def _add_jobs(
        self,
        jobs: Sequence[SampleJob],
        seconds: float | None,
        columns: Columns,
        most: float,
        *,
        batch_only: bool,
    ) -> None:
        """Write the jobs' metrics; without `seconds`, for a late sample, only the levels."""
        codes, processes = {}, {}
        for job in jobs:
            if batch_only and job.epoch:
                continue
            key = job.job, job.epoch, job.user
            of_job = codes[key] = self._jobs.get(key) or self._codes_of_job(job, columns)
            columns.ints(of_job.ints, _levels(job))
            if seconds is not None:
                before = self._processes.get(key, {})
                floats, processes[key] = _rates(job, before, seconds, most)
                columns.floats(_first(of_job.floats, len(floats)), floats)
            self._add_gpus_of_job(job, of_job, columns)
        if seconds is not None:
            self._jobs, self._processes = codes, processes

    def _codes_of_job(self, job: SampleJob, columns: Columns) -> _JobCodes:
        tags = self._tags_of_job(job)
        return _JobCodes(_codes(columns, JOB_FLOATS, tags), _codes(columns, JOB_INTS, tags), {})

    def _tags_of_job(self, job: SampleJob) -> dict[str, str]:
        number = f"{job.job}.{job.epoch}" if job.epoch else str(job.job)
        return {**self._tags, "stype": "job", "stype-id": number, "user": job.user}

    def _add_gpus_of_job(self, job: SampleJob, codes: _JobCodes, columns: Columns) -> None:
        sums: dict[str, list[float]] = {}
        for process in job.processes:
            for gpu in process.gpus:
                whole = sums.setdefault(gpu.uuid, [0.0, 0.0, 0.0])
                whole[0] += gpu.gpu_util
                whole[1] += gpu.gpu_memory
                whole[2] += gpu.gpu_memory_util
        for uuid, (util, memory, share) in sums.items():
            if uuid not in codes.gpus:
                tags = {**self._tags_of_job(job), "type": "accelerator", "type-id": uuid}
                codes.gpus[uuid] = _codes(columns, JOB_GPU, tags)
            columns.floats(codes.gpus[uuid], (util, memory * JOB_GPU[1].scale, share))


def _codes(columns: Columns, rows: Sequence[Row], tags: Mapping[str, str]) -> Codes:
    return columns.codes((row.name for row in rows), tags)


def _first(codes: Codes, count: int) -> Codes:
    return codes if len(codes) == count else codes[:count]


def _levels(job: SampleJob) -> tuple[int, int, int, int]:
    """Return the sums that ``JOB_INTS`` names."""
    resident = virtual = threads = 0
    count = len(job.processes)
    for process in job.processes:
        resident += process.resident_memory
        virtual += process.virtual_memory
        count += process.rolledup
        threads += process.num_threads
    return resident * 1024, virtual * 1024, count, threads + count


def _rates(
    job: SampleJob, before: Processes, seconds: float, most: float
) -> tuple[list[float], Processes]:
    """Return what ``JOB_FLOATS`` names, and the processes for the next time.

    Of a job that was not seen before there is only the first, made of ``cpu_avg``.
    """
    now: Processes = {}
    average = 0.0
    used = read = written = 0
    known = before if seconds else {}
    for p in job.processes:
        key = p.pid or (p.ppid, p.cmd)
        now[key] = counters = time, reads, writes = p.cpu_time, p.data_read, p.data_written
        old = known.get(key, counters)
        if old is counters or time < old[0]:
            average += p.cpu_avg
        else:
            used += time - old[0]
            read += reads - old[1] if reads > old[1] else 0
            written += writes - old[2] if writes > old[2] else 0
    if not known:
        return [min(average, most)], now
    share = min(100 * used / seconds + average, most)
    return [share, 1024 * read / seconds, 1024 * written / seconds], now
