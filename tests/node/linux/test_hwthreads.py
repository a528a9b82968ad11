"""Hardware threads as cc-node-controller tells of them."""

from pathlib import Path

from ccpipe.node.linux.hwthreads import HwThread, hwthreads, topology
from tests.node.conftest import PACKED, unpack


def test_each_thread_has_its_place(tmp_path: Path) -> None:
    """Those offline have none; what the kernel does not tell is -1, a die is then its socket."""
    unpack((PACKED / "hwthreads.txt").read_text(), tmp_path)
    assert hwthreads(str(tmp_path)) == [
        HwThread(0, 0, [0, 2], core_id=0, socket_id=0, die_id=0, numa_id=0),
        HwThread(1, 0, [1], core_id=0, socket_id=1, die_id=1, numa_id=-1),
        HwThread(2, 1, [0, 2], core_id=0, socket_id=0, die_id=0, numa_id=0),
    ]


def test_cores_are_counted_in_each_socket(tmp_path: Path) -> None:
    """The kernel numbers them anew in each."""
    unpack((PACKED / "hwthreads.txt").read_text(), tmp_path)
    assert topology(str(tmp_path))["cpu_info"] == {
        "num_hwthreads": 3, "smt_width": 2, "num_sockets": 2, "num_dies": 2, "num_cores": 2,
        "num_numa_domains": 2,
    }  # fmt: skip


def test_a_machine_that_tells_nothing_has_none(tmp_path: Path) -> None:
    """An empty list, as JSON wants it."""
    assert topology(str(tmp_path))["hwthreads"] == []
