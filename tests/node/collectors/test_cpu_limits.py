"""``ccpipe.node.collectors.cpu_limits``: power caps, and limits of frequencies."""

from pathlib import Path

import pytest

from ccpipe.node.collectors.cpu_limits import CpuLimits
from tests.node.conftest import PACKED, reported, unpack


def write(root: Path, files: dict[str, object]) -> None:
    for name, text in files.items():
        path = root / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack((PACKED / "cpu-limits.txt").read_text(), tmp_path)


def test_limits_are_reported_of_sockets_and_node(root: Path) -> None:
    """The long-term power limit; frequencies as the mean of hardware threads."""
    assert reported(CpuLimits(root=str(root)).collect(0)) == {
        ("cpu_power_limit", "0"): 205.5,
        ("cpu_power_limit", "1"): 150,
        ("mem_power_limit", "1"): 40,
        ("min_cpu_freq", ""): pytest.approx(900),
        ("max_cpu_freq", ""): pytest.approx(2500 + 0.5 / 3),
    }


def test_limits_are_reported_of_hwthreads_by_option(root: Path) -> None:
    """All hardware threads of a policy have its limits."""
    values = reported(CpuLimits(hwthreads=True, root=str(root)).collect(0))
    highest = {thread: value for (name, thread), value in values.items() if name == "max_cpu_freq"}
    del highest[""]
    assert highest == {"0": 2000, "1": 2000, "2": 3500.5}


def test_limit_that_is_not_enforced_is_omitted(root: Path) -> None:
    """Of one socket; the other has its own."""
    write(root, {"class/powercap/intel-rapl:1/enabled": 0})
    values = reported(CpuLimits(root=str(root)).collect(0))
    assert [key for key in values if key[0] == "cpu_power_limit"] == [("cpu_power_limit", "0")]


def test_dies_of_socket_are_summed(root: Path) -> None:
    """The socket's limit is not known if that of one die is not."""
    write(
        root,
        {
            "class/powercap/intel-rapl:3/name": "package-1-die-1",
            "class/powercap/intel-rapl:3/constraint_0_name": "long_term",
            "class/powercap/intel-rapl:3/constraint_0_power_limit_uw": 100_000_000,
        },
    )
    collector = CpuLimits(root=str(root))
    assert reported(collector.collect(0))["cpu_power_limit", "1"] == 250
    write(root, {"class/powercap/intel-rapl:3/constraint_0_power_limit_uw": "high"})
    assert ("cpu_power_limit", "1") not in reported(collector.collect(0))


def test_spoilt_file_costs_its_own_limit(root: Path) -> None:
    """It is counted; others are reported."""
    collector = CpuLimits(root=str(root))
    whole = reported(collector.collect(0))
    write(root, {"class/powercap/intel-rapl:1/constraint_0_power_limit_uw": "high"})
    write(root, {"devices/system/cpu/cpufreq/policy2/scaling_max_freq": ""})
    found = reported(collector.collect(0))
    assert whole.keys() - found.keys() == {("cpu_power_limit", "1")}
    assert found["max_cpu_freq", ""] == 2000
    assert collector.soft.count == 2


def test_collector_pauses_without_limits(tmp_path: Path) -> None:
    """As on a virtual machine."""
    with pytest.raises(FileNotFoundError, match="no power or frequency limits"):
        CpuLimits(root=str(tmp_path)).collect(0)
