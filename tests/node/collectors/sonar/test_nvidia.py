"""NVIDIA's cards as Sonar tells of them: the real ``pynvml`` on a library made of Python."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ccpipe.formats.sonar import UNSET, ExtendedUint, SampleGpu, SampleProcessGpu, SysinfoGpuCard
from ccpipe.node.collectors.sonar.cards import NvidiaCards
from ccpipe.node.collectors.sonar.envelope import Errors
from tests.node.fake_nvml import (
    DRIVER_NOT_LOADED,
    FIRST,
    GIBIBYTE,
    GPU_IS_LOST,
    NOT_FOUND,
    NOT_SUPPORTED,
    SECOND,
    Card,
    Fails,
    Library,
    full_card,
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


def full(address: str = FIRST, **changes: Any) -> Card:
    return full_card(address, **{**FULL, **changes})


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def put(*cards: Card) -> tuple[Library, NvidiaCards]:
        return install(monkeypatch, tmp_path, *cards), NvidiaCards(root=str(tmp_path))

    return put


def sampled(
    cards: NvidiaCards, *wrong: str
) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
    errors = Errors()
    reported = cards.sample(errors)
    assert list(errors.texts) == list(wrong)
    return reported


def test_a_card_tells_what_it_does(put: Any) -> None:
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


def test_a_card_tells_what_each_process_does(put: Any) -> None:
    """Memory once for one that computes and draws; the mean of what it used since last asked."""
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


def test_a_process_on_two_cards_is_told_of_each(put: Any) -> None:
    _, cards = put(full(FIRST), full(SECOND, GetProcessUtilization=Fails(NOT_FOUND)))
    gpus, processes = sampled(cards)
    assert [gpu.index for gpu in gpus] == [0, 1]
    assert [(use.index, use.uuid, use.gpu_util) for use in processes[11]] == [
        (0, f"GPU-{FIRST}", 50.5),
        (1, f"GPU-{SECOND}", 0.0),
    ]


def test_processes_on_parts_count_for_the_card(put: Any) -> None:
    """With MIG; one on two parts holds memory of both, and the card's own list says no more."""
    part = {"GetComputeRunningProcesses_v3": [(11, GIBIBYTE)]}
    card = full(
        GetMigMode=(1, 1),
        GetUtilizationRates=Fails(NOT_SUPPORTED),
        GetProcessUtilization=Fails(NOT_SUPPORTED),
    )
    card.parts = [Card("", "MIG-a", part), None, Card("", "MIG-b", part), Card("", "MIG-c", {})]
    _, cards = put(card)
    [gpu], processes = sampled(cards)
    assert (gpu.uuid, gpu.ce_util, gpu.memory) == (f"GPU-{FIRST}", 0, 20 * 2**20)
    use = SampleProcessGpu(uuid=gpu.uuid, gpu_memory=2 * 2**20, gpu_memory_util=2.5)
    assert processes == {11: [use]}


def test_what_a_card_does_not_support_is_left_out(put: Any) -> None:
    _, cards = put(Card(FIRST, "GPU-1", {"GetTemperature": 50, "GetPerformanceState": 32}))
    [gpu], processes = sampled(cards)
    assert gpu == SampleGpu(uuid="GPU-1", temperature=50, performance_state=UNSET)
    assert processes == {}


def test_a_lost_card_is_failing_under_the_uuid_it_had(put: Any) -> None:
    """The other one is whole; a card never seen has no UUID and is told as an error only."""
    lost, other = full(FIRST), full(SECOND)
    _, cards = put(lost, other)
    sampled(cards)
    lost.answers["GetTemperature"] = Fails(GPU_IS_LOST)
    [gone, whole], processes = sampled(cards, "NVIDIA card 0: GPU is lost")
    assert gone == SampleGpu(uuid=f"GPU-{FIRST}", failing=1)
    assert (whole.index, whole.uuid, whole.failing) == (1, f"GPU-{SECOND}", 0)
    assert [use.index for use in processes[11]] == [1]


def test_a_card_that_is_lost_in_the_middle_tells_no_processes(put: Any) -> None:
    for what in ("GetComputeMode", "GetComputeRunningProcesses_v3"):
        changes: dict[str, Any] = {what: Fails(GPU_IS_LOST)}
        _, cards = put(full(**changes))
        [gpu], processes = sampled(cards, "NVIDIA card 0: GPU is lost")
        assert (gpu.failing, processes) == (1, {})


def test_cards_are_described(put: Any) -> None:
    _, cards = put(full(SECOND), Card(FIRST, "GPU-1", {}))
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


def test_a_lost_card_is_not_described(put: Any) -> None:
    lost = full(FIRST)
    lost.is_lost = True
    _, cards = put(lost, full(SECOND))
    errors = Errors()
    [card] = cards.describe(errors)
    assert card.index == 1
    assert list(errors.texts) == ["NVIDIA card 0: GPU is lost"]


def test_a_node_without_the_driver_has_no_cards(tmp_path: Path) -> None:
    cards = NvidiaCards(root=str(tmp_path))
    assert sampled(cards) == ([], {})
    errors = Errors()
    assert (cards.describe(errors), errors.texts) == ([], {})


def test_a_driver_that_does_not_answer_is_an_error(put: Any) -> None:
    library, cards = put(full())
    library.init = DRIVER_NOT_LOADED
    assert sampled(cards, "[Errno 19] NVML: Driver Not Loaded") == ([], {})
    library.init = 0
    assert len(sampled(cards)[0]) == 1


def test_a_driver_without_the_python_library_is_an_error(
    put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cards = put(full())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    wrong = "nvidia-ml-py is not installed; type: pip install 'ccpipe[gpu]'"
    assert sampled(cards, wrong) == ([], {})
