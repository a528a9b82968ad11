"""Control groups, mounted file systems, and zones of powercap."""

import os
from pathlib import Path

import psutil
import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.cgroup import folders_of, keyed_counters
from ccpipe.node.linux.mounts import Mount, mounts
from ccpipe.node.linux.powercap import zones
from tests.node.conftest import TREES


def test_counters_are_found_by_key(tmp_path: Path) -> None:
    path = tmp_path / "cpu.stat"
    path.write_text("a 1\nb 22\nc 3\n")
    assert keyed_counters(path, ("c", "a")) == [3, 1]
    assert keyed_counters(path, ("x",)) == []
    assert keyed_counters(tmp_path / "nothing", ("a",)) == []
    with pytest.raises(DataError, match="1 counters, not 2"):
        keyed_counters(path, ("a", "x"))


def test_folders_by_controller(tmp_path: Path) -> None:
    """Version 2 beside version 1, whose controllers may share a mount under both names."""
    (tmp_path / "proc/5").mkdir(parents=True)
    (tmp_path / "proc/5/cgroup").write_text("4:cpu,cpuacct:/a\n3:memory:/a:b\n0::/c\n")
    for name in ("cpu,cpuacct", "memory", "unified/c"):
        (tmp_path / "sys/fs/cgroup" / name).mkdir(parents=True)
    top = tmp_path / "sys/fs/cgroup"
    assert folders_of(5, str(tmp_path)) == {
        "cpu": top / "cpu,cpuacct/a",
        "cpuacct": top / "cpu,cpuacct/a",
        "memory": top / "memory/a:b",
        "": top / "unified/c",
    }


def test_our_own_are_found() -> None:
    assert all(path.is_absolute() for path in folders_of(os.getpid()).values())


def test_all_file_systems_are_listed_in_order() -> None:
    found = mounts(str(TREES / "made-mounts/first"))
    assert found[0] == Mount("proc", "/proc", "proc")
    assert Mount("/dev/sdb1", "/scratch disk", "xfs") in found
    assert Mount("/dev/sde1", "/odd\nname", "ext4") in found
    assert [mount.kind for mount in found if mount.point == "/hidden"] == ["ext4", "tmpfs"]


def test_this_machine_has_those_that_psutil_lists() -> None:
    found = [mount.point for mount in mounts()]
    assert found == [partition.mountpoint for partition in psutil.disk_partitions(all=True)]
    assert "/" in found


def test_a_tree_without_a_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="proc/self/mounts"):
        mounts(str(tmp_path))


def test_zones_of_another_kind_are_left_out(tmp_path: Path) -> None:
    """And a part without a socket is wrong."""
    for number, name in enumerate(("package-0", "npu", "dram")):
        folder = tmp_path / f"sys/class/powercap/intel-rapl:{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
    found = zones(str(tmp_path))
    assert next(found).part == "package"
    with pytest.raises(DataError, match="intel-rapl:2: dram belongs to no socket"):
        next(found)
