"""Traffic of the interfaces: ``/proc/net/dev``."""

from collections.abc import Callable

import psutil
import pytest

from ccpipe.message import Uint
from ccpipe.node.collectors.network import Network
from tests.node.conftest import TREES, Root, reported

Seconds = Callable[[float], None]


def test_counters_are_told_and_rates_from_the_second_time(root: Root, seconds: Seconds) -> None:
    """Counters are integers; rates are what was gained by the seconds between the readings."""
    uptimes = [
        float((TREES / f"captured/{n}/proc/uptime").read_text().split()[0])
        for n in ("first", "second")
    ]
    elapsed = uptimes[1] - uptimes[0]
    seconds(elapsed)
    first, second = root.twice(Network(root=str(root)), "captured")
    assert [name for name, interface in first if interface == "eth0"] == [
        "net_bytes_in", "net_pkts_in", "net_bytes_out", "net_pkts_out",
    ]  # fmt: skip
    assert first["net_bytes_in", "eth0"] == 510169956
    assert second["net_bytes_in", "eth0"] == 510601314
    assert second["net_bytes_in_bw", "eth0"] == pytest.approx((510601314 - 510169956) / elapsed)
    assert second["net_pkts_in_bw", "eth0"] == pytest.approx((11801 - 11778) / elapsed)
    assert second["net_bytes_out_bw", "eth0"] == pytest.approx((582007 - 579173) / elapsed)
    assert second["net_pkts_out_bw", "eth0"] == pytest.approx((6121 - 6097) / elapsed)
    assert type(second["net_bytes_in", "eth0"]) is int


def test_an_interface_that_begins_anew_has_no_rates(root: Root, seconds: Seconds) -> None:
    """Where one counter went down the others tell no rate either, though they went up."""
    seconds(10)
    _, second = root.twice(Network(root=str(root)), "made-reset")
    assert {name for name, interface in second if interface == "eth0"} == {
        "net_bytes_in", "net_pkts_in", "net_bytes_out", "net_pkts_out",
    }  # fmt: skip
    assert ("net_bytes_in_bw", "eth1") not in second
    # A counter beyond 63 bits is unsigned.
    assert second["net_bytes_in", "ib0"] == 18446744073709551500
    assert type(second["net_bytes_in", "ib0"]) is Uint
    assert second["net_bytes_in_bw", "ib0"] == 50
    assert second["net_pkts_in_bw", "ib0"] == 10


def test_an_old_kernel_leaves_no_blank_after_the_colon(root: Root, seconds: Seconds) -> None:
    """``eth0:3866785310`` is an interface and its first counter."""
    seconds(2)
    first, second = root.twice(Network(root=str(root)), "made-linux-3.10")
    assert first["net_bytes_in", "eth0"] == 3866785310
    assert second["net_bytes_in_bw", "eth0"] == 500


def test_this_machine_agrees_with_psutil() -> None:
    before = psutil.net_io_counters(pernic=True, nowrap=False)
    values = reported(Network(exclude=[]).collect(0))
    after = psutil.net_io_counters(pernic=True, nowrap=False)
    assert {interface for _, interface in values} == set(before)
    columns = {
        "net_bytes_in": "bytes_recv",
        "net_pkts_in": "packets_recv",
        "net_bytes_out": "bytes_sent",
        "net_pkts_out": "packets_sent",
    }
    for (name, interface), value in values.items():
        minimum = getattr(before[interface], columns[name])
        assert minimum <= value <= getattr(after[interface], columns[name])
