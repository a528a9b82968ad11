"""Traffic of interfaces and of InfiniBand's ports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from ccpipe.message import Uint
from ccpipe.node.collectors.infiniband import InfiniBand
from ccpipe.node.collectors.network import Network
from tests.node.conftest import TREES, Root, reported, unpack

Seconds = Callable[[float], None]


def test_network_reports_counters_and_rates(root: Root, seconds: Seconds) -> None:
    """Counters are integers; rates are deltas divided by the seconds between the readings."""
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


def test_network_omits_rates_after_reset(root: Root, seconds: Seconds) -> None:
    """Where one counter decreased, the others have no rate either."""
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


def test_network_accepts_colon_without_blank(root: Root, seconds: Seconds) -> None:
    """``eth0:3866785310`` is an interface and its first counter."""
    seconds(2)
    first, second = root.twice(Network(root=str(root)), "made-linux-3.10")
    assert first["net_bytes_in", "eth0"] == 3866785310
    assert second["net_bytes_in_bw", "eth0"] == 500


def test_network_agrees_with_psutil() -> None:
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


def test_infiniband_converts_words_of_4_bytes(root: Root, seconds: Any) -> None:
    """Counters become bytes; rates are deltas divided by the time between."""
    seconds(10)
    first, second = root.twice(InfiniBand(root=str(root)), "infiniband")
    assert first["ib_recv", "mlx5_0/1"] == 10**13
    assert second["ib_recv_bw", "mlx5_0/1"] == 4 * 1000 / 10
    assert second["ib_xmit_bw", "mlx5_0/1"] == 4 * 500 / 10
    assert second["ib_total", "mlx5_0/1"] == 4 * (2500000001000 + 1500)
    assert second["ib_total_bw", "mlx5_0/1"] == 4 * 1500 / 10
    assert second["ib_recv_pkts_bw", "mlx5_0/1"] == 2
    assert second["ib_total_pkts", "mlx5_0/1"] == 570
    assert not any(name.endswith("_bw") for name, _ in first)


def test_infiniband_reports_errors_and_state_of_ports(root: Root) -> None:
    """A port that is down has 0, and one without error counters no error metrics."""
    root.show("infiniband/first")
    values = reported(InfiniBand(root=str(root)).collect(0))
    assert values["ib_active", "mlx5_0/1"] == 1
    assert values["ib_active", "mlx5_1/1"] == 0
    assert values["ib_xmit_discards", "mlx5_0/1"] == 3
    assert ("ib_xmit_discards", "mlx5_1/1") not in values
    # Where an old kernel has counters of 64 bits beside those of 32, the former are read.
    assert values["ib_recv", "qib0/2"] == 4 * 5_000_000_000
    assert values["ib_xmit_pkts", "qib0/2"] == 5_000_000_001


def test_infiniband_omits_rates_of_port_after_reset(root: Root) -> None:
    """One decreased counter removes all rates of its port, and of no other port."""
    _, second = root.twice(InfiniBand(root=str(root)), "infiniband")
    assert {port for name, port in second if name == "ib_recv_bw"} == {"mlx5_0/1", "qib0/2"}


def test_infiniband_rejects_counter_beyond_64_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Four times a counter of 64 bits may not fit 64 bits."""
    directory = "/sys/class/infiniband/a/ports/1/counters"
    files = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets")
    text = "".join(f"## {directory}/{file}\n{2**63}\n" for file in files)
    unpack(f"@ first\n{text}@ second\n", tmp_path)
    found = reported(InfiniBand(root=str(tmp_path)).collect(0))
    assert found == {("ib_recv_pkts", "a/1"): 2**63, ("ib_xmit_pkts", "a/1"): 2**63}
    assert "beyond 64 bits" in caplog.text
