"""What a node is made of: ``/sys/devices/system`` and ``/proc``."""

import os
from pathlib import Path

import psutil
import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.topology import system, topology
from tests.node.conftest import Root, unpack


def test_a_node_of_two_sockets(root: Root) -> None:
    """Cores are counted by their threads; what is offline does not count."""
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


def small(folder: Path, **changes: str) -> str:
    """Write a small node."""
    unpack(f"@ first\n{''.join({**SMALL, **changes}.values())}@ second\n", folder)
    return str(folder)


def test_a_node_that_tells_little(tmp_path: Path) -> None:
    """A virtual socket, an ARM processor that has no name, and no NUMA domains."""
    assert topology(small(tmp_path)) == (1, 1, 3, "ARMv8", 5, ())


def test_a_power_processor_goes_by_its_key(tmp_path: Path) -> None:
    """One without any of the keys has no name."""
    reported = topology(small(tmp_path, cpuinfo="## /proc/cpuinfo\ncpu\t\t: POWER9, altivec\n"))
    assert reported.model == "POWER9, altivec"
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\n")
    assert topology(str(tmp_path)).model == ""


def test_a_kernel_before_6_1_does_not_tell_its_architecture(tmp_path: Path) -> None:
    """It is then this machine's."""
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
        ({"node": "## /sys/devices/system/node/node0/distance\n10 20\n"}, "1 domains are no sq"),
        ({"node": "## /sys/devices/system/node/node0/distance\nten\n"}, "'ten' is not a counter"),
    ],
)  # fmt: skip
def test_another_file_is_named(tmp_path: Path, changes: dict[str, str], reason: str) -> None:
    """What is missing or not the kernel's."""
    with pytest.raises((OSError, DataError), match=reason):
        topology(small(tmp_path, **changes))


def test_a_kernel_without_a_name_is_refused(tmp_path: Path) -> None:
    """The specification wants one."""
    unpack("@ first\n## /proc/sys/kernel/ostype\n\n@ second\n", tmp_path)
    with pytest.raises(DataError, match="ostype is empty"):
        system(str(tmp_path))


def test_this_machine_agrees_with_psutil() -> None:
    """Threads, cores and memory."""
    reported, kernel = topology(), os.uname()
    cores = reported.sockets * reported.cores_per_socket
    assert cores == psutil.cpu_count(logical=False)
    assert cores * reported.threads_per_core == psutil.cpu_count()
    assert reported.memory == psutil.virtual_memory().total // 1024
    assert system() == (kernel.sysname, kernel.release, kernel.machine)
