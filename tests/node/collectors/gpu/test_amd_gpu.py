"""AMD GPUs: ``/sys/class/drm``."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.node.collectors.gpu.amd_gpu import AmdGpu
from tests.node.conftest import Root, reported

CARD = "00000000:C1:00.0"


def test_amd_gpu_reports_all_metrics(root: Root) -> None:
    """In the units of cc-metric-collector."""
    root.show("amd/first")
    values = reported(AmdGpu(root=str(root)).collect(0))
    # This one has power1_input in place of power1_average; GPUs of other vendors are ignored.
    assert {key: value for key, value in values.items() if not key[1].startswith(CARD)} == {
        ("rocm_avg_power", "00000000:03:00.0"): pytest.approx(40)
    }
    assert {name: value for (name, of), value in values.items() if of == CARD} == {
        "rocm_gfx_util": 97,
        "rocm_umc_util": 40,
        "rocm_mem_total": 65520,
        "rocm_mem_used": 1024,
        "rocm_avg_power": pytest.approx(300),
        "rocm_power_limit": pytest.approx(500),
        "rocm_temp_edge": pytest.approx(45),
        "rocm_temp_hotspot": pytest.approx(62),
        "rocm_temp_mem": pytest.approx(51),
        "rocm_gfx_clock": pytest.approx(1700),
        "rocm_u_clock": pytest.approx(1600),
        "rocm_fan": 20,
        "rocm_ecc_uncorrected_error": 1,
        "rocm_ecc_corrected_error": 20,
        "rocm_mm_util": 7,
        "rocm_temp_vrgfx": 48,
        "rocm_temp_vrsoc": 49,
        "rocm_temp_vrmem": 50,
        "rocm_soc_clock": 1000,
        "rocm_v0_clock": 1200,
        "rocm_d0_clock": 1100,
        "rocm_v1_clock": 1201,
        "rocm_d1_clock": 1101,
    }


def test_amd_gpu_reports_temperature_of_each_memory_stack(root: Root) -> None:
    """With cc-metric-collector's sub-type; an absent stack is omitted."""
    root.show("amd/first")
    messages = [m for m in AmdGpu(root=str(root)).collect(0) if m.name == "rocm_temp_hbm"]
    assert {m.tags["stype"] for m in messages} == {"device"}
    assert {m.tags["stype-id"]: m.value for m in messages} == {"0": 55, "1": 56, "2": 57}


def _card_with(directory: Path, table: bytes) -> AmdGpu:
    device = directory / "sys/class/drm/card0/device"
    device.mkdir(parents=True, exist_ok=True)
    (device / "vendor").write_text("0x1002\n")
    (device / "gpu_metrics").write_bytes(table)
    return AmdGpu(root=str(directory))


def test_amd_gpu_reads_newer_tables(tmp_path: Path) -> None:
    """Version 1.4 and later have the temperature of one regulator; 1.0 and 2 are not read."""
    table = struct.pack("<HBB3H", 200, 1, 4, 60, 50, 45).ljust(200, b"\xff")
    values = reported(_card_with(tmp_path, table).collect(0))
    assert values == {("rocm_temp_vrsoc", "card0"): 45}
    for version in ((1, 0), (2, 1), (3, 0)):
        table = struct.pack("<HBB", 200, *version).ljust(200, b"\1")
        assert list(_card_with(tmp_path, table).collect(0)) == []


@given(st.binary(max_size=130) | st.binary(max_size=130).map(
    lambda rest: struct.pack("<HBB", 4 + len(rest), 1, 1 + len(rest) % 5) + rest
))  # fmt: skip
def test_amd_gpu_gives_metrics_or_dataerror_for_any_table(table: bytes) -> None:
    """No bytes raise anything else."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            reported(_card_with(Path(directory), table).collect(0))
        except DataError as error:
            assert "gpu_metrics: " in str(error)  # noqa: PT017 - it need not be raised
