"""InfiniBand ports: ``/sys/class/infiniband``."""

from pathlib import Path
from typing import Any

import pytest

from ccpipe.node.collectors.infiniband import InfiniBand
from tests.node.conftest import Root, reported, unpack


def test_data_is_counted_in_words_of_4_bytes(root: Root, seconds: Any) -> None:
    """Counters become bytes; rates are what was gained over the time between."""
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


def test_errors_and_state_are_told_of_each_port(root: Root) -> None:
    """A port that is down says 0, and one without error counters says nothing of errors."""
    root.show("infiniband/first")
    values = reported(InfiniBand(root=str(root)).collect(0))
    assert values["ib_active", "mlx5_0/1"] == 1
    assert values["ib_active", "mlx5_1/1"] == 0
    assert values["ib_xmit_discards", "mlx5_0/1"] == 3
    assert ("ib_xmit_discards", "mlx5_1/1") not in values
    # Where an old kernel has counters of 64 bits beside those of 32, the former are read.
    assert values["ib_recv", "qib0/2"] == 4 * 5_000_000_000
    assert values["ib_xmit_pkts", "qib0/2"] == 5_000_000_001


def test_a_port_that_begins_anew_has_no_rates_once(root: Root) -> None:
    """One counter that went down leaves out all rates of its port, and no other port's."""
    _, second = root.twice(InfiniBand(root=str(root)), "infiniband")
    assert {port for name, port in second if name == "ib_recv_bw"} == {"mlx5_0/1", "qib0/2"}


def test_a_counter_beyond_the_wire_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Four times a counter of 64 bits may not fit 64 bits."""
    folder = "/sys/class/infiniband/a/ports/1/counters"
    files = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets")
    text = "".join(f"## {folder}/{file}\n{2**63}\n" for file in files)
    unpack(f"@ first\n{text}@ second\n", tmp_path)
    found = reported(InfiniBand(root=str(tmp_path)).collect(0))
    assert found == {("ib_recv_pkts", "a/1"): 2**63, ("ib_xmit_pkts", "a/1"): 2**63}
    assert "beyond 64 bits" in caplog.text
