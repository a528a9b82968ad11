"""Power limits: ``/sys/class/powercap``, read and set."""

import json
from pathlib import Path

import pytest

from ccpipe.errors import DataError, UsageError
from ccpipe.node.controls.control import Control, ControlChange
from ccpipe.node.controls.rapl_limits import RaplLimits
from tests.node.conftest import PACKED, unpack
from tests.node.controls.conftest import NODE, Put

SOCKET_0 = {"type": "socket", "type-id": "0"}
SOCKET_1 = {"type": "socket", "type-id": "1"}


@pytest.fixture
def zones(tmp_path: Path) -> Path:
    unpack((PACKED / "rapl-limits.txt").read_text(), tmp_path)
    return tmp_path / "sys/class/powercap"


@pytest.fixture
def controls(zones: Path, tmp_path: Path) -> dict[str, Control]:
    return RaplLimits(root=str(tmp_path)).controls()


def limit(zones: Path, zone: str, number: int = 0) -> str:
    return (zones / zone / f"constraint_{number}_power_limit_uw").read_text().strip()


@pytest.mark.parametrize(
    ("name", "tags", "value"),
    [
        ("pkg_limit_1", SOCKET_0, "165"),
        ("pkg_limit_1_time", SOCKET_0, "0.999424"),
        ("pkg_limit_2", SOCKET_0, "198"),
        ("pkg_max_limit", SOCKET_0, "165"),
        ("pkg_limit_1_min", SOCKET_0, "64"),
        ("pkg_energy", SOCKET_0, "262143"),
        ("dram_limit", SOCKET_0, "0"),
        ("dram_enabled", SOCKET_0, "0"),
        ("psys_limit_1", NODE, "500"),
        ("pkg_energy", SOCKET_1, "2"),
        ("pkg_limit_1", SOCKET_1, "160"),
    ],
)
def test_rapl_names_controls_as_likwid(
    controls: dict[str, Control], name: str, tags: dict[str, str], value: str
) -> None:
    assert controls[f"rapl.{name}"].get(tags) == value


def test_rapl_has_control_of_specification_example(controls: dict[str, Control]) -> None:
    """``control=intel.pkg.energy_status``."""
    assert controls["rapl.intel.pkg.energy_status"].get(SOCKET_0) == "262143"


def test_rapl_reports_all_sockets_of_node(controls: dict[str, Control]) -> None:
    assert json.loads(controls["rapl.pkg_limit_1"].get(NODE)) == {"0": 165, "1": 160}


def test_rapl_reports_by_device(controls: dict[str, Control]) -> None:
    reported = json.loads(controls["rapl"].get(NODE))
    assert set(reported) == {"socket:0", "socket:1", "node"}
    assert reported["socket:0"]["pkg_limit_1"] == 165
    assert reported["node"]["psys_limit_1"] == 500
    assert list(json.loads(controls["rapl"].get(SOCKET_1))) == ["socket:1"]


def test_rapl_report_omits_unreadable_values(controls: dict[str, Control], zones: Path) -> None:
    """Since Linux 5.10 only root reads energy; limits are readable by all users."""
    (zones / "intel-rapl:0/energy_uj").unlink()
    reported = json.loads(controls["rapl"].get(SOCKET_0))["socket:0"]
    assert "pkg_energy" not in reported
    assert reported["pkg_limit_1"] == 165


def test_rapl_limit_is_set_in_watts(put: Put, zones: Path) -> None:
    """As cc-energy-manager writes them: a plain number."""
    assert put("rapl.pkg_limit_1", "85", SOCKET_0) == ControlChange("165", "85")
    assert limit(zones, "intel-rapl:0") == "85000000"
    assert limit(zones, "intel-rapl:1") == "80000000"


def test_rapl_limit_of_socket_is_shared_by_dies(put: Put, zones: Path) -> None:
    assert put("rapl.pkg_limit_1", "150 W", SOCKET_1) == ControlChange("160", "150")
    assert limit(zones, "intel-rapl:1") == limit(zones, "intel-rapl:2") == "75000000"


def test_rapl_limit_of_node_is_set_on_each_socket(put: Put, zones: Path) -> None:
    assert put("rapl.pkg_limit_1", "100", NODE) == ControlChange("0: 165, 1: 160", "100")
    assert limit(zones, "intel-rapl:0") == "100000000"
    assert limit(zones, "intel-rapl:2") == "50000000"


@pytest.mark.parametrize(
    ("name", "value", "tags", "reason"),
    [
        ("pkg_limit_1", "166", SOCKET_0, "166 W is not between 64 and 165 W"),
        ("pkg_limit_1", "63.9", SOCKET_0, "not between"),
        ("pkg_limit_2", "0", SOCKET_0, "0 W is not between 1 and 10000 W"),
        ("pkg_limit_1", "201", SOCKET_1, "100.5 W is not between"),
        ("pkg_limit_1", "170", NODE, "not between"),
        ("dram_limit", "20", SOCKET_0, "intel-rapl:0:0 is not enabled"),
        ("pkg_limit_1", "1e9", SOCKET_0, "expected a number"),
        ("pkg_limit_1", "85 J", SOCKET_0, "expected a number"),
    ],
)
def test_invalid_rapl_limit_changes_nothing(
    put: Put, zones: Path, name: str, value: str, tags: dict[str, str], reason: str
) -> None:
    before = {path: path.read_text() for path in zones.rglob("constraint*")}
    with pytest.raises(DataError, match=reason):
        put(f"rapl.{name}", value, tags)
    assert {path: path.read_text() for path in before} == before


def test_rapl_sets_only_limits(controls: dict[str, Control]) -> None:
    settable = {name.removeprefix("rapl.") for name, control in controls.items() if control.put}
    assert settable == {"pkg_limit_1", "pkg_limit_2", "dram_limit", "psys_limit_1"}


def test_missing_socket_is_refused(controls: dict[str, Control]) -> None:
    for name in ("rapl", "rapl.pkg_limit_1"):
        with pytest.raises(UsageError, match="expected one of 0, 1"):
            controls[name].get({"type": "socket", "type-id": "2"})


def test_rapl_fails_without_limits(tmp_path: Path) -> None:
    controls = RaplLimits(root=str(tmp_path)).controls()
    assert list(controls) == ["rapl"]
    with pytest.raises(FileNotFoundError):
        controls["rapl"].get(NODE)
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("dram\n")
    assert list(RaplLimits(root=str(tmp_path)).controls()) == ["rapl"]
    with pytest.raises(DataError, match="dram belongs to no socket"):
        controls["rapl"].get(NODE)
