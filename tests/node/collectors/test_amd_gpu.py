"""AMD's cards: ``/sys/class/drm``."""

from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.collectors.amd_gpu import AmdGpu
from tests.node.conftest import Root, reported, unpack

CARD = "00000000:C1:00.0"


def test_a_card_tells_of_itself(root: Root) -> None:
    """In the units of cc-metric-collector."""
    root.show("amd/first")
    values = {
        name: value for (name, of), value in reported(AmdGpu(root=str(root)).collect(0)).items()
        if of == CARD
    }  # fmt: skip
    assert values == {
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
    }


def test_a_card_that_tells_little_is_told_of_little(root: Root) -> None:
    """It has power1_input in place of power1_average; cards of another make are none of ours."""
    root.show("amd/first")
    values = reported(AmdGpu(root=str(root)).collect(0))
    assert {key: value for key, value in values.items() if key[1] != CARD} == {
        ("rocm_avg_power", "00000000:03:00.0"): pytest.approx(40)
    }


def test_a_node_without_such_a_card_says_so(tmp_path: Path) -> None:
    """No cards at all, or only others'."""
    unpack("@ first\n## /sys/class/drm/card0/device/vendor\n0x1a03\n@ second\n", tmp_path)
    for path in ("none", "."):
        with pytest.raises(FileNotFoundError):
            list(AmdGpu(root=str(tmp_path / path)).collect(0))


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [("gpu_busy_percent", "all", "'all' is not a number"),
     ("ras/umc_err_count", "none", "'none' is not a number of errors")],
)  # fmt: skip
def test_another_file_is_named(tmp_path: Path, file: str, text: str, reason: str) -> None:
    """What the driver would not write raises DataError that names the file."""
    card = "/sys/class/drm/card0/device"
    unpack(f"@ first\n## {card}/vendor\n0x1002\n## {card}/{file}\n{text}\n@ second\n", tmp_path)
    with pytest.raises(DataError, match=f"{file}: {reason}"):
        list(AmdGpu(root=str(tmp_path)).collect(0))
