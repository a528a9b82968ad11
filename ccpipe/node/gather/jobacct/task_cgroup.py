"""What the kernel accounts for the control group that Slurm made for one task.

Source: Slurm's plug-in jobacct_gather/cgroup, for versions 1 and 2.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from ccpipe.node.linux import proc
from ccpipe.node.linux.slurm_cgroups import folders_of, keyed_counters

_TASK = re.compile(r"task_\d{1,10}", re.ASCII)
_MILLISECONDS = 1000 // os.sysconf("SC_CLK_TCK")


class CgroupUsage(NamedTuple):
    """What a task's processes used, those that ended too; None is not known."""

    user: int | None  # milliseconds of processor time
    system: int | None
    memory: int | None
    """Bytes; with version 2 the page cache is among them, unless it is subtracted."""
    peak: int | None
    virtual: int | None
    faults: int | None


class TaskCgroup:
    """The control group of one task."""

    def __init__(self, folders: dict[str, Path], *, no_file_cache: bool = False) -> None:
        self._folders = folders
        self._no_file_cache = no_file_cache

    @classmethod
    def of(cls, pid: int, *, no_file_cache: bool = False, root: str = "/") -> "TaskCgroup | None":
        """Return the control group of the task that `pid` belongs to; None if it has none."""
        try:
            folders = folders_of(pid, root)
        except OSError:
            return None
        own = {
            name: path
            for name, path in folders.items()
            if _TASK.fullmatch(path.name) and name in ("", "memory", "cpuacct")
        }
        return cls(own, no_file_cache=no_file_cache) if own else None

    def read(self) -> CgroupUsage | None:
        """Return what is known now; None if the group is gone; raises DataError."""
        if not any(folder.is_dir() for folder in self._folders.values()):
            return None
        if "memory" in self._folders or "cpuacct" in self._folders:
            return self._version_1()
        return self._version_2(self._folders[""])

    def _version_1(self) -> CgroupUsage:
        cpuacct, memory = self._folders.get("cpuacct"), self._folders.get("memory")
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

    def _version_2(self, folder: Path) -> CgroupUsage:
        spent = keyed_counters(folder / "cpu.stat", ("user_usec", "system_usec"))
        user, system = (micros // 1000 for micros in spent) if spent else (None, None)
        memory = proc.counter(folder / "memory.current")
        peak = proc.counter(folder / "memory.peak")
        stat = folder / "memory.stat"
        if self._no_file_cache and memory is not None:
            cache = keyed_counters(stat, ("active_file", "inactive_file"))
            memory, peak = max(0, memory - sum(cache)), None
        return CgroupUsage(user, system, memory, peak, None, _one(stat, "pgmajfault"))


def _one(path: Path, key: str) -> int | None:
    found = keyed_counters(path, (key,))
    return found[0] if found else None
