"""NVIDIA GPUs as Sonar reports them: the real ``pynvml`` on a library made of Python."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ccpipe.formats.sonar import UNSET, ExtendedUint, SampleGpu, SampleProcessGpu, SysinfoGpuCard
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.collectors.sonar.gpus import NvidiaGpus
from tests.node.fake_nvml import (
    DRIVER_NOT_LOADED,
    FIRST,
    GIBIBYTE,
    GPU_IS_LOST,
    NOT_FOUND,
    NOT_SUPPORTED,
    SECOND,
    Fails,
    FakeGpu,
    Library,
    full_gpu,
    install,
)

FULL: dict[str, Any] = {
    "GetPowerManagementLimitConstraints": (200_000, 750_000),
    "GetComputeMode": 3,
    "GetName": "NVIDIA H100 80GB HBM3",
    "GetArchitecture": 9,
    "GetVbiosVersion": "96.00.30.00.01",
    "GetComputeRunningProcesses_v3": [(11, 10 * GIBIBYTE), (12, 5 * GIBIBYTE)],
    "GetGraphicsRunningProcesses_v3": [(12, 5 * GIBIBYTE), (13, GIBIBYTE)],
    "GetProcessUtilization": [(11, 100, 40), (11, 200, 61), (14, 150, 5), (0, 0, 0)],
}


def full(address: str = FIRST, **changes: Any) -> FakeGpu:
    return full_gpu(address, **{**FULL, **changes})


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def put(*cards: FakeGpu) -> tuple[Library, NvidiaGpus]:
        return install(monkeypatch, tmp_path, *cards), NvidiaGpus(root=str(tmp_path))

    return put


def sampled(
    cards: NvidiaGpus, *wrong: str
) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
    errors = Errors()
    reported = cards.sample(errors)
    assert list(errors.texts) == list(wrong)
    return reported


def test_nvidia_gpus_report_their_use(put: Any) -> None:
    """In KB, watts, MHz and percent; ``memory_util`` is the share in use."""
    _, cards = put(full())
    [gpu], _ = sampled(cards)
    assert gpu == SampleGpu(
        index=0,
        uuid=f"GPU-{FIRST}",
        fan=30,
        compute_mode="Exclusive_Process",
        performance_state=ExtendedUint(0),
        memory=20 * 2**20,
        ce_util=97,
        memory_util=25,
        temperature=45,
        power=301,
        power_limit=700,
        ce_clock=1981,
        memory_clock=2619,
    )


def test_nvidia_gpus_report_use_of_processes(put: Any) -> None:
    """Memory once for one that computes and draws; mean utilisation since the last call."""
    card = full()
    _, cards = put(card)
    _, processes = sampled(cards)
    uses = {pid: (use.gpu_util, use.gpu_memory, use.gpu_memory_util)
            for pid, [use] in processes.items()}  # fmt: skip
    assert uses == {
        11: (50.5, 10 * 2**20, 12.5),
        12: (0.0, 5 * 2**20, 6.2),
        13: (0.0, 2**20, 1.2),
        14: (5.0, 0, 0.0),
    }
    assert {use.uuid for [use] in processes.values()} == {f"GPU-{FIRST}"}
    card.answers["GetProcessUtilization"] = [(11, 200, 61), (11, 300, 7)]
    _, processes = sampled(cards)
    assert (processes[11][0].gpu_util, 14 in processes) == (7.0, False)


def test_nvidia_gpus_report_process_on_two_gpus_twice(put: Any) -> None:
    _, cards = put(full(FIRST), full(SECOND, GetProcessUtilization=Fails(NOT_FOUND)))
    gpus, processes = sampled(cards)
    assert [gpu.index for gpu in gpus] == [0, 1]
    assert [(use.index, use.uuid, use.gpu_util) for use in processes[11]] == [
        (0, f"GPU-{FIRST}", 50.5),
        (1, f"GPU-{SECOND}", 0.0),
    ]


def test_nvidia_gpus_count_processes_of_mig_instances(put: Any) -> None:
    """One on two instances uses memory of both; the GPU's own list adds nothing."""
    part = {"GetComputeRunningProcesses_v3": [(11, GIBIBYTE)]}
    card = full(
        GetMigMode=(1, 1),
        GetUtilizationRates=Fails(NOT_SUPPORTED),
        GetProcessUtilization=Fails(NOT_SUPPORTED),
    )
    card.parts = [
        FakeGpu("", "MIG-a", part),
        None,
        FakeGpu("", "MIG-b", part),
        FakeGpu("", "MIG-c", {}),
    ]
    _, cards = put(card)
    [gpu], processes = sampled(cards)
    assert (gpu.uuid, gpu.ce_util, gpu.memory) == (f"GPU-{FIRST}", 0, 20 * 2**20)
    use = SampleProcessGpu(uuid=gpu.uuid, gpu_memory=2 * 2**20, gpu_memory_util=2.5)
    assert processes == {11: [use]}


def test_nvidia_gpus_omit_unsupported_values(put: Any) -> None:
    _, cards = put(FakeGpu(FIRST, "GPU-1", {"GetTemperature": 50, "GetPerformanceState": 32}))
    [gpu], processes = sampled(cards)
    assert gpu == SampleGpu(uuid="GPU-1", temperature=50, performance_state=UNSET)
    assert processes == {}


def test_nvidia_gpus_report_lost_gpu_as_failing_by_last_uuid(put: Any) -> None:
    """The other one is complete; a GPU never seen has no UUID and is only reported as an error."""
    lost, other = full(FIRST), full(SECOND)
    _, cards = put(lost, other)
    sampled(cards)
    lost.answers["GetTemperature"] = Fails(GPU_IS_LOST)
    [gone, whole], processes = sampled(cards, "NVIDIA GPU 0: GPU is lost")
    assert gone == SampleGpu(uuid=f"GPU-{FIRST}", failing=1)
    assert (whole.index, whole.uuid, whole.failing) == (1, f"GPU-{SECOND}", 0)
    assert [use.index for use in processes[11]] == [1]


def test_nvidia_gpus_report_no_processes_of_gpu_lost_while_sampling(put: Any) -> None:
    for what in ("GetComputeMode", "GetComputeRunningProcesses_v3"):
        changes: dict[str, Any] = {what: Fails(GPU_IS_LOST)}
        _, cards = put(full(**changes))
        [gpu], processes = sampled(cards, "NVIDIA GPU 0: GPU is lost")
        assert (gpu.failing, processes) == (1, {})


def test_nvidia_gpus_are_described(put: Any) -> None:
    _, cards = put(full(SECOND), FakeGpu(FIRST, "GPU-1", {}))
    errors = Errors()
    whole, sparse = cards.describe(errors)
    assert whole == SysinfoGpuCard(
        index=0,
        uuid=f"GPU-{SECOND}",
        address=SECOND,
        manufacturer="NVIDIA",
        model="NVIDIA H100 80GB HBM3",
        architecture="Hopper",
        driver="550.54.15",
        firmware="96.00.30.00.01",
        memory=80 * 2**20,
        power_limit=700,
        max_power_limit=750,
        min_power_limit=200,
        max_ce_clock=2981,
        max_memory_clock=3619,
    )
    assert sparse == SysinfoGpuCard(
        index=1, uuid="GPU-1", address=FIRST, manufacturer="NVIDIA", driver="550.54.15"
    )
    assert not errors.texts


def test_nvidia_gpus_do_not_describe_lost_gpu(put: Any) -> None:
    lost = full(FIRST)
    lost.is_lost = True
    _, cards = put(lost, full(SECOND))
    errors = Errors()
    [card] = cards.describe(errors)
    assert card.index == 1
    assert list(errors.texts) == ["NVIDIA GPU 0: GPU is lost"]


def test_nvidia_gpus_are_empty_without_driver(tmp_path: Path) -> None:
    cards = NvidiaGpus(root=str(tmp_path))
    assert sampled(cards) == ([], {})
    errors = Errors()
    assert (cards.describe(errors), errors.texts) == ([], {})


def test_nvidia_gpus_report_error_if_driver_does_not_answer(put: Any) -> None:
    library, cards = put(full())
    library.init = DRIVER_NOT_LOADED
    assert sampled(cards, "[Errno 19] NVML: Driver Not Loaded") == ([], {})
    library.init = 0
    assert len(sampled(cards)[0]) == 1


def test_nvidia_gpus_report_error_without_python_library(
    put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cards = put(full())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    wrong = "nvidia-ml-py is not installed; type: pip install 'ccpipe[nvidia]'"
    assert sampled(cards, wrong) == ([], {})
