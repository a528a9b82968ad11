"""The topology of a node: ``/sys/devices/system`` and ``/proc``."""

import os
from pathlib import Path

import psutil
import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.topology import (
    HwThread,
    hwthread_topology,
    hwthreads,
    system,
    topology,
    topology_map,
)
from tests.node.conftest import PACKED, Root, unpack


def test_topology_counts_two_sockets(root: Root) -> None:
    """Cores are counted by their threads; offline threads are ignored."""
    root.show("topology/first")
    reported = topology(str(root))
    assert (reported.sockets, reported.cores_per_socket, reported.threads_per_core) == (2, 3, 2)
    assert reported.model == "AMD EPYC 7H12 64-Core Processor"
    assert reported.memory == 263_921_456
    assert reported.distances == (
        (10, 12, 32, 32),
        (12, 10, 32, 32),
        (32, 32, 10, 12),
        (32, 32, 12, 10),
    )
    kernel = system(str(root))
    assert kernel == ("Linux", "5.14.0-427.13.1.el9_4.x86_64", "x86_64")


CPU = "## /sys/devices/system/cpu/cpu0/topology"
SMALL = {
    "cpu": f"{CPU}/thread_siblings_list\n0-1,4\n{CPU}/physical_package_id\n-1\n",
    "cpuinfo": "## /proc/cpuinfo\nprocessor : 0\nCPU implementer : 0x41\nCPU architecture: 8\n",
    "meminfo": "## /proc/meminfo\nMemTotal:  5 kB\n",
}


def small(directory: Path, **changes: str) -> str:
    unpack(f"@ first\n{''.join({**SMALL, **changes}.values())}@ second\n", directory)
    return str(directory)


def test_topology_accepts_missing_files(tmp_path: Path) -> None:
    """A virtual socket, an ARM processor that has no name, and no NUMA domains."""
    assert topology(small(tmp_path)) == (1, 1, 3, "ARMv8", 5, ())


def test_topology_reads_model_of_power_processor(tmp_path: Path) -> None:
    """One without any of the keys has no name."""
    reported = topology(small(tmp_path, cpuinfo="## /proc/cpuinfo\ncpu\t\t: POWER9, altivec\n"))
    assert reported.model == "POWER9, altivec"
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\n")
    assert topology(str(tmp_path)).model == ""


def test_system_uses_uname_before_linux_6_1(tmp_path: Path) -> None:
    kernel = "## /proc/sys/kernel/ostype\nLinux\n## /proc/sys/kernel/osrelease\n3.10\n"
    unpack(f"@ first\n{kernel}@ second\n", tmp_path)
    assert system(str(tmp_path)) == ("Linux", "3.10", os.uname().machine)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cpu": "## /sys/devices/system/cpu/cpu0/online\n1\n"}, "reports no topology"),
        ({"cpu": f"{CPU}/thread_siblings_list\n0-x\n"}, "'0-x' is not a list of hardware thr"),
        ({"cpu": f"{CPU}/thread_siblings_list\n0\n{CPU}/physical_package_id\nA\n"},
         "'A' is not a number"),
        ({"cpu": f"{CPU}/thread_siblings_list\n5-3\n"}, "'5-3' is not a list of hardware thr"),
        ({"meminfo": "## /proc/meminfo\nMemTotal: 0 kB\n"}, "meminfo: MemTotal is missing"),
        ({"meminfo": "## /proc/meminfo\nMemFree: 5 kB\n"}, "meminfo: MemTotal is missing"),
        ({"node": "## /sys/devices/system/node/node0/distance\n10 20\n"}, "expected 1 distances"),
        ({"node": "## /sys/devices/system/node/node0/distance\nten\n"}, "'ten' is not a counter"),
    ],
)  # fmt: skip
def test_topology_rejects_invalid_file(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    """The error names a missing or invalid file."""
    with pytest.raises((OSError, DataError), match=reason):
        topology(small(tmp_path, **changes))


def test_system_rejects_kernel_without_name(tmp_path: Path) -> None:
    """The specification requires one."""
    unpack("@ first\n## /proc/sys/kernel/ostype\n\n@ second\n", tmp_path)
    with pytest.raises(DataError, match="ostype is empty"):
        system(str(tmp_path))


def test_topology_agrees_with_psutil() -> None:
    reported, kernel = topology(), os.uname()
    cores = reported.sockets * reported.cores_per_socket
    assert cores == psutil.cpu_count(logical=False)
    assert cores * reported.threads_per_core == psutil.cpu_count()
    assert reported.memory == psutil.virtual_memory().total // 1024
    assert system() == (kernel.sysname, kernel.release, kernel.machine)


def test_hwthread_topology_lists_each_thread(tmp_path: Path) -> None:
    """Offline threads are absent; unknown numbers are -1, and a die is then its socket."""
    unpack((PACKED / "hwthreads.txt").read_text(), tmp_path)
    assert hwthreads(str(tmp_path)) == [
        HwThread(0, 0, [0, 2], core_id=0, socket_id=0, die_id=0, numa_id=0),
        HwThread(1, 0, [1], core_id=0, socket_id=1, die_id=1, numa_id=-1),
        HwThread(2, 1, [0, 2], core_id=0, socket_id=0, die_id=0, numa_id=0),
    ]


def test_hwthread_topology_counts_cores_per_socket(tmp_path: Path) -> None:
    """The kernel numbers them from 0 in each."""
    unpack((PACKED / "hwthreads.txt").read_text(), tmp_path)
    assert hwthread_topology(str(tmp_path))["cpu_info"] == {
        "num_hwthreads": 3, "smt_width": 2, "num_sockets": 2, "num_dies": 2, "num_cores": 2,
        "num_numa_domains": 2,
    }  # fmt: skip


def test_hwthread_topology_is_empty_without_files(tmp_path: Path) -> None:
    assert hwthread_topology(str(tmp_path))["hwthreads"] == []


@pytest.fixture
def two_sockets(tmp_path: Path) -> Path:
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


def test_topology_map_has_row_of_each_thread_domain_and_gpu(two_sockets: Path) -> None:
    """A GPU is in a domain, a domain in a socket; addresses are written as by the collectors."""
    assert topology_map(str(two_sockets)) == [
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


def test_topology_map_omits_unreported_numbers(two_sockets: Path) -> None:
    """Offline threads, and machines without NUMA or a third cache."""
    cpus = two_sockets / "sys/devices/system/cpu"
    (cpus / "cpu0/topology/physical_package_id").unlink()
    (cpus / "cpu1/topology/physical_package_id").write_text("-1\n")
    (cpus / "cpu2/cache/index3/id").unlink()
    (cpus / "cpu2/node2").rmdir()
    rows = [row for row in topology_map(str(two_sockets)) if "hwthread" in row]
    assert rows == [
        {"hwthread": "2", "socket": "1"},
        {"hwthread": "3", "socket": "1", "llc": "1", "memoryDomain": "2"},
    ]


def test_topology_map_rejects_invalid_file(two_sockets: Path) -> None:
    (two_sockets / "sys/devices/system/cpu/cpu2/cache/index3/id").write_text("x\n")
    with pytest.raises(DataError, match="cpu2/cache/index3/id: 'x' is not a number"):
        topology_map(str(two_sockets))


def test_topology_map_omits_domain_of_several_sockets(two_sockets: Path) -> None:
    for number, domain in enumerate("0122"):
        cpu = two_sockets / f"sys/devices/system/cpu/cpu{number}"
        (cpu / f"node{domain}").rename(cpu / "node0")
    assert [row for row in topology_map(str(two_sockets)) if "hwthread" not in row] == []


def test_topology_map_is_empty_without_sys(tmp_path: Path) -> None:
    assert topology_map(str(tmp_path)) == []


def test_topology_map_agrees_with_cpuinfo() -> None:
    """Every online hardware thread has a row, with the socket in ``cpuinfo``."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    pairs = [tuple(map(str.strip, line.split(":", 1))) for line in lines if ":" in line]
    threads = [value for key, value in pairs if key == "processor"]
    sockets = [value for key, value in pairs if key == "physical id"]
    rows = [row for row in topology_map() if "hwthread" in row]
    assert [row["hwthread"] for row in rows] == threads
    assert [row["socket"] for row in rows] == sockets
