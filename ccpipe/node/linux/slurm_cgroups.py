"""Slurm's control groups of the steps that run on this node, of version 2 and version 1.

========= ====================================================================================
version 2 ``<slice>/[<node>_]slurmstepd.scope/<job>/step_<step>/user/task_<task>``
version 1 ``<controller>/slurm[_<node>]/uid_<uid>/<job>/step_<step>[/task_<task>]``
========= ====================================================================================

``<job>`` is ``job_<number>``; in version 2 from Slurm 26.05 on it is the job's SLUID, an ``s`` and
13 characters, unless cgroup.conf has ``CgroupJobIdPaths=yes``. ``<slice>`` is ``system.slice``
unless it has ``CgroupSlice``. Where only ``proctrack/cgroup`` makes groups of version 1, steps are
not divided into tasks.
Sources: Slurm's pages *cgroups* and *cgroup_v2*, cgroup.conf(5); version 1 as slurmd 22.05 made it;
Linux, ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/``.
"""

import logging
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.node.linux import proc
from ccpipe.node.linux.process_table import read, read_environment

log = logging.getLogger(__name__)

_JOB = re.compile(r"job_(\d{1,10})", re.ASCII)
_SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
_NO_JOBS = frozenset({"system", "slurmd"})  # other cgroups of slurmd
_PROCESS = re.compile(
    rb"^[^:]*:[^:]*:/([!-~]*?(?:(?<=/)job_\d{1,10}|(?<=slurmstepd\.scope/)s[0-9A-Z]{13}))(?:/|$)",
    re.MULTILINE,
)
_TITLE = re.compile(rb"slurmstepd: \[(\d{1,10})\.")
_STEP = re.compile(r"step_(\d{1,10}|batch|extern|interactive)", re.ASCII)
_TASK = re.compile(r"task_(\d{1,10}|special)", re.ASCII)
_SPECIAL = "special"  # not a task, such as the process that keeps the step extern

_SLICE = re.compile(r"(.+)\.slice")
_SCOPE = re.compile(r"(?:(.+)_)?slurmstepd\.scope")
_SLURM = re.compile(r"slurm(?:_(.+))?")
_UID = re.compile(r"uid_(\d{1,10})", re.ASCII)
_CONTROLLERS = ("memory", "cpuacct", "freezer", "devices", "cpuset", "cpu")
"""Of version 1; the first ones are those that Slurm divides into tasks."""


class StepCgroup(NamedTuple):
    """The processes of a step in one hierarchy of control groups."""

    node: str
    """As in the path; empty where slurmd was built without several to a machine."""
    job: int
    step: str
    tasks: dict[int, frozenset[int]]  # by the global number of a task, its processes
    undivided: frozenset[int]  # processes without a task in this hierarchy
    is_frozen: bool = False
    """Whether they are frozen, as Slurm does to suspend a step."""


_MAX_JOBS = 10_000  # whose numbers are remembered
_MAX_PROCESSES = 100  # of a job that are searched for its number
_RETRY = 10.0  # seconds until a job whose number was not found is looked up again


class JobIds:
    """Finds the jobs that control groups belong to.

    A SLUID does not contain the job's number, but the title of the ``slurmstepd`` of each of the
    job's steps does (``slurmstepd: [1001.batch]``), which every user may read; where no title has
    it, the environment of the job's processes does. A name of an unknown form, and a job without a
    number in any of its processes, is logged once.
    """

    def __init__(self, root: str = "/") -> None:
        self._top = Path(root, "sys/fs/cgroup")
        self._proc = os.path.join(root, "proc")  # noqa: PTH118 - as the readers of /proc
        self._known: dict[str, tuple[int | None, float]] = {}
        """By SLUID, the number and until when it is valid."""
        self._logged: set[str] = set()

    def jobs(self, directory: Path) -> list[tuple[int, Path]]:
        found = ((self.number(directory / name), directory / name) for name in _names(directory))
        return sorted((number, path) for number, path in found if number is not None)

    def unknown(self, directory: Path) -> list[Path]:
        paths = [directory / name for name in sorted(_names(directory)) if _may_be_job(name)]
        return [path for path in paths if path.is_dir() and self.number(path) is None]

    def number(self, path: Path) -> int | None:
        """Return the number of a directory's job; None if it has no job or an unknown one."""
        name = path.name
        if found := _JOB.fullmatch(name):
            return int(found[1])
        if not _SLUID.fullmatch(name):
            if _may_be_job(name) and path.is_dir():
                self._log_once(path, "this form of name is unknown")
            return None
        number, until = self._known.get(name, (None, 0.0))
        if time.monotonic() < until:
            return number
        pids = _processes(path)
        number = self._titled(path) or self._from_environment(name, pids)
        if len(self._known) >= _MAX_JOBS:
            self._known.clear()
        self._known[name] = number, math.inf if number else time.monotonic() + _RETRY
        if number is None and pids:  # without processes it is being made or removed
            self._log_once(path, "none of its processes has the number of the job")
        return number

    def of_process(self, pid: int) -> int | None:
        found = _PROCESS.search(read(f"{self._proc}/{pid}/cgroup"))
        if found is None:
            return None
        path = os.fsdecode(found[1])
        top = self._top / "unified"  # version 2, if version 1 is mounted too
        return self.number((top if (top / path).exists() else self._top) / path)

    def _titled(self, path: Path) -> int | None:
        """Return the number in the title of a step's slurmstepd, which users cannot forge."""
        for _, step in _matching(path, _STEP):
            for pid in _listed(step / "slurm"):
                if found := _TITLE.match(read(f"{self._proc}/{pid}/cmdline")):
                    return int(found[1])
        return None

    def _from_environment(self, sluid: str, pids: frozenset[int]) -> int | None:
        for pid in sorted(pids)[:_MAX_PROCESSES]:
            environment = read_environment(f"{self._proc}/{pid}")
            text = environment.get("SLURM_JOB_ID", "")
            found = _JOB.fullmatch(f"job_{text}")
            if found and environment.get("SLURM_JOB_SLUID", sluid) == sluid:
                return int(found[1])
        return None

    def _log_once(self, path: Path, reason: str) -> None:
        text = f"{path}: not attributed to a Slurm job: {reason}"
        if text not in self._logged and len(self._logged) < _MAX_JOBS:
            self._logged.add(text)
            log.warning("%s", text)


def find_steps(root: str, ids: JobIds) -> Iterator[StepCgroup]:
    """Yield the groups of steps, in version 1 once for each controller.

    Groups that vanish meanwhile are omitted.
    """
    top = Path(root, "sys/fs/cgroup")
    for directory, node in version_2_directories(top):
        for job, path in ids.jobs(directory):
            yield from _steps(path, node, job, "user")
    for controller in _CONTROLLERS:
        for directory, node in version_1_directories(top / controller):
            for job, path in ids.jobs(directory):
                yield from _steps(path, node, job, "")


def version_2_directories(top: Path) -> Iterator[tuple[Path, str]]:
    """Yield the directories of jobs, with the node; version 1 may be mounted as well."""
    for mount in (top, top / "unified"):
        for _, directory in _matching(mount, _SLICE):
            for node, path in _matching(directory, _SCOPE):
                yield path, node


def version_1_directories(controller: Path) -> Iterator[tuple[Path, str]]:
    for node, path in _matching(controller, _SLURM):
        for _, directory in _matching(path, _UID):
            yield directory, node


def _steps(job_directory: Path, node: str, job: int, below: str) -> Iterator[StepCgroup]:
    for step, path in _matching(job_directory, _STEP):
        tasks: dict[int, frozenset[int]] = {}
        for task, directory in _matching(path / below, _TASK):
            number = 0 if task == _SPECIAL else int(task)
            tasks[number] = tasks.get(number, frozenset()) | _processes(directory)
        undivided = frozenset() if below else _listed(path)
        yield StepCgroup(node, job, step, tasks, undivided, _is_frozen(path, below))


def _is_frozen(step_directory: Path, below: str) -> bool:
    """Return whether a group is frozen; in version 1 only ``freezer`` reports it."""
    if below:
        return "frozen 1" in _text(step_directory / below / "cgroup.events").splitlines()
    return _text(step_directory / "freezer.state").strip() in ("FREEZING", "FROZEN")


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _may_be_job(name: str) -> bool:
    """Exclude most of the kernel's own files, whose names have a dot, without a system call."""
    return "." not in name and name not in _NO_JOBS


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - hundreds of paths cost too much
    except OSError:
        return []


def _matching(directory: Path, pattern: re.Pattern[str]) -> list[tuple[str, Path]]:
    found = map(pattern.fullmatch, _names(directory))
    return sorted((one[1] or "", directory / one[0]) for one in found if one)


def _processes(directory: Path) -> frozenset[int]:
    """Return the processes of a group and of its subgroups."""
    found = [_listed(Path(path)) for path, _, _ in os.walk(directory)]
    return frozenset().union(*found)


def _listed(directory: Path) -> frozenset[int]:
    try:
        words = (directory / "cgroup.procs").read_bytes().split()
    except OSError:
        return frozenset()
    # A process of another process namespace is listed as 0.
    return frozenset(int(word) for word in words if word.isdigit() and word != b"0")


def keyed_counters(path: Path, keys: Sequence[str]) -> list[int]:
    """Parse counters from lines ``key counter``; empty if none of them is present."""
    lines = (proc.word(path) or "").splitlines()
    rows = {key: value for key, _, value in (line.partition(" ") for line in lines)}
    words = [rows[key] for key in keys if key in rows]
    if lines and not any(value.isdecimal() for value in rows.values()):
        raise DataError(f"{path}: {lines[0]!r:.60} is not a counter")
    return proc.counters(str(path), words, minimum=len(keys)) if words else []


def directories_of(pid: int, root: str = "/") -> dict[str, Path]:
    """Return the directories of a process's control groups by controller; ``""`` is version 2's."""
    top = Path(root, "sys/fs/cgroup")
    found: dict[str, Path] = {}
    for line in proc.text(Path(root, f"proc/{pid}/cgroup")).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        below = path.lstrip("/")
        if not controllers:
            mounts = [top, top / "unified"]
            found[""] = next((m / below for m in mounts if (m / below).is_dir()), top / below)
        for controller in filter(None, controllers.split(",")):
            mounts = [top / controller, top / controllers]
            found[controller] = next((m for m in mounts if m.is_dir()), mounts[0]) / below
    return found
