"""Traffic of the interfaces: ``/proc/net/dev``."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ccpipe.errors import DataError
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


def test_interfaces_are_left_out_by_pattern(root: Root) -> None:
    """The loopback is left out unless asked for; patterns are those of a shell."""
    root.show("captured/first")
    assert _interfaces(Network(root=str(root))) == {"eth0", "ifb0", "ifb1"}
    assert _interfaces(Network(exclude=["ifb*"], root=str(root))) == {"lo", "eth0"}


def test_only_some_interfaces_may_be_wanted(root: Root) -> None:
    """By all the names that they have on different nodes, as cc-metric-collector's lists have."""
    root.show("captured/first")
    assert _interfaces(Network(include=["eth0", "enp5s0"], root=str(root))) == {"eth0"}
    some = Network(include=["e*", "ifb*"], exclude=["ifb1"], root=str(root))
    assert _interfaces(some) == {"eth0", "ifb0"}


def test_aliases_are_other_names_of_an_interface(root: Root) -> None:
    """As cc-metric-collector's: include and exclude take the one name, the tag has the real one."""
    root.show("captured/first")
    aliases = {"eno1": ["eth0", "enp5s0"], "virtual": ["ifb0", "ifb1"]}
    some = Network(include=["eno1"], interface_aliases=aliases, root=str(root))
    assert _interfaces(some) == {"eth0"}
    most = Network(exclude=["lo", "virtual"], interface_aliases=aliases, root=str(root))
    assert _interfaces(most) == {"eth0"}


def _interfaces(collector: Network) -> set[str]:
    return {interface for _, interface in reported(collector.collect(0))}


def test_an_interface_that_begins_anew_has_no_rates(root: Root, seconds: Seconds) -> None:
    """Where one counter went down the others tell no rate either, though they went up."""
    seconds(10)
    _, second = root.twice(Network(root=str(root)), "made-reset")
    assert {name for name, interface in second if interface == "eth0"} == {
        "net_bytes_in", "net_pkts_in", "net_bytes_out", "net_pkts_out",
    }  # fmt: skip
    assert ("net_bytes_in_bw", "eth1") not in second


def test_a_counter_beyond_63_bits_is_unsigned(root: Root, seconds: Seconds) -> None:
    seconds(10)
    _, second = root.twice(Network(root=str(root)), "made-reset")
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


def test_an_interface_may_have_an_odd_name(tmp_path: Path) -> None:
    """What a tag cannot carry is written as percent signs do."""
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/dev").write_text("a\x01b\\:" + " 1" * 16 + "\n")
    assert _interfaces(Network(root=str(tmp_path))) == {"a%01b%5C"}


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("eth0: 1 2 3\n", "line 1: 3 counters, not 16"),
        ("\n" + "eth0:" + " 1" * 15 + " -1\n", "line 2: '-1' is not a counter"),
        (" :" + " 1" * 16 + "\n", "line 1: the interface has no name"),
    ],
)
def test_another_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    """What is no /proc/net/dev raises DataError that names the file, the line and the reason."""
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/dev").write_text(text)
    with pytest.raises(DataError, match=f"proc/net/dev: {reason}"):
        list(Network(root=str(tmp_path)).collect(0))
