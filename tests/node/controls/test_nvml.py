"""Power limits of NVIDIA GPUs, through the real ``pynvml`` on a fake library."""

import json
from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import DataError, UsageError
from ccpipe.node.controls.control import Control, ControlChange
from ccpipe.node.controls.nvml import NvmlLimits
from ccpipe.node.linux.nvml import RELEASE
from tests.node.controls.conftest import Put
from tests.node.fake_nvml import GPU_IS_LOST, NO_PERMISSION, Fails, FakeGpu, install

FIRST, SECOND = "00000000:17:00.0", "00000000:65:00.0"


def gpu(address: str, **changes: Any) -> FakeGpu:
    answers = {
        "GetPowerManagementLimit": 500_000,
        "GetPowerManagementDefaultLimit": 700_000,
        "GetPowerManagementLimitConstraints": (100_000, 700_000),
        "GetEnforcedPowerLimit": 450_000,
        "GetPowerUsage": 123_456,
    }
    return FakeGpu(address, f"GPU-{address}", {**answers, **changes})


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[FakeGpu]:
    return install(monkeypatch, tmp_path, gpu(FIRST), gpu(SECOND)).gpus


@pytest.fixture
def controls(gpus: list[FakeGpu], tmp_path: Path) -> dict[str, Control]:
    return NvmlLimits(root=str(tmp_path)).controls()


def of(name: str, kind: str = "accelerator") -> dict[str, str]:
    return {"type": kind, "type-id": name}


def test_nvml_has_no_controls_without_driver(tmp_path: Path) -> None:
    assert NvmlLimits(root=str(tmp_path)).controls() == {}


def test_nvml_reads_gpu_by_address_or_number(controls: dict[str, Control]) -> None:
    """Under ccpipe's and LIKWID's type; in watts."""
    for tags in (of(SECOND), of("1"), of("1", "nvidia_gpu")):
        assert controls["nvml.power_limit"].get(tags) == "500"
    assert controls["nvml.power_usage"].get(of(FIRST)) == "123.456"
    assert controls["nvml.power_limit_min"].get(of(FIRST)) == "100"
    assert controls["nvml.power_limit_max"].get(of(FIRST)) == "700"
    assert controls["nvml.power_limit_default"].get(of(FIRST)) == "700"
    assert controls["nvml.power_limit_enf"].get(of(FIRST)) == "450"
    with pytest.raises(UsageError, match="no accelerator '7' on this node"):
        controls["nvml.power_limit"].get(of("7"))
    with pytest.raises(UsageError, match="it must be accelerator"):
        controls["nvml.power_limit"].get(of("0", "socket"))


def test_nvml_reports_node_as_json_by_gpu(
    controls: dict[str, Control], gpus: list[FakeGpu]
) -> None:
    assert json.loads(controls["nvml.power_limit"].get({})) == {FIRST: 500, SECOND: 500}
    del gpus[1].answers["GetPowerUsage"]
    reported = json.loads(controls["nvml"].get({}))
    assert reported[FIRST]["power_usage"] == 123.456
    assert "power_usage" not in reported[SECOND]
    assert json.loads(controls["nvml"].get(of(FIRST))).keys() == {FIRST}


def test_nvml_sets_limit_of_one_gpu_or_all(put: Put, gpus: list[FakeGpu]) -> None:
    assert put("nvml.power_limit", "300W", of(SECOND)) == ControlChange("500", "300")
    assert [gpu.answers["GetPowerManagementLimit"] for gpu in gpus] == [500_000, 300_000]
    before = f"{FIRST}: 500, {SECOND}: 300"
    assert put("nvml.power_limit", "250.5", {}) == ControlChange(before, "250.5")
    assert [gpu.answers["GetPowerManagementLimit"] for gpu in gpus] == [250_500] * 2


@pytest.mark.parametrize("value", ["99.9", "701 W", "1kW", "x", "-5", ""])
def test_nvml_refuses_limit_outside_bounds_of_gpu(
    put: Put, gpus: list[FakeGpu], value: str
) -> None:
    gpus[0].answers["GetPowerManagementLimitConstraints"] = (1, 10**7)
    with pytest.raises(DataError, match="not between 100 and 700 W|expected a number"):
        put("nvml.power_limit", value, {})
    assert [gpu.answers["GetPowerManagementLimit"] for gpu in gpus] == [500_000] * 2


def test_nvml_restores_limits_when_driver_refuses(put: Put, gpus: list[FakeGpu]) -> None:
    """The first GPU has its old limit again; missing rights are reported."""
    gpus[1].answers["SetPowerManagementLimit"] = Fails(NO_PERMISSION)
    with pytest.raises(PermissionError, match="NVML"):
        put("nvml.power_limit", "300", {})
    assert [gpu.answers["GetPowerManagementLimit"] for gpu in gpus] == [500_000] * 2


def test_nvml_raises_when_gpu_keeps_other_value(put: Put, gpus: list[FakeGpu]) -> None:
    """The GPU accepted the request with another value."""
    gpus[0].answers["SetPowerManagementLimit"] = 400_000
    with pytest.raises(OSError, match="keeps 400 W"):
        put("nvml.power_limit", "300", of(FIRST))


def test_nvml_raises_oserror_for_lost_gpu(
    controls: dict[str, Control], gpus: list[FakeGpu]
) -> None:
    gpus[0].answers["GetPowerManagementLimit"] = Fails(GPU_IS_LOST)
    with pytest.raises(OSError, match="NVML"):
        controls["nvml.power_limit"].get(of(FIRST))


def test_nvml_release_is_set_and_read_in_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: list[FakeGpu]
) -> None:
    """Meanwhile NVML is not used, as between requests; 0 ends it."""
    library = install(monkeypatch, tmp_path, *gpus)
    controls = NvmlLimits(root=str(tmp_path)).controls()
    release = controls["nvml.release"]
    assert release.put is not None
    assert controls["nvml.power_limit"].get(of(FIRST)) == "500"
    assert library.begun == library.ended == 1
    try:
        assert release.put("2m", {}) == ControlChange("0", "120")
        assert release.get({}) in {"119", "120"}
        with pytest.raises(OSError, match="NVML is released"):
            controls["nvml.power_limit"].get(of(FIRST))
        assert library.begun == 1
        with pytest.raises(DataError, match="more than 3600 s"):
            release.put("2000m", {})
    finally:
        RELEASE.begin(0)
    assert release.get({}) == "0"
    assert controls["nvml.power_limit"].get(of(FIRST)) == "500"
