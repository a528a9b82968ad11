"""The poller's calls, on real processes."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ccpipe.errors import EncodeError
from ccpipe.node.gather.jobacct import JobacctError, TaskId, TaskPoller, aggregate, create, to_sacct
from ccpipe.node.gather.jobacct.poller import EnergyReading, GpuPoller, GpuUsage, TaskSample
from tests.node.fake_nvml import DRIVER_NOT_LOADED, FakeGpu, install
from tests.node.gather.jobacct.conftest import Table

SLEEP = "import time; time.sleep(60)"
BURN = "while True: pass"


@contextlib.contextmanager
def polling(frequency: float = 0, **options: Any) -> Iterator[TaskPoller]:
    found = TaskPoller(**options)
    found.set_proctrack_container_id(os.getpid())
    found.start_poll(frequency)
    yield found
    found.end_poll()


@pytest.fixture
def poller() -> Iterator[TaskPoller]:
    with polling() as found:
        yield found


@pytest.fixture
def pid() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", BURN])
    yield process.pid
    process.kill()
    process.wait()


def test_poller_polls_task_until_removed(poller: TaskPoller, pid: int) -> None:
    poller.add_task(pid, TaskId(7, 1), poll=True)
    first = poller.stat_task(pid)
    assert first is not None
    spent = psutil.Process(pid).cpu_times().user
    while psutil.Process(pid).cpu_times().user < spent + 0.05:
        time.sleep(0.01)
    last = poller.remove_task(pid)
    assert last is not None
    assert last.id == TaskId(7, 1)
    cpu = [info.usage_in["cpu"].total for info in (first, last)]
    assert (cpu[0] or 0) < (cpu[1] or 0)
    assert last.usage_in["mem"].max_id == TaskId(7, 1)
    assert last.cpu_frequency is None or last.cpu_frequency > 100_000
    assert poller.remove_task(pid) is None


def test_memory_is_unknown_of_task_that_ended_before_first_poll(poller: TaskPoller) -> None:
    """A zombie has no memory left, which is not a peak of 0; its processor time still counts."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    poller.add_task(process.pid, TaskId(7, 1), poll=True)
    info = poller.remove_task(process.pid)
    process.wait()
    assert info is not None
    assert "cpu" in info.usage_in
    assert not {"mem", "vmem"} & info.usage_in.keys()


def test_stat_task_returns_copy(poller: TaskPoller, pid: int) -> None:
    poller.add_task(pid, TaskId(0, 0))
    copy = poller.stat_task(pid)
    assert copy is not None
    copy.update("mem", 2**50)
    again = poller.stat_task(pid)
    assert again is not None
    assert (again.usage_in["mem"].max or 0) < 2**50


def test_remove_task_of_pid_0_removes_last_added(poller: TaskPoller, pid: int) -> None:
    """Tasks are added at the front; ``stat_task`` of pid 0 polls and returns None."""
    poller.add_task(os.getpid(), TaskId(0, 0))
    poller.add_task(pid, TaskId(1, 0))
    assert poller.stat_task(0) is None
    removed = poller.remove_task(0)
    assert removed is not None
    assert removed.id.task == 1


@pytest.mark.parametrize("bad", [0, -1])
def test_poller_refuses_invalid_pid(poller: TaskPoller, bad: int) -> None:
    with pytest.raises(JobacctError, match="not a process"):
        poller.add_task(bad, TaskId(0, 0))
    with pytest.raises(JobacctError, match="not a container"):
        poller.set_proctrack_container_id(bad)


def test_poller_returns_none_for_unknown_task_and_refuses_duplicate(
    poller: TaskPoller, pid: int
) -> None:
    """None corresponds to Slurm's NULL."""
    assert poller.stat_task(pid) is None
    assert poller.remove_task(pid) is None
    poller.add_task(pid, TaskId(0, 0))
    with pytest.raises(JobacctError, match="already"):
        poller.add_task(pid, TaskId(0, 0))


def test_poller_refuses_calls_before_start_and_after_end(pid: int) -> None:
    poller = TaskPoller()
    for _ in range(2):
        with pytest.raises(JobacctError, match="not started"):
            poller.add_task(pid, TaskId(0, 0))
        assert poller.stat_task(pid) is None
        assert poller.remove_task(0) is None
        with pytest.raises(JobacctError, match="not started"):
            poller.end_poll()
        poller.start_poll(0)
        poller.end_poll()


def test_second_start_poll_is_logged_and_ignored(
    poller: TaskPoller, pid: int, caplog: pytest.LogCaptureFixture
) -> None:
    poller.add_task(pid, TaskId(0, 0))
    with caplog.at_level(logging.ERROR):
        poller.start_poll(1)
    assert "already started" in caplog.text
    assert poller.stat_task(pid) is not None
    with pytest.raises(JobacctError, match="not a frequency"):
        TaskPoller().start_poll(-1)


def test_poller_polls_nothing_without_container(pid: int, caplog: pytest.LogCaptureFixture) -> None:
    poller = TaskPoller()
    poller.start_poll(0)
    poller.add_task(pid, TaskId(0, 0))
    info = poller.stat_task(pid)
    assert info is not None
    assert not info.usage_in
    poller.set_proctrack_container_id(os.getpid())
    info = poller.stat_task(pid)
    assert info is not None
    assert info.usage_in["mem"].total
    poller.set_proctrack_container_id(os.getpid())
    assert "replaces" in caplog.text
    poller.end_poll()


def test_poller_thread_pauses_while_suspended(pid: int) -> None:
    """Samples stop with ``suspend_poll`` and continue with ``resume_poll``."""
    samples: list[TaskSample] = []
    came, went_on = threading.Event(), threading.Event()

    def take(new: list[TaskSample]) -> None:
        samples.extend(new)
        if not came.is_set():
            own.suspend_poll()  # here no other poll is under way
            came.set()
        if sum(sample.values["CPUTime"] or 0 for sample in samples[1:]) > 0:
            went_on.set()

    with polling(0.05, on_poll=take) as own:
        own.add_task(pid, TaskId(3, 0))
        assert came.wait(60)
        time.sleep(0.3)  # six intervals
        assert len(samples) == 1
        own.resume_poll()
        assert went_on.wait(60)
    first = samples[0]
    assert first.id == TaskId(3, 0)
    assert (first.values["CPUTime"], first.values["ReadMB"]) == (0, 0)


@pytest.mark.parametrize("is_whole_step", [False, True])
def test_suspended_time_does_not_count(
    pid: int, monkeypatch: pytest.MonkeyPatch, is_whole_step: bool
) -> None:
    """The first utilization afterwards refers to the time that the task ran."""
    clock = 100.0
    monkeypatch.setattr("ccpipe.node.gather.jobacct.poller.time.monotonic", lambda: clock)
    samples: list[TaskSample] = []
    with polling(on_poll=samples.extend) as poller:
        poller.add_task(pid, TaskId(0, 0), poll=True)
        clock += 1
        poller.suspend_poll() if is_whole_step else poller.suspend_task(pid)
        clock += 1000
        poller.resume_poll() if is_whole_step else poller.resume_task(pid)
        clock += 2
        spent = 0.0
        while not spent:  # the task computes
            poller.poll()
            spent = samples[-1].values["CPUTime"] or 0
            if not spent:
                samples.pop()
                clock += 3
        assert samples[-1].values["CPUUtilization"] == pytest.approx(100 * spent / 3)


def test_suspended_task_is_not_polled(pid: int) -> None:
    samples: list[TaskSample] = []
    with polling(on_poll=samples.extend) as poller:
        poller.add_task(pid, TaskId(0, 0))
        poller.suspend_task(pid)
        poller.suspend_task(1)
        poller.poll()
        assert not samples
        poller.resume_task(pid)
        poller.resume_task(1)
        poller.poll()
        assert len(samples) == 1


def test_poll_returns_while_other_thread_polls(pid: int) -> None:
    inside, leave, left = threading.Event(), threading.Event(), list[bool]()

    def wait(_: list[TaskSample]) -> None:
        inside.set()
        left.append(leave.wait(60))

    with polling(on_poll=wait) as poller:
        poller.add_task(pid, TaskId(0, 0))
        thread = threading.Thread(target=poller.poll)
        thread.start()
        assert inside.wait(60)
        poller.poll()
        assert not left
        leave.set()
        thread.join()


def test_tasks_stay_when_samples_cannot_be_stored(
    pid: int, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: list[TaskSample]) -> None:
        raise EncodeError("disk full")

    readings = iter([EnergyReading(100, 40), EnergyReading(105, 50)])
    with polling(on_poll=refuse, energy=readings.__next__) as poller:
        poller.add_task(pid, TaskId(0, 2), poll=True)
        info = poller.remove_task(pid)
        assert info is not None
        assert info.usage_in["energy"].per_node == {2: 5}
        assert info.usage_out["energy"].total == 50
        assert "disk full" in caplog.text


def test_set_processes_adds_processes_of_other_parents(poller: TaskPoller, pid: int) -> None:
    with pytest.raises(JobacctError, match="not a task"):
        poller.set_processes(pid, [pid])
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as other:
        poller.add_task(pid, TaskId(0, 0))
        poller.set_processes(pid, [pid, other.pid])
        poller.poll()
        assert set(poller.pids()[pid]) == {pid, other.pid}
        other.kill()


def test_remove_task_works_without_poll_after_end(poller: TaskPoller, pid: int) -> None:
    poller.add_task(pid, TaskId(0, 0))
    info = poller.remove_task(pid, poll=False)
    assert info is not None
    assert not info.usage_in


GIBIBYTE = 2**30


def card(number: int, *processes: tuple[int, int, int]) -> FakeGpu:
    held = [(pid, gibibytes * GIBIBYTE) for pid, gibibytes, _ in processes]
    used = [(pid, 100, percent) for pid, _, percent in processes]
    answers = {
        "GetComputeRunningProcesses_v3": held,
        "GetGraphicsRunningProcesses_v3": [],
        "GetProcessUtilization": used,
        "GetMigMode": (0, 0),
    }
    return FakeGpu(f"00000000:{number:02}:00.0", f"GPU-{number}", answers)


def test_gpus_load_nothing_without_driver(tmp_path: Path) -> None:
    before = "pynvml" in sys.modules
    assert GpuPoller(root=str(tmp_path)).poll() is None
    assert ("pynvml" in sys.modules) is before


def test_gpus_sum_process_over_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, card(1, (10, 3, 40)), card(2, (10, 2, 90), (11, 1, 5)))
    assert GpuPoller(root=str(tmp_path)).poll() == {
        10: GpuUsage(5 * GIBIBYTE, 130.0),
        11: GpuUsage(GIBIBYTE, 5.0),
    }


def test_gpus_return_none_when_driver_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = install(monkeypatch, tmp_path, card(1, (10, 3, 40)))
    library.init = DRIVER_NOT_LOADED
    gpus = GpuPoller(root=str(tmp_path))
    assert gpus.poll() is None
    library.init = 0
    assert gpus.poll() == {10: GpuUsage(3 * GIBIBYTE, 40.0)}


def test_task_has_gpu_usage_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = install(
        monkeypatch, tmp_path, card(1, (10, 3, 40), (99, 8, 60)), card(2, (11, 2, 50))
    )
    table = Table(tmp_path)
    table.put(10, 1, own=5, rss=1)
    table.put(11, 10, own=5, rss=1)
    samples: list[TaskSample] = []
    poller = TaskPoller(on_poll=samples.extend, root=str(tmp_path))
    poller.set_proctrack_container_id(1)
    poller.start_poll(0)
    poller.add_task(10, TaskId(4, 0), poll=True)
    library.gpus = [card(1), card(2)]
    info = poller.remove_task(10)
    poller.end_poll()
    first, last = samples
    assert (first.values["GPUMemMB"], first.values["GPUUtilization"]) == (5 * 1024, 90.0)
    assert (last.values["GPUMemMB"], last.values["GPUUtilization"]) == (0, 0.0)
    step = create()
    aggregate(step, info)
    columns = to_sacct(step, ["n1"])
    assert "gres/gpumem=5G" in columns["TRESUsageInMax"]
    assert "gres/gpuutil=90" in columns["TRESUsageInMax"]
