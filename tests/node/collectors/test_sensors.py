"""Temperatures, frequencies and energy."""

import os
from pathlib import Path
from typing import Any

import pytest

from ccpipe.node.collectors.clock import Clock
from ccpipe.node.collectors.rapl import Rapl
from ccpipe.node.collectors.temperature import Temperature
from tests.node.conftest import Root, reported


def test_temperature_reports_each_chip_as_own_series(root: Root) -> None:
    """Two sockets and two disks with the same driver and labels do not collapse into one."""
    root.show("hwmon/first")
    values = reported(Temperature(exclude=[], root=str(root)).collect(0))
    assert values == {
        ("temperature", "0/Package id 0"): 55,
        ("temperature", "0/Core 0"): 50.5,
        ("temperature", "1/Package id 1"): 61,
        ("temperature", "1/Core 0"): 49,
        ("temperature", "nvme-nvme0/Composite"): 38.85,
        ("temperature", "nvme-nvme1/Composite"): -5.85,
        ("temperature", "acpitz-hwmon10/temp1"): 27.8,
    }


def test_temperature_reports_limits_with_option(root: Root) -> None:
    """With the tags of the sensor; unset or missing limits are omitted."""
    root.show("hwmon/first")
    messages = list(Temperature(limits=True, root=str(root)).collect(0))
    values = reported(messages)
    assert {key: value for key, value in values.items() if key[0] != "temperature"} == {
        ("max_temperature", "0/Package id 0"): 86,
        ("crit_temperature", "0/Package id 0"): 100,
        ("max_temperature", "nvme-nvme0/Composite"): 81.85,
        ("crit_temperature", "nvme-nvme0/Composite"): 84.85,
    }
    tags = {message.tags["stype-id"]: message.tags for message in messages}
    assert all(message.tags == tags[message.tags["stype-id"]] for message in messages)


@pytest.mark.parametrize("text", [None, "", "warm"])
def test_temperature_omits_only_unreadable_limit(root: Root, text: str | None) -> None:
    root.show("hwmon/first")
    collector = Temperature(limits=True, root=str(root))
    whole = reported(collector.collect(0))
    file = root.path / "sys/class/hwmon/hwmon2/temp1_max"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    lost = whole.keys() - reported(collector.collect(0)).keys()
    assert lost == {("max_temperature", "nvme-nvme0/Composite")}
    assert collector.soft.count == (0 if text is None else 1)


CPUINFO = "processor\t: {}\nmodel name\t: X\ncpu MHz\t\t: {}\ncache size\t: 1 KB\n\n"


def test_clock_reports_mean_of_online_hwthreads(root: Root) -> None:
    """In MHz, as the specification has it."""
    root.show("clock/first")
    values = reported(Clock(hwthreads=False, root=str(root)).collect(0))
    assert values == {("clock", ""): pytest.approx((2400 + 3600.5 + 1200) / 3)}


def test_clock_reports_hwthreads(root: Root) -> None:
    root.show("clock/first")
    values = reported(Clock(root=str(root)).collect(0))
    del values["clock", ""]
    assert values == {("clock", "0"): 2400, ("clock", "1"): 3600.5, ("clock", "10"): 1200}


def test_clock_reads_cpuinfo_on_virtual_machine(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO.format(0, "2600.000") + CPUINFO.format(1, 2400))
    values = reported(Clock(root=str(tmp_path)).collect(0))
    assert values == {("clock", ""): 2500, ("clock", "0"): 2600, ("clock", "1"): 2400}


def test_clock_is_absent_if_kernel_reports_none(tmp_path: Path) -> None:
    """As on many machines with Arm processors: absent, not 0."""
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    with pytest.raises(FileNotFoundError, match="the kernel reports no frequency"):
        list(Clock(root=str(tmp_path)).collect(0))


RANGE = 262_143_328_850


def test_rapl_reports_power_and_energy_of_each_socket(root: Root, seconds: Any) -> None:
    """Joules since the last sample, and watts: joules divided by the time between."""
    seconds(10)
    first, second = root.twice(Rapl(root=str(root)), "rapl")
    assert first == {}
    assert second["core_energy", "0"] == 500
    assert second["core_power", "0"] == 50
    assert second["mem_power", "0"] == 20
    assert second["uncore_power", "0"] == 0
    assert second["platform_power", ""] == 200
    # From 262143 J the counter went on at 0.
    assert second["cpu_energy", "0"] == pytest.approx((999671150 + RANGE - 262143000000) / 1e6)
    assert second["cpu_power", "0"] == pytest.approx(100)
    assert second["cpu_energy", "1"] == 300 + 200  # of its two dies
    # intel-rapl-mmio shows what intel-rapl shows, and is left alone.
    assert {where for name, where in second if name == "cpu_power"} == {"0", "1"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_rapl_raises_permission_error_if_only_root_may_read(root: Root, tmp_path: Path) -> None:
    """The kernel's mode 0400 raises PermissionError, which disables the collector."""
    root.show("rapl/first")
    (root.path / "sys/class/powercap/intel-rapl:0/energy_uj").chmod(0)
    with pytest.raises(PermissionError):
        list(Rapl(root=str(root)).collect(0))
