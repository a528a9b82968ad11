"""GPUs of processes: the real ``pynvml`` on a library made of Python, since no card is here."""

import sys
from pathlib import Path

import pytest

from ccpipe.node.gather.jobacct import TaskId, TaskPoller, aggregate, create, to_sacct
from ccpipe.node.gather.jobacct.gpu import Gpus, GpuUsage
from ccpipe.node.gather.jobacct.poller import TaskSample
from tests.node.fake_nvml import DRIVER_NOT_LOADED, Card, install
from tests.node.gather.jobacct.conftest import Table

GIBIBYTE = 2**30


def card(number: int, *processes: tuple[int, int, int]) -> Card:
    held = [(pid, gibibytes * GIBIBYTE) for pid, gibibytes, _ in processes]
    used = [(pid, 100, percent) for pid, _, percent in processes]
    answers = {
        "GetComputeRunningProcesses_v3": held,
        "GetGraphicsRunningProcesses_v3": [],
        "GetProcessUtilization": used,
        "GetMigMode": (0, 0),
    }
    return Card(f"00000000:{number:02}:00.0", f"GPU-{number}", answers)


def test_without_a_driver_nothing_is_loaded(tmp_path: Path) -> None:
    before = "pynvml" in sys.modules
    assert Gpus(root=str(tmp_path)).poll() is None
    assert ("pynvml" in sys.modules) is before


def test_a_process_is_added_up_over_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, card(1, (10, 3, 40)), card(2, (10, 2, 90), (11, 1, 5)))
    assert Gpus(root=str(tmp_path)).poll() == {
        10: GpuUsage(5 * GIBIBYTE, 130.0),
        11: GpuUsage(GIBIBYTE, 5.0),
    }


def test_a_driver_that_does_not_answer_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = install(monkeypatch, tmp_path, card(1, (10, 3, 40)))
    library.init = DRIVER_NOT_LOADED
    gpus = Gpus(root=str(tmp_path))
    assert gpus.poll() is None
    library.init = 0
    assert gpus.poll() == {10: GpuUsage(3 * GIBIBYTE, 40.0)}


def test_a_task_has_the_gpus_of_its_processes(
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
    library.cards = [card(1), card(2)]
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
