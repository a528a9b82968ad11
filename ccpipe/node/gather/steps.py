"""The steps that Slurm runs on this node: their processes, and the usage of their tasks.

Steps are found by their control groups. Slurm polls a task a last time before it reaps the process.
From outside that is not possible: usage after the last poll is known only if the task has its own
control group that still exists, and tasks that start and end between two scans are missed.
"""

import logging
import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from ccpipe.node.gather.jobacct.poller import TaskPoller, TaskSample
from ccpipe.node.gather.jobacct.record import JobacctError, JobacctInfo, TaskId, aggregate, create
from ccpipe.node.gather.profile import Step
from ccpipe.node.linux.process_table import find_process, owner_of, read_environment, start_time
from ccpipe.node.linux.slurm_cgroups import JobIds, find_steps

log = logging.getLogger(__name__)

_MAX_ID = 2**32
_TASKS = re.compile(r"(\d{1,7})(?:\(x(\d{1,7})\))?", re.ASCII)


class StepKey(NamedTuple):
    """Identifies a step on this machine."""

    node: str
    """Node name of the control group; empty unless slurmd is built for several per machine."""
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
    """Finds steps, scan by scan.

    If control groups do not identify a process's task, its environment does (``SLURM_PROCID``). If
    that is unreadable, all of the step's processes count for its task 0.
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

        For a running step, checking the first process usually suffices.
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
        owner = owner_of(f"{self._proc}/{pid}")
        uid = os.geteuid() if owner is None else owner
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
    """Return a node's number of tasks from a list for all nodes such as ``4(x2),3``."""
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


class RunningStep(msgspec.Struct):
    """A step that is being measured."""

    step: Step
    uid: int
    began: float  # when its first process started, in seconds since the boot
    record: JobacctInfo = msgspec.field(default_factory=create)  # usage of its finished tasks
    tasks: dict[int, int] = {}  # the first process of each task, by its global number
    suspended: float = 0.0  # seconds that it was suspended, until it was resumed last
    suspended_since: float | None = None  # seconds since boot; None while it runs

    @property
    def seconds(self) -> float:
        """How long it has been running, without the time that it was suspended."""
        now = _now() if self.suspended_since is None else self.suspended_since
        return max(0.0, now - self.began - self.suspended)


class StepGather:
    """All steps of the node; call it from a single thread.

    `make_poller` makes the poller of all tasks from the function that takes their samples. When
    `on_end` is called, the record of the step is complete.
    """

    def __init__(
        self,
        finder: StepFinder,
        make_poller: Callable[[Callable[[list[TaskSample]], object]], TaskPoller],
        *,
        on_start: Callable[[RunningStep], object],
        on_samples: Callable[[RunningStep, list[TaskSample]], object],
        on_end: Callable[[RunningStep], object],
        root: str = "/",
    ) -> None:
        self.steps: dict[StepKey, RunningStep] = {}
        self._finder, self._root = finder, root
        self._on_start, self._on_samples, self._on_end = on_start, on_samples, on_end
        self._owners: dict[int, RunningStep] = {}  # by first process of a task
        self._poller = make_poller(self._distribute)
        self._poller.set_proctrack_container_id(1)  # steps of all users
        self._poller.start_poll(0)

    def close(self) -> None:
        """Stop measuring. Steps that still run are not reported as ended."""
        self._poller.end_poll()

    def poll(self) -> None:
        if self._owners:
            self._poller.poll()

    def scan(self) -> None:
        """Find steps and tasks that started or ended. New ones are sampled at once."""
        found = self._finder.find()
        ended = [
            (running, number)
            for key, running in self.steps.items()
            for number in running.tasks
            if key not in found or number not in found[key].tasks
        ]
        began = [self._update(key, step) for key, step in found.items()]
        if any(began) or ended:
            self.poll()
        self._remove(ended)
        for key, step in found.items():
            self._set_suspended(self.steps[key], is_suspended=step.is_suspended)
        for key in self.steps.keys() - found.keys():
            self._on_end(self.steps.pop(key))

    def _update(self, key: StepKey, found: FoundStep) -> bool:
        """Update a step from a scan; return whether a task began."""
        running = self.steps.get(key)
        if running is None:
            pids = [pid for task in found.tasks.values() for pid in task]
            began = self._oldest_process(pids)[0]
            running = self.steps[key] = RunningStep(found.step, found.uid, began)
            self._on_start(running)
        has_begun = False
        for number, task in found.tasks.items():
            pid = running.tasks.get(number)
            if pid is None:
                pid = self._oldest_process(task)[1]
                try:
                    self._poller.add_task(pid, TaskId(number, running.step.node_index))
                except JobacctError as error:
                    # The pid belonged to a task that has not ended yet.
                    log.warning("task %d of %s: %s", number, describe(key), error)
                    continue
                running.tasks[number] = pid
                self._owners[pid] = running
                has_begun = True
            self._poller.set_processes(pid, task)
        return has_begun

    def _set_suspended(self, running: RunningStep, *, is_suspended: bool) -> None:
        """Suspend or resume sampling of a step; suspended time does not count."""
        since = running.suspended_since
        if is_suspended:
            running.suspended_since = _now() if since is None else since
            for pid in running.tasks.values():
                self._poller.suspend_task(pid)
        elif since is not None:
            running.suspended += _now() - since
            running.suspended_since = None
            for pid in running.tasks.values():
                self._poller.resume_task(pid)

    def _remove(self, ended: Iterable[tuple[RunningStep, int]]) -> None:
        for running, number in ended:
            pid = running.tasks.pop(number)
            del self._owners[pid]
            aggregate(running.record, self._poller.remove_task(pid, poll=False))

    def _oldest_process(self, pids: Iterable[int]) -> tuple[float, int]:
        now = _now()
        found = ((start_time(pid, self._root), pid) for pid in pids)
        return min((now if start is None else start, pid) for start, pid in found)

    def _distribute(self, samples: list[TaskSample]) -> None:
        by_step: dict[Step, list[TaskSample]] = {}
        for sample in samples:
            by_step.setdefault(self._owners[sample.pid].step, []).append(sample)
        for mine in by_step.values():
            self._on_samples(self._owners[mine[0].pid], mine)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def describe(key: StepKey) -> str:
    return f"{key.job}.{key.step}" + (f" on {key.node}" if key.node else "")
