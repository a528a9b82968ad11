"""Controls: devices, values, files set together; frequency policies."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, UsageError
from ccpipe.node.controls.control import Control, ControlChange, device, joined, quantity, set_files
from ccpipe.node.controls.cpu_freq import CpuFreq
from tests.node.conftest import PACKED, unpack
from tests.node.controls.conftest import NODE, Put

WATTS = {"": 1.0, "W": 1.0, "mW": 1e-3}
READ_ONLY = Path("/proc/sys/kernel/ostype")
"""A file that not even root can write; its content is Linux."""


def test_device_defaults_to_node() -> None:
    """With or without the recommended type-id=0."""
    assert device({}, "socket", {"0": 1}) is None
    assert device({"type": "node", "type-id": "0"}, "socket", {"0": 1}) is None
    assert device({"type": "socket", "type-id": "1"}, "socket", {"0": 1, "1": 1}) == "1"


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"type": "core", "type-id": "0"}, "tag type is core"),
        ({"type": "socket", "type-id": "7"}, "no socket '7' on this node"),
        ({"type": "socket"}, "no socket ''"),
    ],
)
def test_device_refuses_unknown_id(tags: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        device(tags, "socket", {"0": 1})


@pytest.mark.parametrize(("text", "value"), [("85", 85), ("85.5 W", 85.5), (" 200mW ", 0.2)])
def test_quantity_accepts_units(text: str, value: float) -> None:
    """Without a unit it is in the control's own."""
    assert quantity(text, WATTS) == pytest.approx(value)


@given(st.text())
def test_quantity_parses_any_text(text: str) -> None:
    """A finite number that is not negative, or DataError."""
    with contextlib.suppress(DataError):
        assert 0 <= quantity(text, WATTS) < 1e16


def test_device_refuses_other_types_for_control_of_node() -> None:
    with pytest.raises(UsageError, match="tag type is socket; it must be node"):
        device({"type": "socket", "type-id": "0"}, "socket", {})


def test_set_files_writes_all_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("powersave\n")
    two.write_text("10000\n")
    set_files({one: "user", two: "9"})
    assert (one.read_text(), two.read_text()) == ("user", "9")


def test_set_files_restores_files_when_one_fails(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("powersave\n")
    with pytest.raises(OSError, match="ostype"):
        set_files({one: "performance", READ_ONLY: "Windows"})
    assert one.read_text() == "powersave"


def test_set_files_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        set_files({tmp_path / "absent": "1"})
    assert not (tmp_path / "absent").exists()


def test_set_files_raises_when_value_is_not_kept() -> None:
    """A limit locked by the firmware accepts writes without changing."""
    with pytest.raises(OSError, match="keeps '', not 85"):
        set_files({Path("/dev/null"): "85"})


def test_set_files_skips_unchanged_value() -> None:
    set_files({READ_ONLY: "Linux"})


def test_joined_shortens_equal_values() -> None:
    assert joined({"0": "a", "1": "a"}) == "a"
    assert joined({"0": "a", "1": "b"}) == "0: a, 1: b"


THREAD_1 = {"type": "hwthread", "type-id": "1"}


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    unpack((PACKED / "cpufreq.txt").read_text(), tmp_path)
    return tmp_path / "sys/devices/system/cpu/cpufreq"


@pytest.fixture
def controls(policies: Path, tmp_path: Path) -> dict[str, Control]:
    return CpuFreq(root=str(tmp_path)).controls()


def test_cpu_freq_reports_policy_of_hardware_thread(controls: dict[str, Control]) -> None:
    """Names and units (kHz) are LIKWID's."""
    assert controls["freq.governor"].get(THREAD_1) == "powersave"
    assert controls["freq.max_cpu_freq"].get({"type": "hwthread", "type-id": "2"}) == "2400000"
    assert controls["freq.governor"].device == "hwthread"


def test_cpu_freq_reports_all_hardware_threads_of_node(controls: dict[str, Control]) -> None:
    reported = json.loads(controls["freq.max_cpu_freq"].get(NODE))
    assert reported == {"0": "3600000", "1": "3600000", "2": "2400000"}


def test_cpu_freq_reports_by_policy(controls: dict[str, Control]) -> None:
    reported = json.loads(controls["freq"].get(NODE))
    assert reported["policy0"]["hwthreads"] == [0, 1]
    assert reported["policy0"]["cur_cpu_freq"] == 1200345
    assert reported["policy2"]["governor"] == "performance"
    assert "cur_cpu_freq" not in reported["policy2"]
    assert list(json.loads(controls["freq"].get(THREAD_1))) == ["policy0"]


def test_governor_is_set_on_all_policies(put: Put, policies: Path) -> None:
    change = put("freq.governor", "performance", NODE)
    assert change == ControlChange("0 1: powersave, 2: performance", "performance")
    assert (policies / "policy0/scaling_governor").read_text() == "performance"


def test_value_of_hardware_thread_is_set_on_its_policy(put: Put, policies: Path) -> None:
    assert put("freq.max_cpu_freq", "2.1GHz", THREAD_1) == ControlChange("3600000", "2100000")
    assert (policies / "policy2/scaling_max_freq").read_text() == "2400000\n"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "governor",
            "userspace",
            "no governor 'userspace' .expected one of performance",
        ),
        ("governor", "performance powersave", "no governor"),
        ("max_cpu_freq", "3.7GHz", "not between 800000 and 3600000 kHz"),
        ("max_cpu_freq", "0", "not between"),
        ("min_cpu_freq", "3000000", "not between 800000 and 2400000 kHz"),
        ("min_cpu_freq", "-1", "expected a number"),
        ("min_cpu_freq", "nan", "expected a number"),
    ],
)
def test_invalid_value_changes_no_policy(
    put: Put, policies: Path, name: str, value: str, reason: str
) -> None:
    before = {path: path.read_text() for path in policies.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=reason):
        put(f"freq.{name}", value, NODE)
    assert {path: path.read_text() for path in before} == before


def test_failed_policy_restores_others(put: Put, policies: Path) -> None:
    """A governor file that cannot be written, after one that can."""
    (policies / "policy2/scaling_governor").unlink()
    (policies / "policy2/scaling_governor").symlink_to("/proc/sys/kernel/ostype")
    with pytest.raises(OSError, match="policy2/scaling_governor"):
        put("freq.governor", "performance", NODE)
    assert (policies / "policy0/scaling_governor").read_text() == "powersave"


def test_cpu_freq_refuses_other_devices(controls: dict[str, Control]) -> None:
    for tags in ({"type": "socket", "type-id": "0"}, {"type": "hwthread", "type-id": "3"}):
        with pytest.raises(UsageError):
            controls["freq.governor"].get(tags)


def test_cpu_freq_sets_only_governor_and_limits(controls: dict[str, Control]) -> None:
    settable = {name for name, control in controls.items() if control.put}
    assert settable == {"freq.governor", "freq.min_cpu_freq", "freq.max_cpu_freq"}


def test_cpu_freq_fails_without_policies(tmp_path: Path) -> None:
    controls = CpuFreq(root=str(tmp_path)).controls()
    assert list(controls) == ["freq"]
    with pytest.raises(FileNotFoundError):
        controls["freq"].get(NODE)
