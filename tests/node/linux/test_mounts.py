"""The mounted file systems, in a captured tree and on this machine."""

from pathlib import Path

import psutil
import pytest

from ccpipe.node.linux.mounts import Mount, mounts
from tests.node.conftest import TREES


def test_all_file_systems_are_listed_in_order() -> None:
    """Pseudo file systems and hidden ones too; escapes are read."""
    found = mounts(str(TREES / "made-mounts/first"))
    assert found[0] == Mount("proc", "/proc", "proc")
    assert Mount("/dev/sdb1", "/scratch disk", "xfs") in found
    assert Mount("/dev/sde1", "/odd\nname", "ext4") in found
    assert [mount.kind for mount in found if mount.point == "/hidden"] == ["ext4", "tmpfs"]


def test_this_machine_is_read_again_after_a_captured_tree(tmp_path: Path) -> None:
    """Also where the tree cannot be read."""
    with pytest.raises(OSError, match="No such file"):
        mounts(str(tmp_path))
    assert psutil.PROCFS_PATH == "/proc"
    assert "/" in {mount.point for mount in mounts()}
