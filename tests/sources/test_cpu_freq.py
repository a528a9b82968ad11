"""Frequency policies: ``/sys/devices/system/cpu/cpufreq``, read and set."""

import json
from pathlib import Path

import pytest

from ccpipe.errors import DataError, UsageError
from ccpipe.sources.cpu_freq import CpuFreq
from ccpipe.sources.knob import Change, Knob
from tests.sources.conftest import PACKED, unpack

NODE = {"type": "node"}
THREAD_1 = {"type": "hwthread", "type-id": "1"}


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Return the folder of the policies of a captured machine."""
    unpack((PACKED / "cpufreq.txt").read_text(), tmp_path)
    return tmp_path / "sys/devices/system/cpu/cpufreq"


@pytest.fixture
def knobs(policies: Path, tmp_path: Path) -> dict[str, Knob]:
    """Return the machine's knobs."""
    return CpuFreq(root=str(tmp_path)).knobs()


def put(knobs: dict[str, Knob], name: str, value: str, tags: dict[str, str]) -> object:
    """Set a knob."""
    setter = knobs[name].put
    assert setter is not None
    return setter(value, tags)


def test_a_hardware_thread_has_the_values_of_its_policy(knobs: dict[str, Knob]) -> None:
    """As LIKWID's knobs: names, and kHz."""
    assert knobs["freq.governor"].get(THREAD_1) == "powersave"
    assert knobs["freq.max_cpu_freq"].get({"type": "hwthread", "type-id": "2"}) == "2400000"
    assert knobs["freq.governor"].device == "hwthread"


def test_the_node_has_those_of_all_its_hardware_threads(knobs: dict[str, Knob]) -> None:
    """Those that are offline have none."""
    told = json.loads(knobs["freq.max_cpu_freq"].get(NODE))
    assert told == {"0": "3600000", "1": "3600000", "2": "2400000"}


def test_everything_is_told_by_policy(knobs: dict[str, Knob]) -> None:
    """A driver need not have each file."""
    told = json.loads(knobs["freq"].get(NODE))
    assert told["policy0"]["hwthreads"] == [0, 1]
    assert told["policy0"]["cur_cpu_freq"] == 1200345
    assert told["policy2"]["governor"] == "performance"
    assert "cur_cpu_freq" not in told["policy2"]
    assert list(json.loads(knobs["freq"].get(THREAD_1))) == ["policy0"]


def test_a_governor_is_set_on_all_of_the_node(knobs: dict[str, Knob], policies: Path) -> None:
    """And the change tells what each was."""
    change = put(knobs, "freq.governor", "performance", NODE)
    assert change == Change("0 1: powersave, 2: performance", "performance")
    assert (policies / "policy0/scaling_governor").read_text() == "performance"


def test_one_hardware_thread_sets_its_policy(knobs: dict[str, Knob], policies: Path) -> None:
    """And no other; people may write MHz and GHz."""
    assert put(knobs, "freq.max_cpu_freq", "2.1GHz", THREAD_1) == Change("3600000", "2100000")
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
    knobs: dict[str, Knob], policies: Path, name: str, value: str, reason: str
) -> None:
    """Not even the policies that could have it."""
    before = {path: path.read_text() for path in policies.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=reason):
        put(knobs, f"freq.{name}", value, NODE)
    assert {path: path.read_text() for path in before} == before


def test_a_policy_that_the_kernel_refuses_sets_the_others_back(
    knobs: dict[str, Knob], policies: Path
) -> None:
    """A governor's file that cannot be written, behind one that can."""
    (policies / "policy2/scaling_governor").unlink()
    (policies / "policy2/scaling_governor").symlink_to("/proc/sys/kernel/ostype")
    with pytest.raises(OSError, match="policy2/scaling_governor"):
        put(knobs, "freq.governor", "performance", NODE)
    assert (policies / "policy0/scaling_governor").read_text() == "powersave"


def test_no_other_device_has_a_frequency(knobs: dict[str, Knob]) -> None:
    """Nor one that is offline."""
    for tags in ({"type": "socket", "type-id": "0"}, {"type": "hwthread", "type-id": "3"}):
        with pytest.raises(UsageError):
            knobs["freq.governor"].get(tags)


def test_only_what_steers_can_be_set(knobs: dict[str, Knob]) -> None:
    """The rest is told."""
    settable = {name for name, knob in knobs.items() if knob.put}
    assert settable == {"freq.governor", "freq.min_cpu_freq", "freq.max_cpu_freq"}


def test_a_machine_without_policies_says_so_when_asked(tmp_path: Path) -> None:
    """Most virtual machines: there is one knob, and it explains."""
    knobs = CpuFreq(root=str(tmp_path)).knobs()
    assert list(knobs) == ["freq"]
    with pytest.raises(FileNotFoundError):
        knobs["freq"].get(NODE)
