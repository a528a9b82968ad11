"""Usage of tasks, from their process trees in ``/proc`` and from Slurm's control groups.

A process belongs to the task in whose tree it was first seen, even after its parent ended. Ended
processes stay counted: the kernel adds a child that was waited for to its parent, and for others
the last reading is kept.

Source of the control groups: Slurm's plug-in jobacct_gather/cgroup, for versions 1 and 2.
"""

import os
import re
from collections.abc import Iterable, Mapping
from itertools import starmap
from operator import add, sub
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.node.linux import proc
from ccpipe.node.linux.process_table import OpenProcess, OpenProcesses, Process, proportional
from ccpipe.node.linux.slurm_cgroups import directories_of, keyed_counters

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MILLISECONDS = 1000 // os.sysconf("SC_CLK_TCK")

Counters = tuple[int, int, int, int, int]
"""Ticks of user and system time, major page faults, bytes read and written; children included."""

_NOTHING: Counters = (0, 0, 0, 0, 0)
_NO_OTHERS: Mapping[int, int] = MappingProxyType({})


class Member(NamedTuple):
    """One process of a task."""

    task: int  # the first process of the task
    open: OpenProcess
    process: Process  # as of the reading that was counted
    counters: Counters
    has_io: bool  # whether its reads and writes are known


class TreeUsage(NamedTuple):
    """Current and accumulated usage of one task's processes."""

    user: int  # milliseconds of processor time
    system: int
    resident: int  # bytes
    virtual: int
    faults: int
    io: tuple[int, int] | None
    """Bytes read and written by system calls; None if no process is readable."""
    weighed: int  # milliseconds since the last poll whose frequency is known
    weighted_frequency: int  # sum of those times the frequency in kHz
    pids: tuple[int, ...]


class ProcessTree:
    """The processes of tasks, from poll to poll."""

    def __init__(self, *, use_pss: bool = False, root: str = "/") -> None:
        self._proc = os.path.join(root, "proc")  # noqa: PTH118 - hundreds of paths cost too much
        self._processes = OpenProcesses(root=root)
        self._frequencies = Frequencies(root)
        self._use_pss = use_pss
        self._members: dict[int, Member] = {}
        self._outsiders: set[OpenProcess] = set()
        """Processes of no task, which stays so until a task is added."""
        self._starts: dict[int, int] = {}  # start times of tasks' first processes
        self._lost: dict[int, Counters] = {}  # by task: of ended processes, in no parent

    def close(self) -> None:
        self._processes.close()
        self._members, self._outsiders = {}, set()

    def pids(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for pid, member in self._members.items():
            found.setdefault(member.task, []).append(pid)
        return {task: tuple(pids) for task, pids in found.items()}

    def frequency(self, task: int) -> int | None:
        """Return the last frequency, in kHz, of a task's first process."""
        member = self._members.get(task)
        return None if member is None else self._frequencies.of(member.process.processor) or None

    def forget(self, task: int) -> None:
        self._starts.pop(task, None)
        self._lost.pop(task, None)
        self._members = {pid: one for pid, one in self._members.items() if one.task != task}

    def poll(
        self, tasks: Iterable[int], others: Mapping[int, int] = _NO_OTHERS
    ) -> dict[int, TreeUsage]:
        """Return the usage of each task by its first process; ended tasks are left out.

        `others` maps processes to their task, regardless of their parents.
        """
        table = self._processes.walk()
        known = len(self._starts)
        roots = [pid for pid in tasks if self._is_root(table.get(pid))]
        if len(self._starts) != known:
            self._outsiders = set()
        owners = self._owners(table, roots, others)
        now = {pid: self._member(table[pid], task) for pid, task in owners.items()}
        for task, lost in _lost(self._members, now).items():
            self._lost[task] = _add(self._lost.get(task, _NOTHING), lost)
        before, self._members = self._members, now
        return self._sums(before, set(roots))

    def _is_root(self, one: OpenProcess | None) -> bool:
        """Return whether a task's first process still exists, and its pid is not reused."""
        if one is None:
            return False
        start = one.process.start
        return self._starts.setdefault(one.process.pid, start) == start

    def _owners(
        self, table: Mapping[int, OpenProcess], roots: list[int], others: Mapping[int, int]
    ) -> dict[int, int]:
        members = self._members
        owners = {
            pid: member.task for pid, member in members.items() if table.get(pid) is member.open
        }
        owners.update((pid, task) for pid, task in others.items() if pid in table)
        owners.update((pid, pid) for pid in roots)
        outsiders = self._outsiders
        self._outsiders = {one for pid, one in table.items() if pid not in owners}
        for one in self._outsiders - outsiders:
            chain = []
            above: OpenProcess | None = one
            # Up to a task or the top; the chain detects cycles, possible in a changing table.
            while above and (pid := above.process.pid) not in owners and pid not in chain:
                chain.append(pid)
                above = table.get(above.process.ppid)
            if above and (task := owners.get(above.process.pid)) is not None:
                owners.update(dict.fromkeys(chain, task))
                self._outsiders.difference_update(table[pid] for pid in chain)
        return owners

    def _member(self, one: OpenProcess, task: int) -> Member:
        process, io = one.process, self._processes.transferred(one)
        known = self._members.get(process.pid)
        if known is not None and known.open is not one:
            known = None  # the pid was reused
        has_io = io is not None
        if io is None:  # keep the last reading: it ended, or now runs another user's program
            io, has_io = (known.counters[3:], known.has_io) if known else ((0, 0), False)
        if known is not None and known.process is process and known.counters[3:] == io:
            return known if known.task == task else known._replace(task=task)
        counters = (
            process.own - process.system + process.reaped - process.reaped_system,
            process.system + process.reaped_system,
            process.faults + process.reaped_faults,
            *io,
        )
        return Member(task, one, process, counters, has_io)

    def _sums(self, before: Mapping[int, Member], roots: set[int]) -> dict[int, TreeUsage]:
        trees: dict[int, list[Member]] = {}
        for member in self._members.values():
            trees.setdefault(member.task, []).append(member)
        self._frequencies.refresh()
        return {
            task: self._sum(task, members, before)
            for task, members in trees.items()
            if task in roots or task in self._starts
        }

    def _sum(self, task: int, members: list[Member], before: Mapping[int, Member]) -> TreeUsage:
        user, system, faults, read, written = self._lost.get(task, _NOTHING)
        weighed = weighted = resident = virtual = 0
        for _, _, process, counters, _ in members:
            user += counters[0]
            system += counters[1]
            faults += counters[2]
            read += counters[3]
            written += counters[4]
            resident += self._resident(process)
            virtual += process.virtual
            ticks = process.own
            if ticks:
                known = before.get(process.pid)
                if known is not None and known.process.start == process.start:
                    if known.process is process:
                        continue
                    ticks -= known.process.own
                if ticks > 0 and (frequency := self._frequencies.of(process.processor)):
                    weighed += ticks
                    weighted += ticks * frequency
        return TreeUsage(
            user * _MILLISECONDS,
            system * _MILLISECONDS,
            resident,
            virtual,
            faults,
            (read, written) if any(member.has_io for member in members) else None,
            weighed * _MILLISECONDS,
            weighted * _MILLISECONDS,
            tuple(member.process.pid for member in members),
        )

    def _resident(self, process: Process) -> int:
        resident = process.resident * _PAGE
        if self._use_pss:
            share = proportional(f"{self._proc}/{process.pid}")
            return share if share and share < resident else resident
        return resident


def _lost(before: Mapping[int, Member], now: Mapping[int, Member]) -> dict[int, Counters]:
    """Return, by task, the usage of ended processes that is not included in a parent's."""
    ended = {
        pid: member
        for pid, member in before.items()
        if pid not in now or now[pid].process.start != member.process.start
    }
    lost: dict[int, Counters] = {}
    owed: dict[int, Counters] = {}  # by parent: usage of its ended children
    for pid in sorted(ended, key=lambda pid: _depth(pid, ended), reverse=True):
        member = ended[pid]
        used = _add(member.counters, owed.pop(pid, _NOTHING))
        parent = member.process.ppid
        if parent in ended or parent in now:
            owed[parent] = _add(owed.get(parent, _NOTHING), used)
        else:
            lost[member.task] = _add(lost.get(member.task, _NOTHING), used)
    for parent, used in owed.items():
        member = now[parent]
        known = before[parent].counters if parent in before else _NOTHING
        gained = map(sub, member.counters, known)
        missing = _counters(max(0, value) for value in map(sub, used, gained))
        lost[member.task] = _add(lost.get(member.task, _NOTHING), missing)
    return lost


def _depth(pid: int, members: Mapping[int, Member]) -> int:
    """Return how many ancestors of a process are among `members`."""
    depth, seen = 0, {pid}
    while (pid := members[pid].process.ppid) in members and pid not in seen:
        seen.add(pid)
        depth += 1
    return depth


def _add(first: Counters, second: Counters) -> Counters:
    return _counters(starmap(add, zip(first, second, strict=True)))


def _counters(values: Iterable[int]) -> Counters:
    user, system, faults, read, written = values
    return user, system, faults, read, written


_LINE = re.compile(
    r"^(?:processor\s*:\s*(\d{1,5})|cpu MHz\s*:\s*(\d{1,6}(?:\.\d{1,6})?))$", re.MULTILINE
)


class Frequencies:
    """Frequencies of hardware threads, in kHz, each read at most once between two refreshes.

    Where a machine has no cpufreq, as most virtual ones, ``/proc/cpuinfo`` reports MHz, which Slurm
    takes for kHz.
    """

    def __init__(self, root: str = "/") -> None:
        self._cpus = Path(root, "sys/devices/system/cpu")
        self._cpuinfo = Path(root, "proc/cpuinfo")
        self._has_cpufreq = True
        self._known: dict[int, int] = {}

    def refresh(self) -> None:
        """Drop cached values."""
        self._known.clear()

    def of(self, cpu: int) -> int:
        """Return the frequency of a hardware thread in kHz; 0 if nothing reports it."""
        if cpu not in self._known:
            value = self._cpufreq(cpu) if self._has_cpufreq else None
            if value:
                self._known[cpu] = value
            else:
                self._has_cpufreq = False
                self._known |= self._from_cpuinfo()
        return self._known.setdefault(cpu, 0)

    def _cpufreq(self, cpu: int) -> int | None:
        directory = self._cpus / f"cpu{cpu}" / "cpufreq"
        try:
            found = proc.number(directory / "cpuinfo_cur_freq")
            return proc.number(directory / "scaling_cur_freq") if found is None else found
        except DataError:
            return None

    def _from_cpuinfo(self) -> dict[int, int]:
        found: dict[int, int] = {}
        cpu = -1
        try:
            text = proc.text(self._cpuinfo)
        except OSError:
            return found
        for line in _LINE.finditer(text):
            if line[1]:
                cpu = int(line[1])
            else:
                found[cpu] = round(float(line[2]) * 1000)
        return found


_TASK = re.compile(r"task_\d{1,10}", re.ASCII)


class CgroupUsage(NamedTuple):
    """Usage of a control group's processes, ended ones included; None: unknown."""

    user: int | None  # milliseconds of processor time
    system: int | None
    memory: int | None
    """Bytes; with version 2 including the page cache."""
    peak: int | None
    virtual: int | None
    faults: int | None


class TaskCgroup:
    """The control group of one task."""

    def __init__(self, directories: dict[str, Path]) -> None:
        self._directories = directories

    @classmethod
    def of(cls, pid: int, *, root: str = "/") -> "TaskCgroup | None":
        """Return the control group of the task that `pid` belongs to; None if it has none."""
        try:
            directories = directories_of(pid, root)
        except OSError:
            return None
        own = {
            name: path
            for name, path in directories.items()
            if _TASK.fullmatch(path.name) and name in ("", "memory", "cpuacct")
        }
        return cls(own) if own else None

    def read(self) -> CgroupUsage | None:
        """Return the current usage; None if the group no longer exists; raises DataError."""
        if not any(directory.is_dir() for directory in self._directories.values()):
            return None
        if "memory" in self._directories or "cpuacct" in self._directories:
            return self._version_1()
        return self._version_2(self._directories[""])

    def _version_1(self) -> CgroupUsage:
        cpuacct, memory = self._directories.get("cpuacct"), self._directories.get("memory")
        ticks = keyed_counters(cpuacct / "cpuacct.stat", ("user", "system")) if cpuacct else []
        user, system = (tick * _MILLISECONDS for tick in ticks) if ticks else (None, None)
        if memory is None:
            return CgroupUsage(user, system, None, None, None, None)
        stat = memory / "memory.stat"
        rss = _one(stat, "total_rss")
        parts = [rss, _one(stat, "total_cache"), _one(stat, "total_swap")]
        virtual = None if rss is None else sum(part or 0 for part in parts)
        peak = proc.counter(memory / "memory.max_usage_in_bytes")
        return CgroupUsage(user, system, rss, peak, virtual, _one(stat, "total_pgmajfault"))

    def _version_2(self, directory: Path) -> CgroupUsage:
        spent = keyed_counters(directory / "cpu.stat", ("user_usec", "system_usec"))
        user, system = (micros // 1000 for micros in spent) if spent else (None, None)
        memory = proc.counter(directory / "memory.current")
        peak = proc.counter(directory / "memory.peak")
        faults = _one(directory / "memory.stat", "pgmajfault")
        return CgroupUsage(user, system, memory, peak, None, faults)


def _one(path: Path, key: str) -> int | None:
    found = keyed_counters(path, (key,))
    return found[0] if found else None
