"""Sonar's samples to metrics: counters become what they grew by since the node's last sample."""

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
        self._table = columns.lines.table
        self._system = (_codes(columns, _SYSTEM_FLOATS, tags), _codes(columns, _SYSTEM_INTS, tags))
        (self._cpu_used, self._boot_time) = _codes(columns, (CPU_USED, BOOT), tags)
        self._hwthreads = array("i")
        self._gpus: dict[str, tuple[Codes, Codes]] = {}
        self._disks: dict[str, Codes] = {}
        self._jobs: dict[tuple[int, int, str], _JobCodes] = {}
        self._time = 0
        self._booted: int | None = None
        self._cpus: Sequence[int] = ()
        self._stats: dict[str, tuple[int, ...]] = {}
        self._processes: dict[tuple[int, int], Processes] = {}

    def fits(self, columns: Columns) -> bool:
        """Say whether the numbers of our series are those of the table that is written to."""
        return self._table is columns.lines.table

    def take(self, other: "Node") -> "Node":
        """Take over the last counters of a node whose numbers are of another table."""
        for name in ("_time", "_booted", "_cpus", "_stats", "_processes"):
            setattr(self, name, getattr(other, name))
        return self

    def add(self, sample: SampleAttributes, time: int, columns: Columns, *, batch: bool) -> None:
        """Write a sample's metrics; `batch` leaves out jobs that are no batch jobs."""
        late = time <= self._time
        seconds = (time - self._time) / SECOND if self._time and not late else 0.0
        system = sample.system
        if system is not None:
            booted = moment(system.boot)
            if booted is not None and self._booted is not None and booted > self._booted + JITTER:
                seconds = 0.0
                self._forget()
            self._add_system(system, booted, time, seconds, columns)
            self._add_disks(system.disks, time, seconds, columns)
            if not late:
                self._booted = booted
                self._cpus = system.cpus
                self._stats = {disk.name: disk.stats for disk in system.disks}
        most = 100.0 * len(self._cpus) or float("inf")
        self._add_jobs(sample.jobs, time, None if late else seconds, columns, most, batch=batch)
        if not late:
            self._time = time

    def _forget(self) -> None:
        self._cpus, self._stats, self._processes = (), {}, {}

    def _add_system(
        self, system: SampleSystem, booted: int | None, time: int, seconds: float, columns: Columns
    ) -> None:
        floats, ints = self._system
        columns.floats(floats, _system_floats(system), time)
        columns.ints(ints, _system_ints(system), time)
        if booted is not None:
            columns.ints((self._boot_time,), (booted // SECOND,), time)
        cpus, before = system.cpus, self._cpus
        if seconds and cpus and len(cpus) == len(before):
            gains = list(map(sub, cpus, before))
            if min(gains) >= 0:
                share = 100 / seconds
                columns.floats(
                    self._codes_of_cpus(len(cpus), columns), [share * g for g in gains], time
                )
                columns.floats((self._cpu_used,), (share * sum(gains),), time)
        for gpu in system.gpus:
            self._add_gpu(gpu, time, columns)

    def _codes_of_cpus(self, count: int, columns: Columns) -> Codes:
        for cpu in range(len(self._hwthreads), count):
            tags = {**self._tags, "type": "hwthread", "type-id": str(cpu)}
            self._hwthreads.append(columns.code(CPU_USED.name, tags))
        return self._hwthreads if len(self._hwthreads) == count else self._hwthreads[:count]

    def _add_gpu(self, gpu: SampleGpu, time: int, columns: Columns) -> None:
        if gpu.uuid not in self._gpus:
            tags = {**self._tags, "type": "accelerator", "type-id": gpu.uuid or str(gpu.index)}
            rest = _codes(columns, (_GPU_MEMORY, PERFORMANCE_STATE), tags)
            self._gpus[gpu.uuid] = _codes(columns, _GPU_INTS, tags), rest
        codes, (memory, state) = self._gpus[gpu.uuid]
        columns.ints(codes, _gpu_ints(gpu), time)
        columns.floats((memory,), (gpu.memory * _GPU_MEMORY.scale,), time)
        if gpu.performance_state.value is not None:
            columns.ints((state,), (gpu.performance_state.value,), time)

    def _add_disks(
        self, disks: Sequence[SampleDisk], time: int, seconds: float, columns: Columns
    ) -> None:
        for disk in disks:
            before = self._stats.get(disk.name)
            if not seconds or before is None or len(before) != len(disk.stats):
                continue
            gains = list(map(sub, disk.stats, before))[: len(DISK)]
            if IN_PROGRESS < len(gains):
                gains[IN_PROGRESS] = disk.stats[IN_PROGRESS]
            if gains and min(gains) >= 0:
                if disk.name not in self._disks:
                    tags = {**self._tags, "stype": "device", "stype-id": disk.name}
                    self._disks[disk.name] = _codes(columns, DISK, tags)
                columns.ints(self._disks[disk.name][: len(gains)], gains, time)

    def _add_jobs(
        self,
        jobs: Sequence[SampleJob],
        time: int,
        seconds: float | None,
        columns: Columns,
        most: float,
        *,
        batch: bool,
    ) -> None:
        """Write the jobs' metrics; without `seconds`, for a late sample, only the levels."""
        codes, processes = {}, {}
        for job in jobs:
            if batch and job.epoch:
                continue
            key = job.job, job.epoch, job.user
            of_job = codes[key] = self._jobs.get(key) or self._codes_of_job(job, columns)
            columns.ints(of_job.ints, _levels(job), time)
            if seconds is not None:
                before = self._processes.get(key[:2], {})
                floats, processes[key[:2]] = _rates(job, before, seconds, most)
                columns.floats(of_job.floats[: len(floats)], floats, time)
            self._add_gpus_of_job(job, of_job, time, columns)
        if seconds is not None:
            self._jobs, self._processes = codes, processes

    def _codes_of_job(self, job: SampleJob, columns: Columns) -> _JobCodes:
        tags = self._tags_of_job(job)
        return _JobCodes(_codes(columns, JOB_FLOATS, tags), _codes(columns, JOB_INTS, tags), {})

    def _tags_of_job(self, job: SampleJob) -> dict[str, str]:
        number = f"{job.job}.{job.epoch}" if job.epoch else str(job.job)
        return {**self._tags, "stype": "job", "stype-id": number, "user": job.user}

    def _add_gpus_of_job(
        self, job: SampleJob, codes: _JobCodes, time: int, columns: Columns
    ) -> None:
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
            columns.floats(codes.gpus[uuid], (util, memory * JOB_GPU[1].scale, share), time)


def _codes(columns: Columns, rows: Sequence[Row], tags: Mapping[str, str]) -> "array[int]":
    return array("i", [columns.code(row.name, tags) for row in rows])


def _levels(job: SampleJob) -> tuple[int, int, int, int]:
    """Return the sums that ``JOB_INTS`` names."""
    resident = virtual = count = threads = 0
    for process in job.processes:
        resident += process.resident_memory
        virtual += process.virtual_memory
        count += process.rolledup + 1
        threads += process.num_threads
    return resident * 1024, virtual * 1024, count, threads + count


def _rates(
    job: SampleJob, before: Processes, seconds: float, most: float
) -> tuple[list[float], Processes]:
    """Return what ``JOB_FLOATS`` names, and the processes for the next time.

    Of a job that was not seen before there is only the first, made of ``cpu_avg``.
    """
    now: Processes = {}
    used = average = 0.0
    read = written = 0
    for p in job.processes:
        key = p.pid or (p.ppid, p.cmd)
        now[key] = counters = p.cpu_time, p.data_read, p.data_written
        old = before.get(key)
        if old is None or counters[0] < old[0] or not seconds:
            average += p.cpu_avg
        else:
            used += counters[0] - old[0]
            read += max(0, counters[1] - old[1])
            written += max(0, counters[2] - old[2])
    if not before or not seconds:
        return [min(average, most)], now
    share = min(100 * used / seconds + average, most)
    return [share, 1024 * read / seconds, 1024 * written / seconds], now
