"""Measures the tasks of all steps that Slurm runs on this node.

Slurm polls a task a last time before it reaps the process. From outside that is not possible: what
a task used after the last poll is known only if it has its own control group that still exists,
and tasks that start and end between two scans are missed.
"""

import logging
import time
from collections.abc import Callable, Iterable

import msgspec

from ccpipe.node.gather.jobacct.poller import TaskPoller, TaskSample
from ccpipe.node.gather.jobacct.record import (
    JobacctError,
    JobacctInfo,
    TaskId,
    aggregate,
    create,
)
from ccpipe.node.gather.profile import Step
from ccpipe.node.gather.steps.finder import FoundStep, StepFinder, StepKey
from ccpipe.node.linux.process_table import start_time

log = logging.getLogger(__name__)


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
    """All steps of the node. Its calls come from one thread.

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
        """Apply the findings about a step; return whether a task began."""
        running = self.steps.get(key)
        if running is None:
            pids = [pid for task in found.tasks.values() for pid in task]
            began = self._eldest(pids)[0]
            running = self.steps[key] = RunningStep(found.step, found.uid, began)
            self._on_start(running)
        has_begun = False
        for number, task in found.tasks.items():
            pid = running.tasks.get(number)
            if pid is None:
                pid = self._eldest(task)[1]
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

    def _eldest(self, pids: Iterable[int]) -> tuple[float, int]:
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
