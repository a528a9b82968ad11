"""Uncore frequency: ``/sys/devices/system/cpu/intel_uncore_frequency``, read and set."""

import json
from pathlib import Path

import pytest

from ccpipe.errors import DataError, UsageError
from ccpipe.node.controls.control import Control, ControlChange
from ccpipe.node.controls.uncore_freq import UncoreFreq
from tests.node.conftest import PACKED, unpack
from tests.node.controls.conftest import NODE, Put

SOCKET_0 = {"type": "socket", "type-id": "0"}
SOCKET_1 = {"type": "socket", "type-id": "1"}


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    unpack((PACKED / "uncore-freq.txt").read_text(), tmp_path)
    return tmp_path / "sys/devices/system/cpu/intel_uncore_frequency"


@pytest.fixture
def controls(packages: Path, tmp_path: Path) -> dict[str, Control]:
    return UncoreFreq(root=str(tmp_path)).controls()


@pytest.mark.parametrize(
    ("name", "tags", "value"),
    [
        ("min_uncore_freq", SOCKET_0, "800"),
        ("max_uncore_freq", SOCKET_0, "2400"),
        ("cur_uncore_freq", SOCKET_0, "1600"),
        ("initial_min_uncore_freq", SOCKET_0, "800"),
        ("initial_max_uncore_freq", SOCKET_1, "2400"),
        ("min_uncore_freq", SOCKET_1, "1000"),
        ("max_uncore_freq", SOCKET_1, "2200"),
    ],
)
def test_socket_has_widest_limits_of_its_dies(
    controls: dict[str, Control], name: str, tags: dict[str, str], value: str
) -> None:
    """Names and MHz are LIKWID's."""
    assert controls[f"uncore_freq.{name}"].get(tags) == value
    assert controls[f"uncore_freq.{name}"].device == "socket"


def test_node_reports_each_socket(controls: dict[str, Control]) -> None:
    assert json.loads(controls["uncore_freq.min_uncore_freq"].get(NODE)) == {"0": 800, "1": 1000}


def test_report_omits_unreadable_values(controls: dict[str, Control], packages: Path) -> None:
    """Other values are unaffected by an unreadable file."""
    (packages / "package_00_die_00/min_freq_khz").write_text("many\n")
    reported = json.loads(controls["uncore_freq"].get(NODE))
    assert reported == {
        "socket:0": {
            "max_uncore_freq": 2400,
            "cur_uncore_freq": 1600,
            "initial_min_uncore_freq": 800,
            "initial_max_uncore_freq": 2400,
        },
        "socket:1": {
            "min_uncore_freq": 1000,
            "max_uncore_freq": 2200,
            "initial_min_uncore_freq": 800,
            "initial_max_uncore_freq": 2400,
        },
    }
    assert list(json.loads(controls["uncore_freq"].get(SOCKET_1))) == ["socket:1"]


@pytest.mark.parametrize("value", ["2000", "2GHz", "2000 MHz", "2000000kHz"])
def test_limit_is_set_in_megahertz(put: Put, packages: Path, value: str) -> None:
    assert put("uncore_freq.max_uncore_freq", value, SOCKET_0) == ControlChange("2400", "2000")
    assert (packages / "package_00_die_00/max_freq_khz").read_text() == "2000000"
    assert (packages / "package_01_die_00/max_freq_khz").read_text() == "2200000\n"


def test_limit_of_node_is_set_on_every_die(put: Put, packages: Path) -> None:
    change = put("uncore_freq.min_uncore_freq", "1500", NODE)
    assert change == ControlChange("0: 800, 1: 1000", "1500")
    found = [path.read_text() for path in packages.glob("*/min_freq_khz")]
    assert found == ["1500000"] * 3


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("max", "2500", "2500 MHz is not between 800 and 2400 MHz"),
        ("max", "1100", "1100 MHz is not between 1200 and 2400 MHz"),
        ("min", "2100", "2100 MHz is not between 800 and 2000 MHz"),
        ("min", "700", "not between"),
        ("min", "1450", "1450 MHz is not a multiple of 100 MHz"),
        ("min", "2000000", "not between"),
        ("min", "-1", "expected a number"),
        ("min", "nan", "expected a number"),
    ],
)
def test_value_outside_bounds_changes_nothing(
    put: Put, packages: Path, name: str, value: str, reason: str
) -> None:
    before = {path: path.read_text() for path in packages.glob("*/*")}
    with pytest.raises(DataError, match=reason):
        put(f"uncore_freq.{name}_uncore_freq", value, NODE)
    assert {path: path.read_text() for path in before} == before


def test_failed_die_restores_others(put: Put, packages: Path) -> None:
    """The file of the last die cannot be written."""
    refused = packages / "package_01_die_01/max_freq_khz"
    refused.unlink()
    refused.symlink_to("/proc/sys/kernel/ngroups_max")
    (packages / "package_01_die_01/min_freq_khz").write_text("800000\n")
    with pytest.raises(OSError, match="package_01_die_01/max_freq_khz"):
        put("uncore_freq.max_uncore_freq", "2300", NODE)
    assert (packages / "package_00_die_00/max_freq_khz").read_text() == "2400000"


def test_uncore_freq_sets_only_limits(controls: dict[str, Control]) -> None:
    settable = {name for name, control in controls.items() if control.put}
    assert settable == {"uncore_freq.min_uncore_freq", "uncore_freq.max_uncore_freq"}


def test_missing_socket_is_refused(controls: dict[str, Control]) -> None:
    with pytest.raises(UsageError, match="expected one of 0, 1"):
        controls["uncore_freq"].get({"type": "socket", "type-id": "2"})
    with pytest.raises(UsageError, match="it must be socket"):
        controls["uncore_freq.min_uncore_freq"].get({"type": "hwthread", "type-id": "0"})


def test_machine_without_driver_has_no_controls(tmp_path: Path) -> None:
    assert UncoreFreq(root=str(tmp_path)).controls() == {}
