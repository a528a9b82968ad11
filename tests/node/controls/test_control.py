"""Controls: devices, values, files that are all set or none; policies of frequency."""

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
"""A file that the kernel lets nobody write, root neither; it says Linux."""


def test_the_node_is_meant_unless_a_device_is_named() -> None:
    """With or without the recommended type-id=0."""
    assert device({}, "socket", {"0": 1}) is None
    assert device({"type": "node", "type-id": "0"}, "socket", {"0": 1}) is None
    assert device({"type": "socket", "type-id": "1"}, "socket", {"0": 1, "1": 1}) == "1"


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"type": "core", "type-id": "0"}, "tag type is core"),
        ({"type": "socket", "type-id": "7"}, "no socket '7' here; there are 0"),
        ({"type": "socket"}, "no socket ''"),
    ],
)
def test_a_device_that_is_not_here_is_refused(tags: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        device(tags, "socket", {"0": 1})


@pytest.mark.parametrize(("text", "value"), [("85", 85), ("85.5 W", 85.5), (" 200mW ", 0.2)])
def test_a_number_may_have_a_unit(text: str, value: float) -> None:
    """Without one it is in the control's own unit."""
    assert quantity(text, WATTS) == pytest.approx(value)


@given(st.text())
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    """Never negative, never infinite, never another exception."""
    with contextlib.suppress(DataError):
        assert 0 <= quantity(text, WATTS) < 1e16


def test_what_is_of_the_node_only_says_so() -> None:
    with pytest.raises(UsageError, match="tag type is socket; it must be node"):
        device({"type": "socket", "type-id": "0"}, "socket", {})


def test_files_are_set_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("powersave\n")
    two.write_text("10000\n")
    set_files({one: "user", two: "9"})
    assert (one.read_text(), two.read_text()) == ("user", "9")


def test_where_one_file_cannot_be_set_none_is(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("powersave\n")
    with pytest.raises(OSError, match="ostype"):
        set_files({one: "performance", READ_ONLY: "Windows"})
    assert one.read_text() == "powersave"


def test_no_file_is_made(tmp_path: Path) -> None:
    """What the kernel has not, it does not get."""
    with pytest.raises(FileNotFoundError):
        set_files({tmp_path / "absent": "1"})
    assert not (tmp_path / "absent").exists()


def test_a_value_that_is_not_kept_is_an_error() -> None:
    """A limit that the firmware has locked takes every write and stays what it was."""
    with pytest.raises(OSError, match="keeps '', not 85"):
        set_files({Path("/dev/null"): "85"})


def test_a_value_that_stands_already_is_not_written() -> None:
    set_files({READ_ONLY: "Linux"})


def test_values_of_several_devices_are_told_shortly() -> None:
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


def test_a_hardware_thread_has_the_values_of_its_policy(controls: dict[str, Control]) -> None:
    """Names and kHz are LIKWID's."""
    assert controls["freq.governor"].get(THREAD_1) == "powersave"
    assert controls["freq.max_cpu_freq"].get({"type": "hwthread", "type-id": "2"}) == "2400000"
    assert controls["freq.governor"].device == "hwthread"


def test_the_node_has_those_of_all_its_hardware_threads(controls: dict[str, Control]) -> None:
    reported = json.loads(controls["freq.max_cpu_freq"].get(NODE))
    assert reported == {"0": "3600000", "1": "3600000", "2": "2400000"}


def test_everything_is_told_by_policy(controls: dict[str, Control]) -> None:
    reported = json.loads(controls["freq"].get(NODE))
    assert reported["policy0"]["hwthreads"] == [0, 1]
    assert reported["policy0"]["cur_cpu_freq"] == 1200345
    assert reported["policy2"]["governor"] == "performance"
    assert "cur_cpu_freq" not in reported["policy2"]
    assert list(json.loads(controls["freq"].get(THREAD_1))) == ["policy0"]


def test_a_governor_is_set_on_all_of_the_node(put: Put, policies: Path) -> None:
    change = put("freq.governor", "performance", NODE)
    assert change == ControlChange("0 1: powersave, 2: performance", "performance")
    assert (policies / "policy0/scaling_governor").read_text() == "performance"


def test_one_hardware_thread_sets_its_policy(put: Put, policies: Path) -> None:
    assert put("freq.max_cpu_freq", "2.1GHz", THREAD_1) == ControlChange("3600000", "2100000")
    assert (policies / "policy2/scaling_max_freq").read_text() == "2400000\n"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("governor", "userspace", "no governor 'userspace' here; there are performance, powersave"),
        ("governor", "performance powersave", "no governor"),
        ("max_cpu_freq", "3.7GHz", "not between 800000 and 3600000 kHz"),
        ("max_cpu_freq", "0", "not between"),
        ("min_cpu_freq", "3000000", "not between 800000 and 2400000 kHz"),
        ("min_cpu_freq", "-1", "not a number"),
        ("min_cpu_freq", "nan", "not a number"),
    ],
)
def test_what_a_policy_cannot_have_changes_nothing(
    put: Put, policies: Path, name: str, value: str, reason: str
) -> None:
    before = {path: path.read_text() for path in policies.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=reason):
        put(f"freq.{name}", value, NODE)
    assert {path: path.read_text() for path in before} == before


def test_a_policy_that_the_kernel_refuses_sets_the_others_back(put: Put, policies: Path) -> None:
    """A governor's file that cannot be written, behind one that can."""
    (policies / "policy2/scaling_governor").unlink()
    (policies / "policy2/scaling_governor").symlink_to("/proc/sys/kernel/ostype")
    with pytest.raises(OSError, match="policy2/scaling_governor"):
        put("freq.governor", "performance", NODE)
    assert (policies / "policy0/scaling_governor").read_text() == "powersave"


def test_no_other_device_has_a_frequency(controls: dict[str, Control]) -> None:
    for tags in ({"type": "socket", "type-id": "0"}, {"type": "hwthread", "type-id": "3"}):
        with pytest.raises(UsageError):
            controls["freq.governor"].get(tags)


def test_only_what_steers_can_be_set(controls: dict[str, Control]) -> None:
    settable = {name for name, control in controls.items() if control.put}
    assert settable == {"freq.governor", "freq.min_cpu_freq", "freq.max_cpu_freq"}


def test_a_machine_without_policies_says_so_when_asked(tmp_path: Path) -> None:
    controls = CpuFreq(root=str(tmp_path)).controls()
    assert list(controls) == ["freq"]
    with pytest.raises(FileNotFoundError):
        controls["freq"].get(NODE)
