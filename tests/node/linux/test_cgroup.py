"""Control groups: where they are, and files of keys and counters."""

import os
from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.cgroup import folders_of, keyed_counters


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
