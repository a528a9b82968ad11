"""Metrics of one node and time to a Sonar sample, and the processor time of its jobs.

Jobanalyzer and others compute a job's utilization from the growth of ``cpu_time``, which no metric
carries; ``job_cpu_used`` is its derivative, from which it is integrated.
"""

import logging
import math
import re
import sys
import time as clocks
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from ccpipe.config import Duration
from ccpipe.errors import DataError
from ccpipe.formats import sonar
from ccpipe.formats.sonar.sums import rounded, synthetic_pid
from ccpipe.formats.sonar.types.primitives import Record, fields
from ccpipe.message import Kind
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar import sonar_metrics as metrics
from ccpipe.translate.sonar.sonar_metrics import MAX_FUTURE

log = logging.getLogger(__name__)

SECOND = 10**9
_YEAR_9999 = 253_370_764_800
"""Seconds since the epoch."""

_SAME = {
    "load_one": "cpu_load",
    "nv_util": "acc_utilization",
    "nv_mem_util": "acc_mem_util",
    "nv_fb_mem_used": "acc_mem_used",
    "nv_temp": "acc_temp",
    "nv_fan": "acc_fan",
    "nv_power_usage": "acc_power",
    "nv_power_max_limit": "acc_power_limit",
    "nv_graphics_clock": "acc_clock",
    "nv_mem_clock": "acc_mem_clock",
    "nv_perf_state": "acc_perf_state",
}
"""Other collectors' names of metrics in the table."""

_ROWS = {
    row.name: row
    for row in (
        *metrics.SYSTEM,
        metrics.BOOT,
        *metrics.GPU,
        metrics.PERFORMANCE_STATE,
        *metrics.JOB_INTS,
        *metrics.JOB_GPU,
    )
}
_CPU_USED_BY_JOB = metrics.JOB_FLOATS[0]
_ROWS[_CPU_USED_BY_JOB.name] = _CPU_USED_BY_JOB._replace(field="cpu_util")
_CPU_USED_IN_PARTS = ("job_user_cpu", "job_sys_cpu")
"""Metrics of the collectors of Slurm's cgroups; their sum is a job's ``cpu_util``."""
_ROWS |= dict.fromkeys(_CPU_USED_IN_PARTS, _ROWS[_CPU_USED_BY_JOB.name])
_OF_JOBS = {*(row.name for row in metrics.JOB_INTS), _CPU_USED_BY_JOB.name, *_CPU_USED_IN_PARTS}
_OF_JOBS_ON_GPUS = {row.name for row in metrics.JOB_GPU}
_OF_GPUS = {row.name for row in (*metrics.GPU, metrics.PERFORMANCE_STATE)}


_EXACT = 2**53
"""Beyond, floats do not have every integer."""
_JOB = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,19}))?")


class JobKey(NamedTuple):
    """Identity of a job on a node."""

    job: int
    epoch: int
    user: str


class SampleField(NamedTuple):
    """The field of a sample that a series' value goes to."""

    field: str
    scale: float
    """Divisor of the value."""
    job: JobKey | None = None
    """None for the node itself."""
    gpu: str = ""
    """UUID of the GPU; empty if the field is not of a GPU."""
    part: str = ""
    """Name of the metric, where the field is the sum of several."""

    @property
    def limits(self) -> tuple[float, float]:
        """The least value that fits, and the first that is too large; finite."""
        cls: type[Record] = sonar.SampleSystem if self.job is None else sonar.SampleProcess
        if self.gpu:
            cls = sonar.SampleGpu if self.job is None else sonar.SampleProcessGpu
        field = fields(cls)[self.field]
        minimum: float
        maximum: float
        if self.field == "boot":
            minimum, maximum = 0, _YEAR_9999
        elif (span := _span(field, self.field)) is not None:
            minimum, maximum = span
            if maximum > _EXACT:  # a value just below is written as the float that this is
                maximum = math.nextafter(maximum, math.inf)
        else:
            return -sys.float_info.max, math.inf
        return minimum * self.scale, maximum * self.scale


def field_of(name: str, field: str, tags: Mapping[str, str]) -> SampleField | None:
    """Return the field for a series; None where Sonar has none.

    Raises DataError if it has one, but the tags do not identify the node or the job.
    """
    name = _SAME.get(name, name)
    row = _ROWS.get(name)
    if row is None or Kind.of(field) is not Kind.METRIC:
        return None
    gpu = tags.get("type-id", "") if tags.get("type") == "accelerator" else ""
    if tags.get("stype") == "job":
        if name not in (_OF_JOBS_ON_GPUS if gpu else _OF_JOBS):
            return None
        _check_node(tags)
        job = _job_of(tags)
        part = name if name in _CPU_USED_IN_PARTS else ""
        return SampleField(row.field, row.scale, job, gpu, part)
    if "stype" in tags or name in _OF_JOBS or name in _OF_JOBS_ON_GPUS:
        return None
    if (gpu or tags.get("type") == "node") and (name in _OF_GPUS) == bool(gpu):
        _check_node(tags)
        return SampleField(row.field, row.scale, None, gpu)
    return None


def _check_node(tags: Mapping[str, str]) -> None:
    if not tags.get("hostname"):
        raise DataError("the tag hostname is missing")


def _job_of(tags: Mapping[str, str]) -> JobKey:
    found = _JOB.fullmatch(tags.get("stype-id", ""))
    if found is None:
        raise DataError(f"stype-id {tags.get('stype-id', '')!r:.60} is not the number of a job")
    job, epoch = found.groups()
    return JobKey(int(job), int(epoch or 0), tags.get("user", "_user_unknown"))


GAP = 3 * 3600 * SECOND
"""Time without records after which a process group's number is another job: "on the order of a few
hours" in Sonar's specification, and less than it takes for process IDs to be reused."""
MAX_JOBS = 100_000
"""Jobs on nodes that are remembered; beyond, those that were sampled longest ago are forgotten."""


class NodeJob(NamedTuple):
    """One job on one node."""

    cluster: str
    node: str
    job: int
    epoch: int
    user: str


class _UsedTime(NamedTuple):
    first: int
    """Time of the first sample, in nanoseconds."""
    last: int
    seconds: float
    """Processor time from the first to the last sample."""


class CpuTime(NamedTuple):
    """Processor time of a job on a node since its first sample here."""

    seconds: float
    average: float
    """Percent of a processor."""


class CpuTimes:
    """Integrates, in the order of the samples' times; a late sample adds nothing.

    Nor does one of the future: after it, all others would be late.
    """

    def __init__(
        self,
        state: StateStore,
        *,
        max_future: Duration = MAX_FUTURE,
        clock: Callable[[], int] = clocks.time_ns,
    ) -> None:
        """Keep what was used in `state`, so that it grows on after a restart."""
        self._max_future = round(max_future * SECOND)
        self._clock = clock
        self._is_early: set[tuple[str, str]] = set()
        self._used = state.table(
            "cpu_time", tuple[str, str, int, int, str], _UsedTime, maximum=MAX_JOBS
        )

    def add(self, job: NodeJob, time: int, percent: float) -> CpuTime:
        """Add a sample: `percent` is the mean since the sample before."""
        used = self._used.get(job)
        is_batch = job.epoch == 0
        newest = self._clock() + self._max_future
        if self._check_clock(job, time > newest):
            return _cpu_time(used or _UsedTime(time, time, 0.0), percent)
        if used is not None and used.last > newest:
            used = used._replace(first=min(used.first, time), last=time)
        if used is None or (time - used.last > GAP and not is_batch):
            used = _UsedTime(time, time, 0.0)
        elif time > used.last:
            seconds = used.seconds + percent / 100 * (time - used.last) / SECOND
            used = _UsedTime(used.first, time, seconds)
        self._used.put(job, used)
        return _cpu_time(used, percent)

    def _check_clock(self, job: NodeJob, is_early: bool) -> bool:
        """Report once that a node's samples are of the future; return `is_early`."""
        node = job.cluster, job.node
        if is_early and node not in self._is_early:
            log.warning("%s: %s: a sample is beyond max_future: it is not counted", *node)
        (self._is_early.add if is_early else self._is_early.discard)(node)
        return is_early


def _cpu_time(used: _UsedTime, percent: float) -> CpuTime:
    elapsed = (used.last - used.first) / SECOND
    return CpuTime(used.seconds, 100 * used.seconds / elapsed if elapsed else percent)


class PartialSample:
    """The metrics of one node and time so far."""

    def __init__(self) -> None:
        self.values: dict[SampleField, float] = {}
        self.errors: list[str] = []
        self.time = 0
        """The latest of its records, in nanoseconds."""

    def sample(self, cluster: str, node: str, cpu_times: CpuTimes) -> sonar.SampleAttributes:
        """Return the sample; raises EncodeError if Sonar cannot write the time."""
        system: dict[str, Any] = {}
        gpus: dict[str, dict[str, Any]] = {}
        jobs: dict[JobKey, dict[str, Any]] = {}
        job_gpus: dict[JobKey, dict[str, dict[str, Any]]] = {}
        for slot, value in _summed(self.values).items():
            of_system: tuple[type[Record], dict[str, Any]] = (sonar.SampleSystem, system)
            if slot.job is None and slot.gpu:
                of_system = sonar.SampleGpu, gpus.setdefault(slot.gpu, {})
            elif slot.job is not None and slot.gpu:
                of_job = job_gpus.setdefault(slot.job, {})
                of_system = sonar.SampleProcessGpu, of_job.setdefault(slot.gpu, {})
                jobs.setdefault(slot.job, {})
            elif slot.job is not None:
                of_system = sonar.SampleProcess, jobs.setdefault(slot.job, {})
            _set(*of_system, slot, value)
        if gpus:
            system["gpus"] = tuple(
                sonar.SampleGpu(index=i, uuid=uuid, **known)
                for i, (uuid, known) in enumerate(gpus.items())
            )
        text = sonar.timestamp.write(self.time)
        return sonar.SampleAttributes(
            time=text,
            cluster=cluster,
            node=node,
            system=sonar.SampleSystem(**system) if system else None,
            jobs=self._jobs((cluster, node), jobs, job_gpus, cpu_times),
            errors=tuple(sonar.ErrorObject(text, detail, cluster, node) for detail in self.errors),
        )

    def _jobs(
        self,
        place: tuple[str, str],
        jobs: Mapping[JobKey, dict[str, Any]],
        job_gpus: Mapping[JobKey, Mapping[str, Mapping[str, Any]]],
        cpu_times: CpuTimes,
    ) -> tuple[sonar.SampleJob, ...]:
        made: list[sonar.SampleJob] = []
        pids: set[int] = set()
        for key, known in jobs.items():
            if "cpu_util" in known:
                used = cpu_times.add(
                    NodeJob(*place, key.job, key.epoch, key.user), self.time, known["cpu_util"]
                )
                known |= {"cpu_time": round(used.seconds), "cpu_avg": round(used.average, 1)}
            made.append(_job(key, known, job_gpus.get(key, {}), pids))
            pids.add(made[-1].processes[0].pid)
        return tuple(made)


def _summed(values: Mapping[SampleField, float]) -> dict[SampleField, float]:
    """Add up the parts of a field, in percent; a value of the whole counts more than they do."""
    whole = {slot: value for slot, value in values.items() if not slot.part}
    parts: defaultdict[SampleField, float] = defaultdict(float)
    for slot, value in values.items():
        if slot.part:
            parts[slot._replace(part="")] += value
    return {**{slot: rounded(value) for slot, value in parts.items()}, **whole}


def _span(field: Any, name: str) -> tuple[int, int] | None:
    """Return the least integer of a field and the first that is too large; None for a float."""
    if name == "performance_state":
        return 0, 2**64 - 2
    span: tuple[int, int] | None = field.span
    return span


def _set(cls: type[Record], known: dict[str, Any], slot: SampleField, value: float) -> None:
    """Set a field to a value within its limits, in its type."""
    value /= slot.scale
    if slot.field == "boot":
        known["boot"] = sonar.timestamp.write(int(value) * SECOND)
    elif (span := _span(fields(cls)[slot.field], slot.field)) is not None:
        number = min(round(value), span[1] - 1)
        is_extended = slot.field == "performance_state"
        known[slot.field] = sonar.ExtendedUint(number) if is_extended else number
    else:
        known[slot.field] = value


def _job(
    key: JobKey, known: dict[str, Any], job_gpus: Mapping[str, Mapping[str, Any]], pids: set[int]
) -> sonar.SampleJob:
    """Make a job with one process that represents all, like a rolled-up one."""
    count = max(1, known.pop("rolledup", 1))
    threads = known.pop("num_threads", count)
    gpus: Iterable[sonar.SampleProcessGpu] = (
        sonar.SampleProcessGpu(index=i, uuid=uuid, **values)
        for i, (uuid, values) in enumerate(job_gpus.items())
    )
    job = sonar.SampleJob(job=key.job, user=key.user, epoch=key.epoch)
    process = sonar.SampleProcess(
        **known,
        pid=synthetic_pid(job, 0, "", taken=pids),
        rolledup=count - 1,
        num_threads=max(0, threads - count),
        gpus=tuple(gpus),
    )
    return replace(job, processes=(process,))
