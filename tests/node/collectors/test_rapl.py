"""Energy: RAPL in ``/sys/class/powercap``."""

import os
from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import DataError
from ccpipe.node.collectors.rapl import Rapl
from tests.node.conftest import Root, unpack

RANGE = 262_143_328_850


def test_power_and_energy_are_those_of_each_socket(root: Root, seconds: Any) -> None:
    """Joules since the last sample, and watts: those over the time between."""
    seconds(10)
    first, second = root.twice(Rapl(root=str(root)), "rapl")
    assert first == {}
    assert second["core_energy", "0"] == 500
    assert second["core_power", "0"] == 50
    assert second["mem_power", "0"] == 20
    assert second["uncore_power", "0"] == 0
    assert second["platform_power", ""] == 200


def test_a_counter_that_ran_over_is_reckoned_with(root: Root, seconds: Any) -> None:
    """From 262143 J it went on at 0."""
    seconds(10)
    _, second = root.twice(Rapl(root=str(root)), "rapl")
    assert second["cpu_energy", "0"] == pytest.approx((999671150 + RANGE - 262143000000) / 1e6)
    assert second["cpu_power", "0"] == pytest.approx(100)


def test_dies_of_a_socket_are_added_up(root: Root, seconds: Any) -> None:
    """No zone hides another: the two dies of socket 1 drew 300 J and 200 J."""
    seconds(10)
    _, second = root.twice(Rapl(root=str(root)), "rapl")
    assert second["cpu_energy", "1"] == 500


def test_the_second_interface_to_a_counter_is_left_alone(root: Root) -> None:
    """intel-rapl-mmio shows what intel-rapl shows; told() would find a metric told twice."""
    _, second = root.twice(Rapl(root=str(root)), "rapl")
    assert {where for name, where in second if name == "cpu_power"} == {"0", "1"}


def test_a_processor_that_does_not_count_says_so(tmp_path: Path) -> None:
    """No powercap at all, and one without RAPL."""
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            list(Rapl(root=str(tmp_path)).collect(0))
        (tmp_path / "sys/class/powercap/dtpm").mkdir(parents=True, exist_ok=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_only_root_may_read_is_not_for_us(root: Root, tmp_path: Path) -> None:
    """The kernel's mode 0400 raises PermissionError, which switches the collector off."""
    root.show("rapl/first")
    (root.path / "sys/class/powercap/intel-rapl:0/energy_uj").chmod(0)
    with pytest.raises(PermissionError):
        list(Rapl(root=str(root)).collect(0))


@pytest.mark.parametrize(
    ("name", "energy", "reason"),
    [
        ("package-0", "x", "'x' is not a counter"),
        ("dram", "1", "dram belongs to no socket"),
    ],
)
def test_another_file_is_named(tmp_path: Path, name: str, energy: str, reason: str) -> None:
    """What the kernel would not write raises DataError that names the zone."""
    zone = "/sys/class/powercap/intel-rapl:0"
    text = (
        f"## {zone}/name\n{name}\n## {zone}/energy_uj\n{energy}\n## {zone}/max_energy_range_uj\n9\n"
    )
    unpack(f"@ first\n{text}@ second\n", tmp_path)
    with pytest.raises(DataError, match=f"{zone}: {reason}"):
        list(Rapl(root=str(tmp_path)).collect(0))
