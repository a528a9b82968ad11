"""Frequency policies: ``/sys/devices/system/cpu/cpufreq``, read and set."""

import json
from pathlib import Path

import pytest

from ccpipe.errors import DataError, UsageError
from ccpipe.node.controls.control import Control, ControlChange
from ccpipe.node.controls.cpu_freq import CpuFreq
from tests.node.conftest import PACKED, unpack
from tests.node.controls.conftest import NODE, Put

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
