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
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise, zip_longest
from operator import attrgetter, le, sub
from sys import intern
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
)

COUNTERS = 3
"""Counters of a process: ``cpu_time``, ``data_read``, ``data_written``."""

Counts = tuple[int, ...]
U = TypeVar("U", bound=Hashable)


_ZOMBIE = " <defunct>"


class ProcessSnapshot(NamedTuple):
    """The processes of one sample, in order; compact, as it is kept for each job."""

    pids: tuple[int, ...] = ()
    """0 for a rolled-up record, which is identified by parent and command."""
    parents: tuple[int, ...] = ()
    commands: tuple[str, ...] = ()
    counters: Sequence[int] = ()
    """``COUNTERS`` values for each process."""

    @property
    def has_data(self) -> bool:
        """Whether any bytes read or written are known."""
        return any(self.counters[1::COUNTERS]) or any(self.counters[2::COUNTERS])

    @property
    def programs(self) -> list[str]:
        """The commands without the mark of a zombie."""
        return [command.removesuffix(_ZOMBIE) for command in self.commands]

    @property
    def counts(self) -> Iterator[Counts]:
        """The counters of each process."""
        return zip(*(self.counters[i::COUNTERS] for i in range(COUNTERS)), strict=True)

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
    new_average: float
    """Sum of ``cpu_avg`` of the new processes."""


GpuSums = Mapping[str, Sequence[float]]
"""By UUID: ``gpu_util``, ``gpu_memory`` and ``gpu_memory_util``."""


def rounded(percent: float) -> float:
    """Return a sum of decimal fractions without binary rounding errors."""
    return round(percent, 6)


def processes_of(records: Sequence[SampleProcess]) -> int:
    """Return the number of processes in records; a negative ``rolledup`` counts as 0."""
    return len(records) + sum([max(0, each.rolledup) for each in records])


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


class ProcessColumns:
    """The processes of a sample, column by column and job after job.

    One pass over the processes of all jobs costs a fraction of one over each job.
    """

    def __init__(self, jobs: Sequence[SampleJob]) -> None:
        self._jobs = jobs
        self._processes = processes = list(chain.from_iterable([job.processes for job in jobs]))
        ends = accumulate([len(job.processes) for job in jobs], initial=0)
        self._bounds = list(pairwise(ends))
        self._rolled = [p.rolledup for p in processes]
        self.has_gpus = any(map(attrgetter("gpus"), processes))

    def levels(self) -> Iterator[Levels]:
        """Yield the levels of each job; a negative ``rolledup`` counts as 0."""
        processes = self._processes
        resident = [p.resident_memory for p in processes]
        virtual = [p.virtual_memory for p in processes]
        threads = [p.num_threads for p in processes]
        more = [max(0, n) for n in self._rolled] if any(self._rolled) else self._rolled
        for start, end in self._bounds:
            count = end - start + sum(more[start:end])
            yield Levels(
                1024 * sum(resident[start:end]),
                1024 * sum(virtual[start:end]),
                count,
                count + sum(threads[start:end]),
            )

    def growths(
        self, before: Sequence[ProcessSnapshot]
    ) -> Iterator[tuple[ProcessSnapshot, Growth]]:
        """Yield what is needed of each job for its next sample, and its growth since `before`."""
        processes = self._processes
        pids: list[int] = [p.pid for p in processes]
        if any(self._rolled):
            pids = [0 if more else pid for more, pid in zip(self._rolled, pids, strict=True)]
        parents = [p.ppid for p in processes]
        commands = [p.cmd for p in processes]
        counters = [n for p in processes for n in (p.cpu_time, p.data_read, p.data_written)]
        for (start, end), last, job in zip(self._bounds, before, self._jobs, strict=True):
            counts = counters[COUNTERS * start : COUNTERS * end]
            same = tuple(pids[start:end]), tuple(parents[start:end]), tuple(commands[start:end])
            if same == last[:3]:
                now = ProcessSnapshot(*last[:3], _compact(counts))
                gains = list(map(sub, counts, last.counters))
                if min(gains, default=0) >= 0:  # the usual case, fast
                    grown = sum(gains[::COUNTERS]), sum(gains[1::COUNTERS]), sum(gains[2::COUNTERS])
                    yield now, Growth(grown, _NONE, 0.0)
                    continue
            else:
                now = ProcessSnapshot(*same[:2], tuple(map(intern, same[2])), _compact(counts))
            yield now, _growth(last, now, job.processes)


def _compact(counters: list[int]) -> Sequence[int]:
    try:
        return array("Q", counters)
    except OverflowError:
        return counters


def _growth(
    before: ProcessSnapshot, now: ProcessSnapshot, processes: Sequence[SampleProcess]
) -> Growth:
    """Return the growth of the counters of a job's processes since the previous sample.

    `processes` belong to `now`.
    """
    rolled = before.rolled() | now.rolled()
    old, new = _Units(before, rolled), _Units(now, rolled)
    started = {unit for unit, command in new.commands.items() if command != old.commands.get(unit)}
    gained, lost = dict(new.counts), dict(old.counts)
    for unit in old.counts.keys() & new.counts.keys():
        then, present = old.counts[unit], new.counts[unit]
        if all(map(le, then, present)):
            gained[unit], lost[unit] = tuple(map(sub, present, then)), _NONE
        elif isinstance(unit, int) and present[0] < then[0]:
            started.add(unit)  # the process ID was reused
        else:
            gained[unit], lost[unit] = _difference(present, then), _difference(then, present)
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
        programs, units = sample.programs, list[_Unit](sample.pids)
        if rolled:
            pairs = zip(sample.parents, programs, strict=True)
            units = [
                pair if pair in rolled else pid for pid, pair in zip(units, pairs, strict=True)
            ]
        self.of_rows = units
        self.commands = dict(zip(units, programs, strict=True))
        self._parents = dict(zip(units, sample.parents, strict=True))
        self._of_pids = {pid: unit for pid, unit in zip(sample.pids, units, strict=True) if pid}
        self.counts: dict[_Unit, Counts] = {}
        for unit, counts in zip(units, sample.counts, strict=True):
            known = self.counts.get(unit)
            self.counts[unit] = counts if known is None else _total((known, counts))

    def ancestors(self) -> dict[_Unit, _Unit]:
        """Return the parents of processes, if they belong to the same job."""
        known = self._of_pids
        return {unit: known[pid] for unit, pid in self._parents.items() if pid in known}


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
