"""Slurm's control groups of the steps that run on this node, of version 2 and version 1.

========= ====================================================================================
version 2 ``system.slice/[<node>_]slurmstepd.scope/job_<job>/step_<step>/user/task_<task>``
version 1 ``<controller>/slurm[_<node>]/uid_<uid>/job_<job>/step_<step>[/task_<task>]``
========= ====================================================================================

Where only ``proctrack/cgroup`` makes groups of version 1, steps are not divided into tasks.
Source: Slurm's pages *cgroups* and *cgroup_v2*; version 1 as slurmd 22.05 made it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_JOB = re.compile(r"job_(\d{1,10})", re.ASCII)
_STEP = re.compile(r"step_(\d{1,10}|batch|extern|interactive)", re.ASCII)
_TASK = re.compile(r"task_(\d{1,10}|special)", re.ASCII)
_SPECIAL = "special"  # what no task is, such as the process that holds the step extern

_SCOPE = re.compile(r"(?:(.+)_)?slurmstepd\.scope")
_SLURM = re.compile(r"slurm(?:_(.+))?")
_UID = re.compile(r"uid_(\d{1,10})", re.ASCII)
_CONTROLLERS = ("memory", "cpuacct", "freezer", "devices", "cpuset", "cpu")
"""Of version 1, those first that Slurm divides into tasks."""


class StepCgroup(NamedTuple):
    """The processes of a step in one hierarchy of control groups."""

    node: str
    """As in the path; empty where slurmd was built without several to a machine."""
    job: int
    step: str
    tasks: dict[int, frozenset[int]]
    """By the global number of a task, its processes."""
    undivided: frozenset[int]
    """Processes that the hierarchy says no task of."""
    is_frozen: bool = False
    """Whether they are kept from running, as Slurm does it to suspend a step."""


def find_steps(root: str = "/") -> Iterator[StepCgroup]:
    """Yield the groups of steps; those of version 1 once for each controller.

    Groups that vanish meanwhile are left out.
    """
    top = Path(root, "sys/fs/cgroup")
    for folder, node in version_2_folders(top):
        for job, path in _matching(folder, _JOB):
            yield from _steps(path, node, int(job), "user")
    for controller in _CONTROLLERS:
        for folder, node in version_1_folders(top / controller):
            for job, path in _matching(folder, _JOB):
                yield from _steps(path, node, int(job), "")


def version_2_folders(top: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders that hold jobs, with the node; they may stand beside version 1."""
    for folder in (top / "system.slice", top / "unified" / "system.slice"):
        for node, path in _matching(folder, _SCOPE):
            yield path, node


def version_1_folders(controller: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders of a controller that hold jobs, one of each node and user."""
    for node, path in _matching(controller, _SLURM):
        for _, folder in _matching(path, _UID):
            yield folder, node


def _steps(job_folder: Path, node: str, job: int, below: str) -> Iterator[StepCgroup]:
    for step, path in _matching(job_folder, _STEP):
        tasks: dict[int, frozenset[int]] = {}
        for task, folder in _matching(path / below, _TASK):
            number = 0 if task == _SPECIAL else int(task)
            tasks[number] = tasks.get(number, frozenset()) | _processes(folder)
        undivided = frozenset() if below else _listed(path)
        yield StepCgroup(node, job, step, tasks, undivided, _is_frozen(path, below))


def _is_frozen(step_folder: Path, below: str) -> bool:
    """Return whether a group is frozen; of version 1 only the controller ``freezer`` says so."""
    if below:
        return "frozen 1" in _text(step_folder / below / "cgroup.events").splitlines()
    return _text(step_folder / "freezer.state").strip() in ("FREEZING", "FROZEN")


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[tuple[str, Path]]:
    """Return the sub-folders whose names match, sorted by what the names say."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - hundreds of paths cost too much
    except OSError:
        return []
    found = map(pattern.fullmatch, names)
    return sorted((one[1] or "", folder / one[0]) for one in found if one)


def _processes(folder: Path) -> frozenset[int]:
    """Return the processes of a group and of those that it was divided into."""
    found = [_listed(Path(path)) for path, _, _ in os.walk(folder)]
    return frozenset().union(*found)


def _listed(folder: Path) -> frozenset[int]:
    try:
        words = (folder / "cgroup.procs").read_bytes().split()
    except OSError:
        return frozenset()
    # A process of another process namespace is listed as 0.
    return frozenset(int(word) for word in words if word.isdigit() and word != b"0")
