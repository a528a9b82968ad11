"""Control groups that Slurm made for tasks."""

from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.gather.jobacct.task_cgroup import CgroupUsage, TaskCgroup
from tests.node.cgroups import unpack_snapshot

V1 = "slurm_c3/uid_2001/job_51/step_0/task_0"
V2 = "system.slice/slurmstepd.scope/job_51/step_0/user/task_0"


def _version_2(root: Path, folder: str = V2) -> Path:
    path = root / "sys/fs/cgroup" / folder
    path.mkdir(parents=True)
    (path / "cpu.stat").write_text("usage_usec 7000\nuser_usec 4500999\nsystem_usec 2500\n")
    (path / "memory.current").write_text("1000000\n")
    (path / "memory.peak").write_text("3000000\n")
    (path / "memory.stat").write_text(
        "anon 5\nactive_file 200000\ninactive_file 100000\npgmajfault 7\n"
    )
    (root / "proc/77").mkdir(parents=True)
    (root / "proc/77/cgroup").write_text(f"0::/{folder}\n")
    return path


def test_version_1_as_slurm_made_it(tmp_path: Path) -> None:
    """Memory without the page cache, addresses with it."""
    unpack_snapshot(tmp_path)
    (tmp_path / "proc/4673").mkdir(parents=True)
    lines = f"5:memory:/{V1}\n3:cpu,cpuacct:/{V1}\n2:freezer:/{V1}\n"
    (tmp_path / "proc/4673/cgroup").write_text(lines)
    group = TaskCgroup.of(4673, root=str(tmp_path))
    assert group is not None
    assert group.read() == CgroupUsage(
        user=55360, system=60, memory=19681280, peak=40923136, virtual=28069888, faults=0
    )


def test_version_2(tmp_path: Path) -> None:
    """The page cache is subtracted where that is asked for, and the peak, which has it, unused."""
    _version_2(tmp_path)
    group = TaskCgroup.of(77, root=str(tmp_path))
    assert group is not None
    assert group.read() == CgroupUsage(4500, 2, 1_000_000, 3_000_000, None, 7)
    group = TaskCgroup.of(77, no_file_cache=True, root=str(tmp_path))
    assert group is not None
    assert group.read() == CgroupUsage(4500, 2, 700_000, None, None, 7)


def test_a_group_of_more_than_the_task_is_none(tmp_path: Path) -> None:
    _version_2(tmp_path, "user.slice/user-1000.slice/session-1.scope")
    assert TaskCgroup.of(77, root=str(tmp_path)) is None
    assert TaskCgroup.of(78, root=str(tmp_path)) is None


def test_a_group_that_is_gone_is_none_and_a_bad_file_an_error(tmp_path: Path) -> None:
    """The task ended; or the file is not the kernel's."""
    path = _version_2(tmp_path)
    group = TaskCgroup.of(77, root=str(tmp_path))
    assert group is not None
    (path / "cpu.stat").write_text("user_usec x\nsystem_usec 1\n")
    with pytest.raises(DataError, match="cpu.stat"):
        group.read()
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    assert group.read() is None
