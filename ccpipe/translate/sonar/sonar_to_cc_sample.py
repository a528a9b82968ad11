"""Sonar's samples to metrics: counters become their growth since the node's previous sample."""

import math
from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter, sub
from typing import NamedTuple

from ccpipe.formats.lineprotocol.builder import Codes, LinesBuilder
from ccpipe.formats.sonar import (
    SampleAttributes,
    SampleDisk,
    SampleGpu,
    SampleJob,
    SampleProcess,
    SampleSystem,
)
from ccpipe.formats.sonar.sums import Seen, add_up, shares
from ccpipe.formats.sonar.types.timestamp import parse as parse_time
from ccpipe.translate.sonar.sonar_metrics import (
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
    SonarMetric,
)

SECOND = 10**9
JITTER = 60 * SECOND
"""Maximum drift of the boot time that the kernel reports."""

_MOST_DEVICES = 1024

_SYSTEM_FLOATS = [row for row in SYSTEM if row.kind is float]
_SYSTEM_INTS = [row for row in SYSTEM if row.kind is int]
_system_floats = attrgetter(*(row.field for row in _SYSTEM_FLOATS))
_system_ints = attrgetter(*(row.field for row in _SYSTEM_INTS))
_GPU_INTS = [row for row in GPU if row.kind is int]
_gpu_ints = attrgetter(*(row.field for row in _GPU_INTS))
(_GPU_MEMORY,) = (row for row in GPU if row.kind is float)
(_JOB_GPU_MEMORY,) = (row for row in JOB_GPU if row.field == "gpu_memory")

_JobKey = tuple[int, int, str]
"""Job, epoch and user."""


class _GpuCodes(NamedTuple):
    ints: Codes
    memory: Codes
    state: Codes


class _Job:
    """The state of a job: its series codes, and its processes' last counters."""

    __slots__ = ("cards", "floats", "ints", "seen", "tags")

    def __init__(self, tags: Mapping[str, str], columns: LinesBuilder, seen: Seen | None) -> None:
        self.tags = tags
        self.floats = _codes(columns, JOB_FLOATS, tags)
        self.ints = _codes(columns, JOB_INTS, tags)
        self.cards: dict[str, Codes] = {}
        self.seen = seen


class NodeSamples:
    """The state of one node: its last counters, and its series codes."""

    def __init__(self, cluster: str, name: str, columns: LinesBuilder) -> None:
        """Begin without a sample."""
        tags = {"cluster": cluster, "hostname": name, "type": "node"}
        self._tags = tags
        self._table = columns.table
        self._system_floats = _codes(columns, _SYSTEM_FLOATS, tags)
        self._system_ints = _codes(columns, _SYSTEM_INTS, tags)
        self._boot_time = _codes(columns, (BOOT,), tags)
        self._cpu_used = _codes(columns, (CPU_USED,), tags)
        self._hwthreads = array("i")
        self._gpus: dict[str, _GpuCodes] = {}
        self._disks: dict[str, Codes] = {}
        self._jobs: dict[_JobKey, _Job] = {}
        self._time = self._system_time = 0
        self._booted: int | None = None
        self._cpus: Sequence[int] = ()
        self._stats: dict[str, tuple[int, ...]] = {}

    def fits(self, columns: LinesBuilder) -> bool:
        """Return whether the series codes are those of the table that is written to."""
        return self._table is columns.table

    @property
    def series(self) -> int:
        """Approximate number of its series."""
        return (
            len(SYSTEM)
            + len(self._hwthreads)
            + len(GPU) * len(self._gpus)
            + len(DISK) * len(self._disks)
            + (len(JOB_FLOATS) + len(JOB_INTS)) * len(self._jobs)
        )

    def take(self, other: "NodeSamples", columns: LinesBuilder) -> "NodeSamples":
        """Take over the last counters of a node whose codes are of another table."""
        for name in ("_time", "_system_time", "_booted", "_cpus", "_stats"):
            setattr(self, name, getattr(other, name))
        self._jobs = {
            key: self._begin_job(key, columns, job.seen)
            for key, job in other._jobs.items()  # noqa: SLF001 - the same class
        }
        return self

    def add(
        self, sample: SampleAttributes, time: int, columns: LinesBuilder, *, batch_only: bool
    ) -> None:
        """Write a sample's metrics; `batch_only` leaves out all but batch jobs."""
        if sample.system is not None:
            self._add_node(sample.system, time, columns)
        maximum = 100.0 * len(self._cpus) or math.inf
        late = time <= self._time
        seconds = (time - self._time) / SECOND if self._time else 0.0
        self._add_jobs(
            sample.jobs, None if late else seconds, columns, maximum, batch_only=batch_only
        )
        self._time = max(time, self._time)

    def _add_node(self, system: SampleSystem, time: int, columns: LinesBuilder) -> None:
        """Write the metrics of the node as a whole."""
        booted = parse_time(system.boot)
        if booted is not None and booted > (self._booted or booted) + JITTER:
            self._system_time = self._time = 0
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
        self, system: SampleSystem, booted: int | None, seconds: float, columns: LinesBuilder
    ) -> None:
        floats, ints = columns.floats, columns.ints
        floats.codes += self._system_floats
        floats.values += _system_floats(system)
        ints.codes += self._system_ints
        ints.values += _system_ints(system)
        if booted is not None:
            ints.codes += self._boot_time
            ints.values.append(booted // SECOND)
        if seconds and system.cpus and (used := shares(system.cpus, self._cpus, 100 / seconds)):
            floats.codes += self._codes_of_cpus(len(system.cpus), columns)
            floats.values += used[0]
            floats.codes += self._cpu_used
            floats.values.append(used[1])
        for gpu in system.gpus:
            self._add_gpu(gpu, columns)

    def _codes_of_cpus(self, count: int, columns: LinesBuilder) -> Codes:
        for cpu in range(len(self._hwthreads), count):
            tags = {**self._tags, "type": "hwthread", "type-id": str(cpu)}
            self._hwthreads.append(columns.code(CPU_USED.name, tags))
        return _first(self._hwthreads, count)

    def _add_gpu(self, gpu: SampleGpu, columns: LinesBuilder) -> None:
        codes = self._gpus.get(gpu.uuid) or self._codes_of_gpu(gpu, columns)
        ints, floats = columns.ints, columns.floats
        ints.codes += codes.ints
        ints.values += _gpu_ints(gpu)
        floats.codes += codes.memory
        floats.values.append(gpu.memory * _GPU_MEMORY.scale)
        state = gpu.performance_state.value
        if state is not None:
            ints.codes += codes.state
            ints.values.append(state)

    def _codes_of_gpu(self, gpu: SampleGpu, columns: LinesBuilder) -> _GpuCodes:
        if len(self._gpus) > _MOST_DEVICES:
            self._gpus.clear()
        tags = {**self._tags, "type": "accelerator", "type-id": gpu.uuid or str(gpu.index)}
        kinds = (_GPU_INTS, (_GPU_MEMORY,), (PERFORMANCE_STATE,))
        codes = self._gpus[gpu.uuid] = _GpuCodes(*(_codes(columns, rows, tags) for rows in kinds))
        return codes

    def _add_disks(
        self, disks: Sequence[SampleDisk], seconds: float, columns: LinesBuilder
    ) -> None:
        for disk in disks:
            before = self._stats.get(disk.name)
            if not seconds or before is None or len(before) != len(disk.stats):
                continue
            gains = list(map(sub, disk.stats, before))[: len(DISK)]
            if len(gains) > IN_PROGRESS:
                gains[IN_PROGRESS] = disk.stats[IN_PROGRESS]
            if gains and min(gains) >= 0:
                codes = self._disks.get(disk.name) or self._codes_of_disk(disk, columns)
                columns.ints.codes += _first(codes, len(gains))
                columns.ints.values += gains

    def _codes_of_disk(self, disk: SampleDisk, columns: LinesBuilder) -> Codes:
        if len(self._disks) > _MOST_DEVICES:
            self._disks.clear()
        tags = {**self._tags, "stype": "device", "stype-id": disk.name}
        codes = self._disks[disk.name] = _codes(columns, DISK, tags)
        return codes

    def _add_jobs(
        self,
        jobs: Sequence[SampleJob],
        seconds: float | None,
        columns: LinesBuilder,
        maximum: float,
        *,
        batch_only: bool,
    ) -> None:
        """Write the jobs' metrics; only levels without `seconds`, that is for a late sample."""
        known, now = self._jobs, {}
        int_codes, ints = columns.ints.codes, columns.ints.values
        float_codes, floats = columns.floats.codes, columns.floats.values
        for job in _merged(jobs):
            if batch_only and job.epoch:
                continue
            key = job.job, job.epoch, job.user
            it = now[key] = known.get(key) or self._begin_job(key, columns)
            before = it.seen if seconds else None
            levels, (average, used, read, written), cards, seen = add_up(job.processes, before)
            int_codes += it.ints
            ints += levels
            if seconds is not None:
                it.seen = seen
                if seconds and before and before[0]:
                    float_codes += it.floats
                    share = min(100 * used / seconds + average, maximum)
                    floats += (share, 1024 * read / seconds, 1024 * written / seconds)
                else:  # the first sample of a job has only `cpu_avg`
                    float_codes += it.floats[:1]
                    floats.append(min(average, maximum))
            for uuid, (util, memory, memory_util) in cards.items():
                float_codes += it.cards.get(uuid) or _codes_of_card(it, uuid, columns)
                floats += (util, memory * _JOB_GPU_MEMORY.scale, memory_util)
        if seconds is not None:
            self._jobs = now

    def _begin_job(self, key: _JobKey, columns: LinesBuilder, seen: Seen | None = None) -> _Job:
        job, epoch, user = key
        number = f"{job}.{epoch}" if epoch else str(job)
        return _Job({**self._tags, "stype": "job", "stype-id": number, "user": user}, columns, seen)


def _merged(jobs: Sequence[SampleJob]) -> Sequence[SampleJob]:
    """Join objects of one job: Sonar writes one with job 0 for each thread of the kernel."""
    processes: dict[_JobKey, list[SampleProcess]] = {}
    for job in jobs:
        processes.setdefault((job.job, job.epoch, job.user), []).extend(job.processes)
    if len(processes) == len(jobs):
        return jobs
    return [
        SampleJob(number, user, epoch, tuple(members))
        for (number, epoch, user), members in processes.items()
    ]


def _codes_of_card(job: _Job, uuid: str, columns: LinesBuilder) -> Codes:
    tags = {**job.tags, "type": "accelerator", "type-id": uuid}
    codes = job.cards[uuid] = _codes(columns, JOB_GPU, tags)
    return codes


def _codes(columns: LinesBuilder, rows: Sequence[SonarMetric], tags: Mapping[str, str]) -> Codes:
    return columns.codes((row.name for row in rows), tags)


def _first(codes: Codes, count: int) -> Codes:
    return codes if len(codes) == count else codes[:count]
