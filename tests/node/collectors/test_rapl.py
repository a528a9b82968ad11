"""Energy: RAPL in ``/sys/class/powercap``."""

import os
from pathlib import Path
from typing import Any

import pytest

from ccpipe.node.collectors.rapl import Rapl
from tests.node.conftest import Root

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
    # From 262143 J the counter went on at 0.
    assert second["cpu_energy", "0"] == pytest.approx((999671150 + RANGE - 262143000000) / 1e6)
    assert second["cpu_power", "0"] == pytest.approx(100)
    assert second["cpu_energy", "1"] == 300 + 200  # of its two dies
    # intel-rapl-mmio shows what intel-rapl shows, and is left alone.
    assert {where for name, where in second if name == "cpu_power"} == {"0", "1"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_only_root_may_read_is_not_for_us(root: Root, tmp_path: Path) -> None:
    """The kernel's mode 0400 raises PermissionError, which switches the collector off."""
    root.show("rapl/first")
    (root.path / "sys/class/powercap/intel-rapl:0/energy_uj").chmod(0)
    with pytest.raises(PermissionError):
        list(Rapl(root=str(root)).collect(0))
