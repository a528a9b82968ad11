"""The processors' frequency: ``cpufreq`` and ``/proc/cpuinfo``."""

from pathlib import Path

import pytest

from ccpipe.node.collectors.clock import Clock
from tests.node.conftest import Root, reported

CPUINFO = "processor\t: {}\nmodel name\t: X\ncpu MHz\t\t: {}\ncache size\t: 1 KB\n\n"


def test_the_node_has_the_mean_of_those_online(root: Root) -> None:
    """In MHz, as the specification has it."""
    root.show("clock/first")
    values = reported(Clock(hwthreads=False, root=str(root)).collect(0))
    assert values == {("clock", ""): pytest.approx((2400 + 3600.5 + 1200) / 3)}


def test_hardware_threads_are_reported_too(root: Root) -> None:
    root.show("clock/first")
    values = reported(Clock(root=str(root)).collect(0))
    del values["clock", ""]
    assert values == {("clock", "0"): 2400, ("clock", "1"): 3600.5, ("clock", "10"): 1200}


def test_a_virtual_machine_tells_it_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO.format(0, "2600.000") + CPUINFO.format(1, 2400))
    values = reported(Clock(root=str(tmp_path)).collect(0))
    assert values == {("clock", ""): 2500, ("clock", "0"): 2600, ("clock", "1"): 2400}


def test_a_kernel_that_tells_nothing_has_no_clock(tmp_path: Path) -> None:
    """As on many machines with Arm processors: absent, not 0."""
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    with pytest.raises(FileNotFoundError, match="the kernel reports no frequency"):
        list(Clock(root=str(tmp_path)).collect(0))
