"""Sums over a job's processes: roll-up, and by how much their counters grew.

A process' counters include those of its children that ended and were waited for. So what a child
used moves to its parent when it ends, and is not used again: it is subtracted from the growth of
the nearest ancestor that is still there. What a process used that is new since the last sample is
growth as a whole. Together they are what the job used, however short its processes lived.

A record of processes that are rolled up has no number to know them by. One that executes another
program and is in such a record before or after counts as ended and new: what it used until then
counts twice, unless its parent used as much meanwhile. Its process ID is its own, as Sonar writes
since 0.18: several with the ID 0 could not be told apart by programs that key on it.

Source: Sonar JSON format output specification, *Rolled-up samples*; Sonar's ``src/pidmap.rs``.
"""

import hashlib
from array import array
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from sys import intern
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ccpipe.formats.sonar.types.primitives import UINT64_MAX
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
)

COUNTERS = 3
"""Of a process: ``cpu_time``, ``data_read``, ``data_written``."""

Counts = tuple[int, ...]
U = TypeVar("U", bound=Hashable)


_ZOMBIE = " <defunct>"


class Seen(NamedTuple):
    """The processes of one sample, in its order; compact, since it is kept for each job."""

    pids: tuple[int, ...] = ()
    """0 for a rolled-up record, whose number is synthetic: parent and command identify it."""
    parents: tuple[int, ...] = ()
    commands: tuple[str, ...] = ()
    counters: Sequence[int] = ()
    """``COUNTERS`` for each."""

    @property
    def has_data(self) -> bool:
        """Whether it is known what any of them read or wrote."""
        return any(self.counters[1::COUNTERS]) or any(self.counters[2::COUNTERS])

    def rows(self) -> Iterator[tuple[int, int, str, Counts]]:
        """Yield number, parent, command and counters of each process."""
        counts = zip(*(self.counters[i::COUNTERS] for i in range(COUNTERS)), strict=True)
        commands = (command.removesuffix(_ZOMBIE) for command in self.commands)
        return zip(self.pids, self.parents, commands, counts, strict=True)


class Levels(NamedTuple):
    """Resident and virtual memory in bytes, processes, and threads including the main ones."""

    resident: int
    virtual: int
    processes: int
    threads: int


class Growth(NamedTuple):
    """By how much the counters of a job's processes grew."""

    lasting: Counts
    """Of processes that were there before."""
    new: Counts
    """Of processes that are new since, or run another program."""
    new_average: float
    """Sum of ``cpu_avg`` of the latter."""


CardSums = Mapping[str, Sequence[float]]
"""By UUID: ``gpu_util``, ``gpu_memory`` and ``gpu_memory_util``."""


def rounded(percent: float) -> float:
    """Return a sum of decimal fractions without the digits that come of binary ones."""
    return round(percent, 6)


def processes_of(records: Sequence[SampleProcess]) -> int:
    """Return how many processes records stand for; a negative number in one adds none."""
    return len(records) + sum([max(0, each.rolledup) for each in records])


def levels(processes: Sequence[SampleProcess]) -> Levels:
    count = processes_of(processes)
    return Levels(
        1024 * sum([p.resident_memory for p in processes]),
        1024 * sum([p.virtual_memory for p in processes]),
        count,
        count + sum([p.num_threads for p in processes]),
    )


def average(processes: Sequence[SampleProcess]) -> float:
    return rounded(sum([p.cpu_avg for p in processes]))


def card_sums(processes: Sequence[SampleProcess]) -> CardSums:
    cards: dict[str, list[float]] = {}
    for process in processes:
        for card in process.gpus:
            whole = cards.setdefault(card.uuid, [0.0, 0.0, 0.0])
            whole[0] = rounded(whole[0] + card.gpu_util)
            whole[1] += card.gpu_memory
            whole[2] = rounded(whole[2] + card.gpu_memory_util)
    return cards


def seen(processes: Sequence[SampleProcess]) -> Seen:
    """Return what has to be known of a job's processes at its next sample."""
    counters = [n for p in processes for n in (p.cpu_time, p.data_read, p.data_written)]
    return Seen(
        tuple([0 if p.rolledup else p.pid for p in processes]),
        tuple([p.ppid for p in processes]),
        tuple([intern(p.cmd) for p in processes]),
        array("Q", counters) if max(counters, default=0) <= UINT64_MAX else counters,
    )


def growth(before: Seen, now: Seen, processes: Sequence[SampleProcess]) -> Growth:
    """Return by how much the counters of a job's processes grew since the sample before.

    `processes` are those of `now`.
    """
    if now[:3] == before[:3]:
        gains = [new - old for new, old in zip(now.counters, before.counters, strict=True)]
        if min(gains, default=0) >= 0:  # the usual case, fast
            return Growth(tuple([sum(gains[i::COUNTERS]) for i in range(COUNTERS)]), _NONE, 0.0)
    rolled = {
        (parent, command) for pid, parent, command, _ in chain(before.rows(), now.rows()) if not pid
    }
    old, new = _Units(before, rolled), _Units(now, rolled)
    fresh = {unit for unit, command in new.commands.items() if command != old.commands.get(unit)}
    gained, lost = dict(new.counts), dict(old.counts)
    for unit in old.counts.keys() & new.counts.keys():
        then, at_present = old.counts[unit], new.counts[unit]
        if isinstance(unit, int) and at_present[0] < then[0]:
            fresh.add(unit)  # the number was used again
        else:
            gained[unit], lost[unit] = _difference(at_present, then), _difference(then, at_present)
    for unit, counts in inherited(lost, old.ancestors(), new.counts).items():
        gained[unit] = _difference(gained[unit], counts)
    average_of_fresh = average(
        [p for unit, p in zip(new.of_rows, processes, strict=True) if unit in fresh]
    )
    return Growth(
        _total(counts for unit, counts in gained.items() if unit not in fresh),
        _total(gained[unit] for unit in fresh),
        average_of_fresh,
    )


def inherited(
    lost: Mapping[U, Counts], ancestors: Mapping[U, U], lasting: Container[U]
) -> dict[U, Counts]:
    """Add up what processes had when they were seen last, by the nearest ancestor that lasts.

    That ancestor's counters have grown by it without anything being used.
    """
    totals: dict[U, Counts] = {}
    for process, counts in lost.items():
        if not any(counts):
            continue
        ancestor = ancestors.get(process)
        # Samples take their time: numbers that are used again could lead in a circle.
        for _ in range(len(ancestors)):
            if ancestor is None or ancestor in lasting:
                break
            ancestor = ancestors.get(ancestor)
        if ancestor is not None and ancestor in lasting:
            totals[ancestor] = _total((counts, totals.get(ancestor, ())))
    return totals


_Unit = int | tuple[int, str]
"""A process; or all those of one parent with one command, where one of them is rolled up in either
sample, since a process may be rolled up in one and not in the next."""


class _Units:
    """The processes of one sample by what can be recognised in the other."""

    def __init__(self, sample: Seen, rolled: Container[tuple[int, str]]) -> None:
        self.counts: dict[_Unit, Counts] = {}
        self.commands: dict[_Unit, str] = {}
        self.of_rows: list[_Unit] = []
        self._parents: dict[_Unit, int] = {}
        self._of_pids: dict[int, _Unit] = {}
        for pid, parent, command, counts in sample.rows():
            unit = (parent, command) if (parent, command) in rolled else pid
            self.of_rows.append(unit)
            if pid:
                self._of_pids[pid] = unit
            self._parents[unit], self.commands[unit] = parent, command
            known = self.counts.get(unit)
            self.counts[unit] = counts if known is None else _total((known, counts))

    def ancestors(self) -> dict[_Unit, _Unit]:
        """Return the parents of processes, where these are of the same job."""
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
    """Return the growth of each counter of seconds and of all together, in percent of `seconds`.

    None if one went down, or where their number changed.
    """
    if len(now) != len(before):
        return None
    gains = [new - old for new, old in zip(now, before, strict=True)]
    if gains and min(gains) < 0:
        return None
    return [100 * gain / seconds for gain in gains], 100 * sum(gains) / seconds


FIRST_SYNTHETIC_PID = 2**22 + 1
"""Beyond the greatest ``pid_max`` that Linux allows."""

_SYNTHETIC_PIDS = 2**31 - FIRST_SYNTHETIC_PID


def synthetic_pid(job: SampleJob, parent: int, command: str, *, taken: Container[int] = ()) -> int:
    """Return the process ID of a record that stands for several processes.

    It is a hash of job, epoch, user, parent and command, from 4194305 to 2³¹-1: the same in every
    sample, also after a restart of whoever makes them. Where another record of the sample has
    taken it, the next one that is free is returned.
    """
    key = f"{job.job} {job.epoch} {parent} {job.user}\n{command}".encode(errors="surrogatepass")
    digest = hashlib.blake2b(key, digest_size=8).digest()
    pid = FIRST_SYNTHETIC_PID + int.from_bytes(digest) % _SYNTHETIC_PIDS
    while pid in taken:
        pid += 1
    return pid


def roll_up(sample: SampleAttributes) -> SampleAttributes:
    """Roll up the processes of a sample.

    Processes become one if they are under control of a batch system (epoch 0), have the same job,
    which is not zero, the same command and the same parent process, and have no child processes.
    The record has a synthetic process ID, and ``rolledup`` says how many processes it stands for
    beside the first; all measures are sums. A process that is alone of its kind stays as it is,
    and so does one whose parent is not known.
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
    cards: dict[tuple[str, int], list[SampleProcessGpu]] = {}
    for use in uses:
        cards.setdefault((use.uuid, use.index), []).append(use)
    return tuple(_added(group, _SUMMED_OF_GPU) for group in cards.values())


_Measures = TypeVar("_Measures", SampleProcess, SampleProcessGpu)


def _added(group: list[_Measures], names: tuple[str, ...]) -> _Measures:
    sums = {name: sum(getattr(m, name) for m in group) for name in names}
    return replace(
        group[0], **{n: rounded(v) if isinstance(v, float) else v for n, v in sums.items()}
    )
