"""Sums over a job's processes: roll-up, and growth of counters between samples.

A process's counters include its terminated children that it waited for: a child's usage moves to
its parent when the child ends. It is not new usage, so it is subtracted from the growth of the
nearest living ancestor. The counters of a new process are growth in full. The sum is the job's
usage, even with short-lived processes.

Processes in a rolled-up record cannot be identified. One that executes another program while it is
in such a record counts as ended and new: its previous usage counts twice, unless its parent used
as much in the meantime. Each record has its own process ID, as in Sonar since 0.18: programs that
key on the ID could not distinguish several records with ID 0.

Source: Sonar JSON format output specification, *Rolled-up samples*; Sonar's ``src/pidmap.rs``.
"""

import hashlib
from array import array
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest
from operator import sub
from sys import intern
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
)

if TYPE_CHECKING:
    Column: TypeAlias = array[int]
else:
    Column = array  # msgspec reads it, and it has no parameters before Python 3.12

COUNTERS = 3
"""Counters of a process: ``cpu_time``, ``data_read``, ``data_written``."""

Counts = tuple[int, ...]
U = TypeVar("U", bound=Hashable)


_ZOMBIE = " <defunct>"


def column(numbers: Sequence[int]) -> Column:
    """Return numbers in compact form; raises DataError if one exceeds 64 bits."""
    try:
        return array("Q", numbers)
    except OverflowError:
        raise DataError("a number of the sample exceeds 64 bits") from None


class ProcessSnapshot(Struct, frozen=True, gc=False, array_like=True):
    """The processes of a job in a sample, in order; compact, as it is kept for each job."""

    pids: Column = column(())
    """0 for a rolled-up record, which is identified by parent and command."""
    parents: Column = column(())
    commands: tuple[str, ...] = ()
    counters: tuple[Column, ...] = (column(()),) * COUNTERS

    @property
    def has_data(self) -> bool:
        """Whether any bytes read or written are known."""
        return any(self.counters[1]) or any(self.counters[2])

    def has_processes_of(self, other: "ProcessSnapshot") -> bool:
        """Return whether the processes are the same, in the same order."""
        return (
            self.pids == other.pids
            and self.parents == other.parents
            and self.commands == other.commands
        )

    @property
    def programs(self) -> list[str]:
        """The commands without the mark of a zombie."""
        return [command.removesuffix(_ZOMBIE) for command in self.commands]

    def rolled(self) -> set[tuple[int, str]]:
        """Return parent and program of the rolled-up records."""
        if all(self.pids):
            return set()
        of_parents = zip(self.pids, self.parents, self.programs, strict=True)
        return {(parent, program) for pid, parent, program in of_parents if not pid}


class Levels(NamedTuple):
    """Resident and virtual memory in bytes, processes, and threads including the main ones."""

    resident: int
    virtual: int
    processes: int
    threads: int


class Growth(NamedTuple):
    """Growth of the counters of a job's processes."""

    lasting: Counts
    """Of processes in both samples."""
    new: Counts
    """Of processes that are new or run another program."""
    new_average: float = 0.0
    """Sum of ``cpu_avg`` of the new processes."""


GpuSums = Mapping[str, Sequence[float]]
"""By UUID: ``gpu_util``, ``gpu_memory`` and ``gpu_memory_util``."""


def rounded(percent: float) -> float:
    """Return a sum of decimal fractions without binary rounding errors."""
    return round(percent, 6)


def processes_of(records: Sequence[SampleProcess]) -> int:
    """Return the number of processes in records; a negative ``rolledup`` counts as 0."""
    return len(records) + sum([each.rolledup for each in records if each.rolledup > 0])


def average(processes: Sequence[SampleProcess]) -> float:
    return rounded(sum([p.cpu_avg for p in processes]))


def gpu_sums(processes: Sequence[SampleProcess]) -> GpuSums:
    gpus: dict[str, list[float]] = {}
    for process in processes:
        for gpu in process.gpus:
            whole = gpus.setdefault(gpu.uuid, [0.0, 0.0, 0.0])
            whole[0] = rounded(whole[0] + gpu.gpu_util)
            whole[1] += gpu.gpu_memory
            whole[2] = rounded(whole[2] + gpu.gpu_memory_util)
    return gpus


def levels(processes: Sequence[SampleProcess]) -> Levels:
    """Return the levels of a job; a negative ``rolledup`` counts as 0."""
    count = processes_of(processes)
    return Levels(
        1024 * sum([p.resident_memory for p in processes]),
        1024 * sum([p.virtual_memory for p in processes]),
        count,
        count + sum([p.num_threads for p in processes]),
    )


def snapshot(processes: Sequence[SampleProcess], before: ProcessSnapshot) -> ProcessSnapshot:
    """Return what the next sample's growth is computed from; `before` is the previous one.

    Raises DataError if a number exceeds 64 bits.
    """
    commands = tuple([p.cmd for p in processes])
    is_same = commands == before.commands
    return ProcessSnapshot(
        column([0 if p.rolledup else p.pid for p in processes]),
        column([p.ppid for p in processes]),
        before.commands if is_same else tuple(map(intern, commands)),
        (
            column([p.cpu_time for p in processes]),
            column([p.data_read for p in processes]),
            column([p.data_written for p in processes]),
        ),
    )


def growth(
    before: ProcessSnapshot, now: ProcessSnapshot, processes: Sequence[SampleProcess]
) -> Growth:
    """Return the growth of the counters of a job's processes since the previous sample.

    `processes` belong to `now`.
    """
    if now.has_processes_of(before):
        gains = tuple(map(_gain, now.counters, before.counters))
        if min(gains) >= 0:  # the usual case, fast
            return Growth(gains, _NONE)
    return _growth(before, now, processes)


def _gain(now: Column, before: Column) -> int:
    """Return the growth of all counters together; -1 if one has decreased."""
    if now == before:
        return 0
    gains = list(map(sub, now, before))
    return sum(gains) if min(gains) >= 0 else -1


def _growth(
    before: ProcessSnapshot, now: ProcessSnapshot, processes: Sequence[SampleProcess]
) -> Growth:
    """Return the growth if processes have ended or begun, or a counter has decreased."""
    rolled = before.rolled() | now.rolled()
    old, new = _Units(before, rolled), _Units(now, rolled)
    started = {unit for unit, program in new.programs.items() if program != old.programs.get(unit)}
    gained = dict(new.counts)
    lost = {unit: counts for unit, counts in old.counts.items() if unit not in gained}
    for unit in old.counts.keys() & gained.keys():
        then, present = old.counts[unit], gained[unit]
        gains = present[0] - then[0], present[1] - then[1], present[2] - then[2]
        if min(gains) >= 0:
            gained[unit] = gains
        elif isinstance(unit, int) and gains[0] < 0:
            started.add(unit)  # the process ID was reused
            lost[unit] = then
        else:
            gained[unit], lost[unit] = _difference(present, then), _difference(then, present)
    if lost:
        for unit, counts in inherited(lost, old.ancestors(), new.counts).items():
            gained[unit] = _difference(gained[unit], counts)
    average_of_started = average(
        [p for unit, p in zip(new.of_rows, processes, strict=True) if unit in started]
    )
    return Growth(
        _total(counts for unit, counts in gained.items() if unit not in started),
        _total(gained[unit] for unit in started),
        average_of_started,
    )


def inherited(
    lost: Mapping[U, Counts], ancestors: Mapping[U, U], lasting: Container[U]
) -> dict[U, Counts]:
    """Sum the last counters of ended processes by their nearest living ancestor.

    That ancestor's counters grew by them without new usage.
    """
    totals: dict[U, Counts] = {}
    for process, counts in lost.items():
        if not any(counts):
            continue
        ancestor = ancestors.get(process)
        # Sampling is not atomic: reused process IDs could form a cycle.
        for _ in range(len(ancestors)):
            if ancestor is None or ancestor in lasting:
                break
            ancestor = ancestors.get(ancestor)
        if ancestor is not None and ancestor in lasting:
            totals[ancestor] = _total((counts, totals.get(ancestor, ())))
    return totals


_Unit = int | tuple[int, str]
"""A process ID; or parent and command if one of their processes is rolled up in either sample: it
may be rolled up in one and not in the next."""


class _Units:
    """The processes of one sample, by a key that identifies them in the other sample."""

    def __init__(self, sample: ProcessSnapshot, rolled: Container[tuple[int, str]]) -> None:
        self._sample = sample
        programs, units = sample.programs, list[_Unit](sample.pids)
        if rolled:
            pairs = zip(sample.parents, programs, strict=True)
            units = [
                pair if pair in rolled else pid for pid, pair in zip(units, pairs, strict=True)
            ]
        self.of_rows = units
        self.programs = dict(zip(units, programs, strict=True))
        counts = list(zip(*sample.counters, strict=True))
        self.counts: dict[_Unit, Counts] = dict(zip(units, counts, strict=True))
        if len(self.counts) < len(units):  # several records of one unit
            self.counts.clear()
            for unit, more in zip(units, counts, strict=True):
                self.counts[unit] = _total((more, self.counts.get(unit, ())))

    def ancestors(self) -> dict[_Unit, _Unit]:
        """Return the parents of processes, if they belong to the same job."""
        pids, parents = self._sample.pids, self._sample.parents
        known = {pid: unit for pid, unit in zip(pids, self.of_rows, strict=True) if pid}
        parents_of = zip(self.of_rows, parents, strict=True)
        return {unit: known[pid] for unit, pid in parents_of if pid in known}


_NONE = (0,) * COUNTERS


def _total(parts: Iterable[Counts]) -> Counts:
    return tuple(map(sum, zip_longest(*parts, fillvalue=0))) or _NONE


def _difference(counts: Counts, less: Counts) -> Counts:
    return tuple([max(0, a - b) for a, b in zip(counts, less, strict=True)])


def shares(
    now: Sequence[int], before: Sequence[int], seconds: float
) -> tuple[list[float], float] | None:
    """Return the growth of each counter of seconds, and of their sum, in percent of `seconds`.

    None if a counter decreased, or their number changed.
    """
    if len(now) != len(before):
        return None
    gains = [new - old for new, old in zip(now, before, strict=True)]
    if gains and min(gains) < 0:
        return None
    return [100 * gain / seconds for gain in gains], 100 * sum(gains) / seconds


FIRST_SYNTHETIC_PID = 2**22 + 1
"""Above the maximum ``pid_max`` of Linux."""

_SYNTHETIC_PIDS = 2**31 - FIRST_SYNTHETIC_PID


def synthetic_pid(job: SampleJob, parent: int, command: str, *, taken: Container[int] = ()) -> int:
    """Return the process ID of a rolled-up record.

    It is a hash of job, epoch, user, parent and command, from 4194305 to 2³¹-1: the same in every
    sample, even after a restart of the producer. If another record of the sample has the same ID,
    the next free one is returned.
    """
    key = f"{job.job} {job.epoch} {parent} {job.user}\n{command}".encode(errors="surrogatepass")
    digest = hashlib.blake2b(key, digest_size=8).digest()
    pid = FIRST_SYNTHETIC_PID + int.from_bytes(digest) % _SYNTHETIC_PIDS
    while pid in taken:
        pid += 1
    return pid


def roll_up(sample: SampleAttributes) -> SampleAttributes:
    """Roll up the processes of a sample.

    Processes are merged if they are under control of a batch system (epoch 0), have the same
    nonzero job, the same command and the same parent process, and have no child processes. The
    record has a synthetic process ID, ``rolledup`` is the number of processes minus one, and all
    measures are sums. A process without such siblings, or with an unknown parent, is unchanged.
    """
    parents = {process.ppid for job in sample.jobs for process in job.processes}
    pids: set[int] = set()
    jobs = tuple(
        replace(job, processes=_rolled(job, parents, pids)) if _is_batch(job) else job
        for job in sample.jobs
    )
    return replace(sample, jobs=jobs)


def _is_batch(job: SampleJob) -> bool:
    return job.epoch == 0 and job.job != 0


def _rolled(job: SampleJob, parents: set[int], pids: set[int]) -> tuple[SampleProcess, ...]:
    alike: dict[object, list[SampleProcess]] = {}
    for index, process in enumerate(job.processes):
        is_leaf = process.ppid != 0 and (process.pid == 0 or process.pid not in parents)
        alike.setdefault((process.ppid, process.cmd) if is_leaf else index, []).append(process)
    rolled = []
    for group in alike.values():
        process = group[0]
        if len(group) > 1:
            process = _sum(group, synthetic_pid(job, process.ppid, process.cmd, taken=pids))
            pids.add(process.pid)
        rolled.append(process)
    return tuple(rolled)


_SUMMED = (
    "resident_memory",
    "virtual_memory",
    "num_threads",
    "cpu_avg",
    "cpu_util",
    "cpu_time",
    "data_read",
    "data_written",
    "data_cancelled",
)
_SUMMED_OF_GPU = ("gpu_util", "gpu_memory", "gpu_memory_util")


def _sum(group: list[SampleProcess], pid: int) -> SampleProcess:
    return replace(
        _added(group, _SUMMED),
        pid=pid,
        rolledup=processes_of(group) - 1,
        in_container=all(process.in_container for process in group),
        gpus=_sum_of_gpus(gpu for process in group for gpu in process.gpus),
    )


def _sum_of_gpus(uses: Iterable[SampleProcessGpu]) -> tuple[SampleProcessGpu, ...]:
    gpus: dict[tuple[str, int], list[SampleProcessGpu]] = {}
    for use in uses:
        gpus.setdefault((use.uuid, use.index), []).append(use)
    return tuple(_added(group, _SUMMED_OF_GPU) for group in gpus.values())


_Measures = TypeVar("_Measures", SampleProcess, SampleProcessGpu)


def _added(group: list[_Measures], names: tuple[str, ...]) -> _Measures:
    sums = {name: sum(getattr(m, name) for m in group) for name in names}
    return replace(
        group[0], **{n: rounded(v) if isinstance(v, float) else v for n, v in sums.items()}
    )
