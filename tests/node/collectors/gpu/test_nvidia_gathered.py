"""GPM and Xid errors, on a library made of Python."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from ccpipe.node.collectors.gpu.nvidia import Nvidia
from tests.node.collectors.gpu.conftest import Load, of
from tests.node.conftest import reported
from tests.node.fake_nvml import (
    FIRST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    SECOND,
    Fails,
    FakeGpu,
    full_gpu,
)

SM, TENSOR, GRAPHICS = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
)
NAMES = {"nv_sm_util", "nv_sm_occupancy", "nv_tensor_util", "nv_dram_util"}


def hopper(**changes: Any) -> FakeGpu:
    card = full_gpu(Gpm=1, **changes)
    card.answers |= {("Gpm", SM): 61.5, ("Gpm", TENSOR): 12.25, ("Gpm", GRAPHICS): 90.0}
    return card


def test_gpm_reports_means_from_second_sample_on(load: Load, tmp_path: Path) -> None:
    """Only supported ones; samples are reused, and an older GPU takes none."""
    library = load(hopper(), full_gpu("00000000:C1:00.0"))
    collector = Nvidia(root=str(tmp_path))
    first = of(reported(collector.collect(0)), FIRST)
    assert not NAMES & first.keys()
    for slot in range(1, 4):
        values = reported(collector.collect(slot))
        told = {name: value for name, value in of(values, FIRST).items() if name in NAMES}
        assert told == {"nv_sm_util": 61.5, "nv_tensor_util": 12.25}
        assert not NAMES & of(values, "00000000:C1:00.0").keys()
        assert of(values, FIRST)["nv_util"] == 97
        assert len(library.samples) == 2


def test_gpm_reports_means_of_mig_instances(load: Load, tmp_path: Path) -> None:
    """A GPU instance with two compute instances is omitted: its values cover both."""
    card = hopper(GetMigMode=(1, 1), GetUtilizationRates=Fails(NOT_SUPPORTED))
    card.parts = [
        FakeGpu("", f"MIG-{name}", {"GetGpuInstanceId": number})
        for name, number in (("a", 3), ("b", 5), ("c", 5))
    ]
    card.answers |= {("Gpm", 3, GRAPHICS): 40.0, ("Gpm", 3, SM): 30.0, ("Gpm", 5, SM): 99.0}
    library = load(card)
    collector = Nvidia(root=str(tmp_path))
    list(collector.collect(0))
    values = reported(collector.collect(1))
    assert of(values, f"{FIRST}/MIG-a") == {"nv_util": 40.0, "nv_sm_util": 30.0}
    assert of(values, f"{FIRST}/MIG-b") == of(values, f"{FIRST}/MIG-c") == {}
    assert len(library.samples) == 3  # of the GPU, of the instance, and one to be overwritten


def test_gpm_frees_samples_before_library_shuts_down(load: Load, tmp_path: Path) -> None:
    library = load(hopper())
    collector = Nvidia(root=str(tmp_path))
    list(collector.collect(0))
    assert len(library.samples) == 1
    collector._driver.reset()
    assert (library.ended, library.samples) == (1, {})
    assert not NAMES & of(reported(collector.collect(1)), FIRST).keys()
    assert NAMES & of(reported(collector.collect(2)), FIRST).keys()


def test_gpm_omits_only_failed_sample(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = load(hopper(TakeSample=Fails(NO_PERMISSION)))
    collector = Nvidia(root=str(tmp_path))
    for slot in range(2):
        assert of(reported(collector.collect(slot)), FIRST)["nv_util"] == 97
    assert len(library.samples) == 1
    assert collector.soft.count == 2
    assert len(caplog.records) == 1


XID = {"nv_xid_errors", "nv_last_xid"}


def test_xid_errors_are_counted_with_last_number(load: Load, tmp_path: Path) -> None:
    """Also those before the library was reinitialised; a GPU without support reports none."""
    card, other = full_gpu(Xid=[]), full_gpu("00000000:E1:00.0", Xid=[13])
    library = load(card, full_gpu(SECOND), other)
    collector = Nvidia(root=str(tmp_path))
    told = []
    for slot, arrived in enumerate(([], [48], [63, 94], [])):
        card.answers["Xid"] += arrived
        values = reported(collector.collect(slot))
        told.append({name: of(values, FIRST)[name] for name in XID & of(values, FIRST).keys()})
        assert not XID & of(values, SECOND).keys()
        assert of(values, other.address)["nv_xid_errors"] == (slot > 0)
        assert len(library.sets) == 1
        if slot == 2:
            collector._driver.reset()
            assert library.sets == {}
    assert told == [
        {"nv_xid_errors": 0},
        {"nv_xid_errors": 1, "nv_last_xid": 48},
        {"nv_xid_errors": 3, "nv_last_xid": 94},
        {"nv_xid_errors": 3, "nv_last_xid": 94},
    ]
