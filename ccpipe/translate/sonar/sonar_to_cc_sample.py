"""Sonar's samples to metrics: counters become their growth since the node's previous sample."""

import logging
import math
from array import array
from collections.abc import Container, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol.builder import Codes, LinesBuilder, NumberRows
from ccpipe.formats.sonar import sums
from ccpipe.formats.sonar.types.timestamp import parse as parse_time
from ccpipe.translate.sonar import sonar_metrics as metrics

log = logging.getLogger(__name__)

SECOND = 10**9
JITTER = 60 * SECOND
"""Maximum drift of the boot time that the kernel reports."""

_MOST_DEVICES = 1024

_SYSTEM_FLOATS = [row for row in metrics.SYSTEM if row.kind is float]
_SYSTEM_INTS = [row for row in metrics.SYSTEM if row.kind is int]
_system_floats = attrgetter(*(row.field for row in _SYSTEM_FLOATS))
_system_ints = attrgetter(*(row.field for row in _SYSTEM_INTS))
_GPU_INTS = [row for row in metrics.GPU if row.kind is int]
_gpu_ints = attrgetter(*(row.field for row in _GPU_INTS))
(_GPU_MEMORY,) = (row for row in metrics.GPU if row.kind is float)
(_JOB_GPU_MEMORY,) = (row for row in metrics.JOB_GPU if row.field == "gpu_memory")

_gpus = attrgetter("gpus")

JobKey = tuple[int, int, str]
"""Job, epoch and user."""


class _GpuCodes(NamedTuple):
    ints: Codes
    memory: Codes
    state: Codes


class _JobCodes:
    """A job's series codes."""

    __slots__ = ("data", "gpus", "ints", "tags", "used")

    def __init__(self, tags: Mapping[str, str], columns: LinesBuilder) -> None:
        self.tags = tags
        self.used = _codes(columns, metrics.JOB_FLOATS[:1], tags)
        self.data = _codes(columns, metrics.JOB_FLOATS[1:], tags)
        self.ints = _codes(columns, metrics.JOB_INTS, tags)
        self.gpus: dict[str, Codes] = {}


class NodeCounters(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A node's counters in its last sample, from which the next one's growth is computed."""

    time: int = 0
    """In nanoseconds; 0 before the first sample, and after a reboot."""
    system_time: int = 0
    """Time of the last sample with `cpus` and `disks`."""
    booted: int | None = None
    cpus: sums.Column = sums.column(())
    disks: dict[str, tuple[int, ...]] = {}
    jobs: dict[JobKey, sums.ProcessSnapshot] = {}


class NodeSamples:
    """The state of one node: its last counters, and its series codes."""

    def __init__(
        self, cluster: str, name: str, columns: LinesBuilder, counters: NodeCounters
    ) -> None:
        tags = {"cluster": cluster, "hostname": name, "type": "node"}
        self.counters = counters
        self._tags = tags
        self._table = columns.table
        self._system_floats = _codes(columns, _SYSTEM_FLOATS, tags)
        self._system_ints = _codes(columns, _SYSTEM_INTS, tags)
        self._boot_time = _codes(columns, (metrics.BOOT,), tags)
        self._cpu_used = _codes(columns, (metrics.CPU_USED,), tags)
        self._hwthreads = array("i")
        self._gpus: dict[str, _GpuCodes] = {}
        self._disks: dict[str, Codes] = {}
        self._jobs: dict[JobKey, _JobCodes] = {}
        self._is_early = False

    def fits(self, columns: LinesBuilder) -> bool:
        """Return whether the series codes belong to the table that is written to."""
        return self._table is columns.table

    @property
    def series(self) -> int:
        """Approximate number of its series."""
        return (
            len(metrics.SYSTEM)
            + len(self._hwthreads)
            + len(metrics.GPU) * len(self._gpus)
            + len(metrics.DISK) * len(self._disks)
            + (len(metrics.JOB_FLOATS) + len(metrics.JOB_INTS)) * len(self._jobs)
        )

    def add(
        self,
        sample: sonar.SampleAttributes,
        time: int,
        columns: LinesBuilder,
        *,
        newest: int,
        batch_only: bool,
    ) -> None:
        """Write a sample's metrics; with `batch_only` only of batch jobs, besides the node's.

        A sample after `newest` has no gains: one wrong clock would leave all later ones without.
        """
        self._check_clock(time, newest)
        booted = parse_time(sample.system.boot) if sample.system is not None else None
        last = self.counters
        late = time <= last.time or time > newest
        if not late and booted is not None and abs(booted - (last.booted or booted)) > JITTER:
            last = NodeCounters()
        seconds = (time - last.time) / SECOND if last.time and not late else 0.0
        now: dict[str, Any] = {"time": time}
        capacity = _Capacity(100.0 * len(last.cpus) or math.inf)
        idle: set[str] = set()
        if sample.system is not None:
            system = sample.system
            idle = {gpu.uuid for gpu in system.gpus if not (gpu.ce_util or gpu.failing)}
            is_counted = bool(last.system_time) and not late
            of_system = (time - last.system_time) / SECOND if is_counted else 0.0
            cpus = sums.column(system.cpus)
            used = self._add_system(system, booted, last.cpus, of_system, columns)
            self._add_disks(system.disks, last.disks, of_system, columns)
            capacity = _capacity(len(system.cpus), used if of_system == seconds else None, seconds)
            now |= {"system_time": time, "booted": booted or last.booted, "cpus": cpus}
            now["disks"] = {disk.name: disk.stats for disk in system.disks}
        jobs = [job for job in _merged(sample.jobs) if not (batch_only and job.epoch)]
        now["jobs"] = self._add_jobs(
            jobs, last.jobs, seconds, columns, capacity, idle=idle, late=late
        )
        if not late:
            self.counters = msgspec.structs.replace(last, **now)

    def _check_clock(self, time: int, newest: int) -> None:
        """Report samples of the future, and forget those that were remembered."""
        where = f"{self._tags['cluster']}: {self._tags['hostname']}"
        if self.counters.time > newest:
            log.warning("%s: its counters are of the future: they begin anew", where)
            self.counters = NodeCounters()
        if time > newest and not self._is_early:
            ahead = (time - newest) // SECOND
            log.warning("%s: a sample is %d s beyond max_future: it has no gains", where, ahead)
        self._is_early = time > newest

    def _add_system(
        self,
        system: sonar.SampleSystem,
        booted: int | None,
        before: Sequence[int],
        seconds: float,
        columns: LinesBuilder,
    ) -> float | None:
        """Write the metrics of the node as a whole; return what its processors were used."""
        floats, ints = columns.floats, columns.ints
        loads = _system_floats(system)
        if system.existing_entities or any(loads):  # from one file, with one process at least
            floats.codes += self._system_floats
            floats.values += loads
        _add_known(ints, self._system_ints, _system_ints(system), _SYSTEM_INTS)
        if booted is not None:
            ints.codes += self._boot_time
            ints.values.append(booted // SECOND)
        for gpu in system.gpus:
            self._add_gpu(gpu, columns)
        used = sums.shares(system.cpus, before, seconds) if seconds and system.cpus else None
        if used is None:
            return None
        floats.codes += self._codes_of_cpus(len(system.cpus), columns)
        floats.values += used[0]
        floats.codes += self._cpu_used
        floats.values.append(used[1])
        return used[1]

    def _codes_of_cpus(self, count: int, columns: LinesBuilder) -> Codes:
        for cpu in range(len(self._hwthreads), count):
            tags = {**self._tags, "type": "hwthread", "type-id": str(cpu)}
            self._hwthreads.append(columns.code(metrics.CPU_USED.name, tags))
        return _first(self._hwthreads, count)

    def _add_gpu(self, gpu: sonar.SampleGpu, columns: LinesBuilder) -> None:
        codes = self._gpus.get(gpu.uuid) or self._codes_of_gpu(gpu, columns)
        ints, floats = columns.ints, columns.floats
        is_failing = gpu.failing != 0  # so that nothing may be known of it
        _add_known(ints, codes.ints, _gpu_ints(gpu), _GPU_INTS, no_zeroes=is_failing)
        if gpu.memory or not is_failing:
            floats.codes += codes.memory
            floats.values.append(gpu.memory * _GPU_MEMORY.scale)
        state = gpu.performance_state.value
        if state is not None:
            ints.codes += codes.state
            ints.values.append(state)

    def _codes_of_gpu(self, gpu: sonar.SampleGpu, columns: LinesBuilder) -> _GpuCodes:
        if len(self._gpus) > _MOST_DEVICES:
            self._gpus.clear()
        tags = {**self._tags, "type": "accelerator", "type-id": gpu.uuid or str(gpu.index)}
        kinds = (_GPU_INTS, (_GPU_MEMORY,), (metrics.PERFORMANCE_STATE,))
        codes = self._gpus[gpu.uuid] = _GpuCodes(*(_codes(columns, rows, tags) for rows in kinds))
        return codes

    def _add_disks(
        self,
        disks: Sequence[sonar.SampleDisk],
        before: Mapping[str, Sequence[int]],
        seconds: float,
        columns: LinesBuilder,
    ) -> None:
        """Write what disks did; nothing of a disk whose counters were reset."""
        for disk in disks:
            last = before.get(disk.name)
            if not seconds or last is None or len(last) != len(disk.stats):
                continue
            gains = list(map(_disk_gain, disk.stats, last))[: len(metrics.DISK)]
            if len(gains) > metrics.IN_PROGRESS:
                gains[metrics.IN_PROGRESS] = disk.stats[metrics.IN_PROGRESS]
            if gains and min(gains) >= 0:
                codes = self._disks.get(disk.name) or self._codes_of_disk(disk, columns)
                columns.ints.codes += _first(codes, len(gains))
                columns.ints.values += gains

    def _codes_of_disk(self, disk: sonar.SampleDisk, columns: LinesBuilder) -> Codes:
        if len(self._disks) > _MOST_DEVICES:
            self._disks.clear()
        tags = {**self._tags, "stype": "device", "stype-id": disk.name}
        codes = self._disks[disk.name] = _codes(columns, metrics.DISK, tags)
        return codes

    def _add_jobs(
        self,
        jobs: Sequence[sonar.SampleJob],
        before: Mapping[JobKey, sums.ProcessSnapshot],
        seconds: float,
        columns: LinesBuilder,
        capacity: "_Capacity",
        *,
        idle: Container[str],
        late: bool,
    ) -> dict[JobKey, sums.ProcessSnapshot]:
        """Write the jobs' metrics; return their counters for the next sample.

        Without `seconds` it is the first sample of the node, where only ``cpu_avg`` is known; one
        that is `late` has only levels. A job's use of a GPU is also 0 if unknown: only on the
        `idle` GPUs 0 is a value.
        """
        known, codes, snapshots = self._jobs, {}, {}
        int_codes, ints = columns.ints.codes, columns.ints.values
        float_codes, floats = columns.floats.codes, columns.floats.values
        for job in jobs:
            key = job.job, job.epoch, job.user
            processes, last = job.processes, before.get(key, _NOTHING)
            now = snapshots[key] = sums.snapshot(processes, last)
            of_job = codes[key] = known.get(key) or self._codes_of_job(key, columns)
            int_codes += of_job.ints
            ints += sums.levels(processes)
            if seconds:
                growth = sums.growth(last, now, processes)
                float_codes += of_job.used
                floats.append(capacity.used(growth, seconds))
                if now.has_data:  # else Sonar was not permitted to read it
                    float_codes += of_job.data
                    (_, read, written), (_, new_read, new_written) = growth.lasting, growth.new
                    floats.append(1024 * (read + new_read) / seconds)
                    floats.append(1024 * (written + new_written) / seconds)
            elif not late:
                float_codes += of_job.used
                floats.append(min(sums.average(processes), capacity.maximum))
            if any(map(_gpus, processes)):
                _add_job_gpus(job, of_job, columns, idle)
        if not late:
            self._jobs = codes
        return snapshots

    def _codes_of_job(self, key: JobKey, columns: LinesBuilder) -> _JobCodes:
        job, epoch, user = key
        number = f"{job}.{epoch}" if epoch else str(job)
        return _JobCodes({**self._tags, "stype": "job", "stype-id": number, "user": user}, columns)


_NOTHING = sums.ProcessSnapshot()


class _Capacity(NamedTuple):
    """Upper bound of a job's use, in percent of a hardware thread."""

    maximum: float
    is_measured: bool = False
    """Whether it is what all used together, not what there is."""

    def used(self, growth: sums.Growth, seconds: float) -> float:
        """Return what a job used.

        Where nothing bounds what new processes seem to have used, as those that a filter of
        Sonar's lets through only now, it is not more than their average.
        """
        new = 100 * growth.new[0] / seconds
        if not self.is_measured:
            new = min(new, growth.new_average)
        return min(100 * growth.lasting[0] / seconds + new, self.maximum)


def _capacity(cpus: int, used: float | None, seconds: float) -> _Capacity:
    """Return a job's bound: the processor time used, which processors report in whole seconds."""
    maximum = 100.0 * cpus or math.inf
    if used is None or not seconds:
        return _Capacity(maximum)
    return _Capacity(min(used + maximum / seconds, maximum), is_measured=True)


def _disk_gain(now: int, before: int) -> int:
    """Return a gain; milliseconds wrap around at 32 bits, after 49 days of work."""
    wrapped = now < before and _WRAP // 2 <= before < _WRAP
    return now - before + (_WRAP if wrapped else 0)


_WRAP = 2**32


def _merged(jobs: Sequence[sonar.SampleJob]) -> Sequence[sonar.SampleJob]:
    """Join objects of one job: Sonar writes one with job 0 for each thread of the kernel."""
    processes: dict[JobKey, list[sonar.SampleProcess]] = {}
    for job in jobs:
        processes.setdefault((job.job, job.epoch, job.user), []).extend(job.processes)
    if len(processes) == len(jobs):
        return jobs
    return [
        sonar.SampleJob(number, user, epoch, tuple(members))
        for (number, epoch, user), members in processes.items()
    ]


def _add_job_gpus(
    job: sonar.SampleJob, of_job: _JobCodes, columns: LinesBuilder, idle: Container[str]
) -> None:
    for uuid, (util, memory, share) in sums.gpu_sums(job.processes).items():
        gpu = of_job.gpus.get(uuid) or _codes_of_job_gpu(of_job, uuid, columns)
        is_known = (util or uuid in idle, memory, share or memory)
        columns.floats.codes += array("i", compress(gpu, is_known))
        columns.floats.values += compress((util, memory * _JOB_GPU_MEMORY.scale, share), is_known)


def _codes_of_job_gpu(job: _JobCodes, uuid: str, columns: LinesBuilder) -> Codes:
    tags = {**job.tags, "type": "accelerator", "type-id": uuid}
    codes = job.gpus[uuid] = _codes(columns, metrics.JOB_GPU, tags)
    return codes


def _add_known(
    column: NumberRows,
    codes: Codes,
    values: Sequence[int],
    rows: Sequence[metrics.SonarMetric],
    *,
    no_zeroes: bool = False,
) -> None:
    """Add values, except zeroes that mean unknown."""
    known = [
        value != 0 or (row.zero and not no_zeroes) for row, value in zip(rows, values, strict=True)
    ]
    column.codes += array("i", compress(codes, known))
    column.values += compress(values, known)


def _codes(
    columns: LinesBuilder, rows: Sequence[metrics.SonarMetric], tags: Mapping[str, str]
) -> Codes:
    return columns.codes((row.name for row in rows), tags)


def _first(codes: Codes, count: int) -> Codes:
    return codes if len(codes) == count else codes[:count]
