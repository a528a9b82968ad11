"""The mounted file systems, in a captured tree and on this machine."""

from pathlib import Path

import psutil
import pytest

from ccpipe.node.linux.mounts import Mount, mounts
from tests.node.conftest import TREES


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
