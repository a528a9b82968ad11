"""``ccpipe.node.linux.topology_map``: what belongs together, as the kernel says it."""

from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.topology_map import topology_map


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a tree as of two sockets with two threads each, of which the first has two domains.

    Its files and their contents are as Linux documents them (Documentation/ABI: sysfs-devices-
    system-cpu, sysfs-bus-pci).
    """
    files = {}
    for number, (socket, node) in enumerate([("0", 0), ("0", 1), ("1", 2), ("1", 2)]):
        cpu = f"sys/devices/system/cpu/cpu{number}"
        files[f"{cpu}/topology/physical_package_id"] = socket
        files[f"{cpu}/cache/index3/id"] = socket
        (tmp_path / cpu / f"node{node}").mkdir(parents=True)
    for address, kind, domain in (
        ("0000:00:1f.0", "0x060100", "0"),
        ("0000:41:00.0", "0x030200", "1"),
        ("0000:c1:00.0", "0x120000", "2"),
        ("0001:c1:00.0", "0x030000", "-1"),
    ):
        files[f"sys/bus/pci/devices/{address}/class"] = kind
        files[f"sys/bus/pci/devices/{address}/numa_node"] = domain
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return tmp_path


def test_each_thread_domain_and_card_has_its_row(root: Path) -> None:
    """A card lies in a domain, a domain in a socket; addresses are written as the collectors do."""
    assert topology_map(str(root)) == [
        {"hwthread": "0", "socket": "0", "llc": "0", "memoryDomain": "0"},
        {"hwthread": "1", "socket": "0", "llc": "0", "memoryDomain": "1"},
        {"hwthread": "2", "socket": "1", "llc": "1", "memoryDomain": "2"},
        {"hwthread": "3", "socket": "1", "llc": "1", "memoryDomain": "2"},
        {"memoryDomain": "0", "socket": "0"},
        {"memoryDomain": "1", "socket": "0"},
        {"memoryDomain": "2", "socket": "1"},
        {"memoryDomain": "1", "socket": "0", "accelerator": "00000000:41:00.0"},
        {"memoryDomain": "2", "socket": "1", "accelerator": "00000000:C1:00.0"},
    ]


def test_what_the_kernel_does_not_say_is_left_out(root: Path) -> None:
    """Offline threads, and machines without NUMA or a third cache."""
    cpus = root / "sys/devices/system/cpu"
    (cpus / "cpu0/topology/physical_package_id").unlink()
    (cpus / "cpu1/topology/physical_package_id").write_text("-1\n")
    (cpus / "cpu2/cache/index3/id").unlink()
    (cpus / "cpu2/node2").rmdir()
    rows = [row for row in topology_map(str(root)) if "hwthread" in row]
    assert rows == [
        {"hwthread": "2", "socket": "1"},
        {"hwthread": "3", "socket": "1", "llc": "1", "memoryDomain": "2"},
    ]


def test_a_file_that_says_nonsense_is_named(root: Path) -> None:
    """It is not what the kernel writes."""
    (root / "sys/devices/system/cpu/cpu2/cache/index3/id").write_text("x\n")
    with pytest.raises(DataError, match="cpu2/cache/index3/id: 'x' is not a number"):
        topology_map(str(root))


def test_a_domain_of_several_sockets_is_in_none(root: Path) -> None:
    """With NUMA switched off in the firmware, one domain holds all."""
    for number, domain in enumerate("0122"):
        cpu = root / f"sys/devices/system/cpu/cpu{number}"
        (cpu / f"node{domain}").rename(cpu / "node0")
    assert [row for row in topology_map(str(root)) if "hwthread" not in row] == []


def test_where_there_is_no_sys_there_are_no_places(tmp_path: Path) -> None:
    """In some containers there is none; rules that need it say so."""
    assert topology_map(str(tmp_path)) == []


def test_this_machine_is_as_it_says_of_itself() -> None:
    """Every hardware thread that is online has its row, of the socket that ``cpuinfo`` says."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    pairs = [tuple(map(str.strip, line.split(":", 1))) for line in lines if ":" in line]
    threads = [value for key, value in pairs if key == "processor"]
    sockets = [value for key, value in pairs if key == "physical id"]
    rows = [row for row in topology_map() if "hwthread" in row]
    assert [row["hwthread"] for row in rows] == threads
    assert [row["socket"] for row in rows] == sockets
