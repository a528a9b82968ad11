"""Polls the tasks of a step on this node.

Source: Slurm Job Accounting Gather Plugin API, ``startpoll`` to ``remove_task``; polling as in
Slurm's plug-ins linux and cgroup.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ccpipe.errors import CcpipeError, DataError
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.gather.jobacct.record import (
    CPU,
    DISK,
    ENERGY,
    GPU_MEM,
    GPU_UTIL,
    MEM,
    PAGES,
    VMEM,
    JobacctError,
    JobacctInfo,
    TaskId,
    create,
)
from ccpipe.node.gather.jobacct.task_usage import CgroupUsage, ProcessTree, TaskCgroup, TreeUsage
from ccpipe.node.gather.timer import PollTimer
from ccpipe.node.linux.nvml import Driver

log = logging.getLogger(__name__)

_MEBIBYTE = 2**20


class EnergyReading(NamedTuple):
    """Energy of the whole node."""

    joules: int  # since some time before the step began
    watts: int


class TaskSample(NamedTuple):
    """One sample of one task, with the fields and units of Slurm's series ``Tasks``."""

    id: TaskId
    pid: int  # the process that the task began as
    time: float  # Unix seconds
    values: dict[str, int | float | None]


class GpuUsage(NamedTuple):
    """Usage of one process, summed over all GPUs."""

    memory: int  # bytes
    utilization: float  # percent of one GPU


class GpuPoller:
    """The GPUs of the node; without a driver, nothing is loaded."""

    def __init__(self, *, root: str = "/") -> None:
        self._is_there = Driver(root).is_there()
        self._root = root
        self._reader: Any = None

    def poll(self) -> dict[int, GpuUsage] | None:
        """Return usage by pid; None if no GPU reports it."""
        if not self._is_there:
            return None
        from ccpipe.node.collectors.sonar.gpus import NvidiaGpus

        self._reader = self._reader or NvidiaGpus(root=self._root)
        errors = Errors()
        try:
            gpus, processes = self._reader.sample(errors)
        except (CcpipeError, OSError):
            return None
        if not gpus:
            return None
        return {
            pid: GpuUsage(
                sum(use.gpu_memory for use in uses) * 1024, sum(use.gpu_util for use in uses)
            )
            for pid, uses in processes.items()
        }


class _Task:
    def __init__(self, info: JobacctInfo, cgroup: TaskCgroup | None) -> None:
        self.info = info
        self.cgroup = cgroup
        self.processes: Collection[int] = ()  # processes that belong to it, whatever their parent
        self.tree: TreeUsage | None = None  # as of the last poll
        self.joules: int | None = None  # of the node, when the task began
        self.sampled: tuple[float, int, int, int] | None = None
        """Monotonic seconds, milliseconds of processor time, bytes read and written."""
        self.suspended_since: float | None = None  # monotonic seconds

    def exclude(self, since: float, now: float) -> None:
        """Exclude the time from `since` until `now` from the current poll interval."""
        if self.sampled is not None:
            clock, *rest = self.sampled
            self.sampled = (clock + now - max(since, clock), rest[0], rest[1], rest[2])


class TaskPoller:
    """The tasks of a step on this node; any thread may call.

    Parameters
    ----------
    cgroup
        Take processor time, memory and page faults from the control group that Slurm made for the
        task, if it exists.
    use_pss
        Count memory of processes as the proportional set size.
    energy
        Returns the energy of the node, or None if it is not known.
    on_poll
        Is called after each poll with a sample of each task.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(
        self,
        *,
        cgroup: bool = False,
        use_pss: bool = False,
        energy: Callable[[], EnergyReading | None] | None = None,
        on_poll: Callable[[list[TaskSample]], object] | None = None,
        root: str = "/",
    ) -> None:
        self._root = root
        self._cgroup = cgroup
        self._tree = ProcessTree(use_pss=use_pss, root=root)
        self._gpus = GpuPoller(root=root)
        self._energy, self._on_poll = energy, on_poll
        self._tasks: list[_Task] | None = None
        self._container: int | None = None
        self._lock = threading.RLock()  # of the list and the tree
        self._timer = PollTimer("jobacct")
        self._suspended_since: float | None = None

    def start_poll(self, frequency: float) -> None:
        """Poll every `frequency` seconds; 0 polls only on request."""
        if frequency < 0:
            raise JobacctError(f"start_poll: not a frequency: {frequency}")
        with self._lock:
            if self._tasks is not None:
                log.error("start_poll: polling has already started")
                return
            self._tasks = []
        if frequency:
            self._timer.add(frequency, self.poll)
            self._timer.start()

    def end_poll(self) -> None:
        """Stop polling and forget all tasks; raise JobacctError if it has not started."""
        self._timer.stop()
        with self._lock:
            if self._tasks is None:
                raise JobacctError("end_poll: polling has not started")
            self._tasks = None
            self._tree.close()

    def suspend_poll(self) -> None:
        self._timer.suspend()
        with self._lock:
            self._suspended_since = self._suspended_since or time.monotonic()

    def resume_poll(self) -> None:
        """Poll again, as if no time had passed."""
        with self._lock:
            if self._suspended_since is not None:
                for task in self._tasks or ():
                    task.exclude(self._suspended_since, time.monotonic())
            self._suspended_since = None
        self._timer.resume()

    def suspend_task(self, pid: int) -> None:
        """Exclude one task from polls until ``resume_task``; ignore unknown pids."""
        with self._lock:
            task = self._find(pid)
            if task is not None and task.suspended_since is None:
                task.suspended_since = time.monotonic()

    def resume_task(self, pid: int) -> None:
        """Poll a task again, as if no time had passed."""
        with self._lock:
            task = self._find(pid)
            if task is not None and task.suspended_since is not None:
                task.exclude(task.suspended_since, time.monotonic())
                task.suspended_since = None

    def set_proctrack_container_id(self, container: int) -> None:
        """Set the process at the head of the step's tree; before, nothing is polled."""
        if container <= 0:
            raise JobacctError(f"set_proctrack_container_id: not a container: {container}")
        if self._container is not None:
            log.warning("container %d replaces container %d", container, self._container)
        self._container = container

    def add_task(self, pid: int, task_id: TaskId, *, poll: bool = False) -> None:
        """Gather the usage of the process `pid` and its descendants."""
        if pid <= 0:
            raise JobacctError(f"add_task: not a process: {pid}")
        info = create(task_id)
        info.pid = pid
        group = TaskCgroup.of(pid, root=self._root) if self._cgroup else None
        with self._lock:
            if self._tasks is None:
                raise JobacctError("add_task: polling has not started")
            if self._find(pid) is not None:
                raise JobacctError(f"add_task: process {pid} is a task already")
            self._tasks.insert(0, _Task(info, group))
        if poll:
            self._poll()

    def set_processes(self, pid: int, processes: Collection[int]) -> None:
        """Also count processes for a task that its control group lists, whatever their parent."""
        with self._lock:
            task = self._find(pid)
            if task is None:
                raise JobacctError(f"set_processes: process {pid} is not a task")
            task.processes = processes

    def stat_task(self, pid: int) -> JobacctInfo | None:
        """Poll, and return a copy of a task's record; None for no task, and for pid 0."""
        with self._lock:
            if self._tasks is None:
                return None
            self._poll()
            task = self._find(pid)
            return None if task is None else task.info.copy()

    def remove_task(self, pid: int, *, poll: bool = True) -> JobacctInfo | None:
        """Poll a last time, stop gathering a task, and return its record.

        Pid 0 is the task that was added last. Returns None for an unknown task.
        """
        with self._lock:
            if not self._tasks:
                return None
            if poll:
                self._poll()
            task = self._find(pid) if pid else self._tasks[0]
            if task is None:
                return None
            self._tasks.remove(task)
            self._tree.forget(task.info.pid)
            return task.info

    def pids(self) -> dict[int, tuple[int, ...]]:
        with self._lock:
            return self._tree.pids()

    def poll(self) -> None:
        """Poll all tasks now; return at once if another thread is polling."""
        if self._lock.acquire(blocking=False):
            try:
                self._poll()
            finally:
                self._lock.release()

    def _find(self, pid: int) -> _Task | None:
        return next((task for task in self._tasks or () if task.info.pid == pid), None)

    def _poll(self) -> None:
        with self._lock:
            if not self._tasks or self._container is None:
                return
            now, clock = time.time(), time.monotonic()
            others = {pid: task.info.pid for task in self._tasks for pid in task.processes}
            trees = self._tree.poll([task.info.pid for task in self._tasks], others)
            gpus = self._gpus.poll()
            energy = self._energy() if self._energy else None
            samples = []
            for task in self._tasks:
                if task.suspended_since is not None:
                    continue
                tree = trees.get(task.info.pid)
                _update(task, tree, energy)
                use = None if gpus is None or tree is None else _gpu(task.info, tree, gpus)
                if tree is not None:
                    values = _sample(task, clock, tree, use)
                    if values["CPUFrequency"] is None:  # it has not run yet
                        values["CPUFrequency"] = self._tree.frequency(task.info.pid)
                    samples.append(TaskSample(task.info.id, task.info.pid, now, values))
            if self._on_poll is not None and samples:
                try:
                    self._on_poll(samples)
                except (CcpipeError, OSError) as error:
                    log.warning("samples of %d tasks are lost: %s", len(samples), error)


def _update(task: _Task, tree: TreeUsage | None, energy: EnergyReading | None) -> None:
    """Apply new readings; values that are unknown now keep their last value."""
    info, group = task.info, _read_group(task)
    is_idle = group is None and tree is not None and tree == task.tree and not tree.weighed
    task.tree = tree
    if energy is not None:
        task.joules = energy.joules if task.joules is None else task.joules
        info.update(ENERGY, energy.joules - task.joules)
        info.update(ENERGY, energy.watts, out=True)
    if is_idle or (tree is None and group is None):
        return
    if tree is not None:
        info.user = max(info.user, tree.user * 1000)
        info.system = max(info.system, tree.system * 1000)
        info.cpu_time_weighed += tree.weighed
        info.weighted_frequency += tree.weighted_frequency
        if tree.io is not None:
            info.update(DISK, max(tree.io[0], _total(info, DISK)))
            info.update(DISK, max(tree.io[1], _total(info, DISK, out=True)), out=True)
    if group is not None and group.user is not None and group.system is not None:
        info.user = max(info.user, group.user * 1000)
        info.system = max(info.system, group.system * 1000)
    info.update(CPU, (info.user + info.system) // 1000)
    memory, virtual, faults = (
        _first(group and group.memory, tree and tree.resident),
        _first(group and group.virtual, tree and tree.virtual),
        _first(group and group.faults, tree and tree.faults),
    )
    peak = (group and group.peak) or 0
    # A task that ended before its first poll has no memory left: its peak is unknown.
    if memory is not None and (memory or peak or MEM in info.usage_in):
        info.update(MEM, memory, peak=peak)
    if virtual is not None and (virtual or VMEM in info.usage_in):
        info.update(VMEM, virtual)
    if faults is not None:
        info.update(PAGES, max(faults, _total(info, PAGES)))


def _read_group(task: _Task) -> CgroupUsage | None:
    if task.cgroup is None:
        return None
    try:
        return task.cgroup.read()
    except (DataError, OSError) as error:
        log.warning("task %s: %s", task.info.id.task, error)
        return None


def _first(value: int | None, other: int | None) -> int | None:
    return other if value is None else value


def _total(info: JobacctInfo, resource: str, *, out: bool = False) -> int:
    usage = (info.usage_out if out else info.usage_in).get(resource)
    return (usage.total if usage else 0) or 0


def _gpu(info: JobacctInfo, tree: TreeUsage, gpus: dict[int, GpuUsage]) -> GpuUsage:
    uses = [gpus[pid] for pid in tree.pids if pid in gpus]
    use = GpuUsage(sum(use.memory for use in uses), sum(use.utilization for use in uses))
    info.update(GPU_MEM, use.memory)
    info.update(GPU_UTIL, round(use.utilization))
    return use


def _sample(
    task: _Task, clock: float, tree: TreeUsage, gpu: GpuUsage | None
) -> dict[str, int | float | None]:
    """Return the fields of Slurm's series; the first differences are 0."""
    info = task.info
    cpu, read, written = _total(info, CPU), _total(info, DISK), _total(info, DISK, out=True)
    before = task.sampled or (clock, cpu, read, written)
    task.sampled = clock, cpu, read, written
    seconds, spent = clock - before[0], (cpu - before[1]) / 1000
    has_io = tree.io is not None
    values: dict[str, int | float | None] = {
        "CPUFrequency": info.cpu_frequency,
        "CPUTime": spent,
        "CPUUtilization": 100 * spent / seconds if seconds > 0 else 0.0,
        "RSS": _total(info, MEM) // 1024,
        "VMSize": _total(info, VMEM) // 1024,
        "Pages": _total(info, PAGES),
        "ReadMB": (read - before[2]) / _MEBIBYTE if has_io else None,
        "WriteMB": (written - before[3]) / _MEBIBYTE if has_io else None,
    }
    if gpu is not None:
        values["GPUMemMB"] = gpu.memory // _MEBIBYTE
        values["GPUUtilization"] = float(gpu.utilization)
    return values
