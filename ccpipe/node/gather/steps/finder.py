"""Which steps run on this node, and which processes belong to which of their tasks."""

import os
import pwd
import re
from collections.abc import Mapping
from typing import NamedTuple

from ccpipe.node.gather.profile import Step
from ccpipe.node.linux.process_table import find_process, read_environment
from ccpipe.node.linux.slurm_cgroups import JobIds, find_steps

_MAX_ID = 2**32
_TASKS = re.compile(r"(\d{1,7})(?:\(x(\d{1,7})\))?", re.ASCII)


class StepKey(NamedTuple):
    """Identifies a step on this machine."""

    node: str
    """Of the control group; empty where slurmd was built without several to a machine."""
    job: int
    step: str


class FoundStep(NamedTuple):
    """A step that has processes on this node."""

    step: Step
    uid: int
    tasks: dict[int, frozenset[int]]
    """Processes of each task, by its global number; at least one each."""
    is_suspended: bool = False  # whether it is frozen, or all of its processes are stopped


class StepFinder:
    """Looks for steps again and again.

    Where control groups do not say a process's task, its environment does (``SLURM_PROCID``). Where
    that may not be read, all of a step's processes count for its task 0.
    """

    def __init__(self, hostname: str, *, root: str = "/") -> None:
        self._hostname, self._root = hostname, root
        self._proc = os.path.join(root, "proc")  # noqa: PTH118 - as the readers of /proc
        self._ids = JobIds(root)
        self._known: dict[StepKey, FoundStep] = {}

    def find(self) -> dict[StepKey, FoundStep]:
        tasks: dict[StepKey, dict[int, frozenset[int]]] = {}
        undivided: dict[StepKey, frozenset[int]] = {}
        frozen: set[StepKey] = set()
        for group in find_steps(self._root, self._ids):
            key = StepKey(group.node, group.job, group.step)
            mine = tasks.setdefault(key, {})
            for number, pids in group.tasks.items():
                mine[number] = mine.get(number, frozenset()) | pids
            undivided[key] = undivided.get(key, frozenset()) | group.undivided
            if group.is_frozen:
                frozen.add(key)
        for key, mine in tasks.items():
            self._divide(key, mine, undivided[key].difference(*mine.values()))
        self._known = {
            key: self._found(key, {number: pids for number, pids in mine.items() if pids})
            for key, mine in tasks.items()
            if any(mine.values())
        }
        return {
            key: step._replace(is_suspended=key in frozen or self._is_stopped(step))
            for key, step in self._known.items()
        }

    def _is_stopped(self, step: FoundStep) -> bool:
        """Return whether all processes are stopped: without a freezer Slurm sends SIGSTOP.

        Of a step that runs, the first process mostly answers that.
        """
        is_any_stopped = False
        for pid in (pid for pids in step.tasks.values() for pid in pids):
            process = find_process(pid, self._root)
            if process is not None and process.state not in "TZX":
                return False
            is_any_stopped |= process is not None and process.state == "T"
        return is_any_stopped

    def _divide(
        self, key: StepKey, tasks: dict[int, frozenset[int]], undivided: frozenset[int]
    ) -> None:
        if not undivided:
            return
        known = self._known.get(key)
        before = known.tasks if known else {}
        numbers = {pid: number for number, pids in before.items() for pid in pids}
        for pid in undivided:
            number = numbers.get(pid)
            if number is None:
                number = _number(self._environment(pid), "SLURM_PROCID", 0)
            tasks[number] = tasks.get(number, frozenset()) | {pid}

    def _found(self, key: StepKey, tasks: dict[int, frozenset[int]]) -> FoundStep:
        known = self._known.get(key)
        if known is not None:
            return known._replace(tasks=tasks)
        pid = min(min(pids) for pids in tasks.values())
        environment = self._environment(pid)
        node_index = _number(environment, "SLURM_NODEID", 0)
        try:
            uid = os.stat(f"{self._proc}/{pid}").st_uid  # noqa: PTH116 - as the readers of /proc
        except OSError:
            uid = os.geteuid()
        step = Step(
            job=key.job,
            step=key.step,
            node=key.node or self._hostname,
            user=_user(uid),
            node_index=node_index,
            tasks=_tasks_here(environment, node_index) or len(tasks),
            cpus_per_task=_number(environment, "SLURM_CPUS_PER_TASK", 1),
        )
        return FoundStep(step, uid, tasks)

    def _environment(self, pid: int) -> Mapping[str, str]:
        return read_environment(f"{self._proc}/{pid}")


def _number(environment: Mapping[str, str], name: str, otherwise: int) -> int:
    """Return a number that Slurm set, or `otherwise`: a program may have set anything."""
    text = environment.get(name, "")
    is_number = text.isascii() and text.isdecimal() and int(text) < _MAX_ID
    return int(text) if is_number else otherwise


def _tasks_here(environment: Mapping[str, str], node_index: int) -> int | None:
    """Read the tasks of a node from those of all nodes, such as ``4(x2),3``."""
    first = 0
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        found = _TASKS.fullmatch(part)
        if found is None:
            return None
        first += int(found[2] or 1)
        if node_index < first:
            return int(found[1])
    return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
