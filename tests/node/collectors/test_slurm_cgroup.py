"""Slurm's jobs: cgroups of version 2 and version 1."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import DataError
from ccpipe.node.collectors.slurm_cgroup import SlurmCgroup
from tests.node.conftest import Root, Told, reported, unpack

SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope"


def _of(values: Told, job: str) -> dict[str, float]:
    return {name: float(value) for (name, of), value in values.items() if of == job}


def test_a_job_of_version_2(root: Root, seconds: Any) -> None:
    """Memory as it stands; processor time, input and output, and pressure since the last sample."""
    seconds(10)
    first, second = root.twice(SlurmCgroup(root=str(root)), "cgroup-v2")
    assert _of(first, "1001") == {
        "job_mem_used": 28442624, "job_max_mem_used": 40923136, "job_mem_limit": 209715200,
    }  # fmt: skip
    values = _of(second, "1001")
    assert values["job_mem_used"] == 30000000
    assert values["job_user_cpu"] == 200  # 20 s of two hardware threads in 10 s
    assert values["job_sys_cpu"] == 10
    assert values["job_read_bytes"] == 4096
    assert values["job_write_bytes"] == 500
    assert values["job_psi_cpu_some"] == 25
    assert values["job_psi_cpu_full"] == values["job_psi_io_some"] == 0


def test_jobs_come_and_go(root: Root) -> None:
    """One that ended is silent, a new one waits for its second sample; no limit is no metric."""
    first, second = root.twice(SlurmCgroup(root=str(root)), "cgroup-v2")
    assert _of(first, "1002") == {"job_mem_used": 4096}
    assert _of(second, "1002") == {}
    assert _of(second, "1003") == {"job_mem_used": 1}


def test_a_job_of_version_1(root: Root, seconds: Any) -> None:
    """The files have other names and other units; a limit of 2⁶³ is none."""
    seconds(100)
    first, second = root.twice(SlurmCgroup(root=str(root)), "cgroup-v1")
    assert _of(first, "51") == {"job_mem_used": 28442624, "job_max_mem_used": 40923136}
    values = _of(second, "51")
    assert values["job_user_cpu"] == 10  # 1000 ticks of 10 ms in 100 s
    assert values["job_sys_cpu"] == 1
    assert values["job_read_bytes"] == 1000
    assert values["job_write_bytes"] == 0


def test_the_same_job_of_two_slurmds_stays_two_series(root: Root, tmp_path: Path) -> None:
    """Test beds run several nodes on one machine."""
    root.show("cgroup-v2/first")
    folder = root.path / "sys/fs/cgroup/system.slice"
    shutil.copytree(folder / "slurmstepd.scope", folder / "c1_slurmstepd.scope")
    jobs = {job for _, job in reported(SlurmCgroup(root=str(root)).collect(0))}
    assert jobs == {"1001", "1002", "1001@c1_slurmstepd.scope", "1002@c1_slurmstepd.scope"}


def test_version_2_beside_version_1(root: Root, tmp_path: Path) -> None:
    """In a hybrid set-up version 2 is mounted at /sys/fs/cgroup/unified."""
    root.show("cgroup-v2/first")
    hybrid = tmp_path / "hybrid/sys/fs/cgroup/unified"
    shutil.copytree(root.path / "sys/fs/cgroup", hybrid)
    collector = SlurmCgroup(root=str(tmp_path / "hybrid"))
    assert reported(collector.collect(0)) == reported(SlurmCgroup(root=str(root)).collect(0))


def test_a_job_that_ends_while_it_is_read_costs_nobody_else(root: Root) -> None:
    """Files that vanish leave out their metrics, as an empty folder shows."""
    root.show("cgroup-v2/first")
    (root.path / SCOPE / "job_1004").mkdir()
    jobs = {job for _, job in reported(SlurmCgroup(root=str(root)).collect(0))}
    assert jobs == {"1001", "1002"}


def test_a_node_without_slurm_says_so(tmp_path: Path) -> None:
    """And one with Slurm and no jobs has nothing to say, which is no error."""
    collector = SlurmCgroup(root=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no cgroups of Slurm's"):
        list(collector.collect(0))
    (tmp_path / SCOPE).mkdir(parents=True)
    assert list(collector.collect(0)) == []


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("memory.current", "lots", "'lots' is not a counter"),
        ("cpu.stat", "user_usec 5", "1 counters, not 2"),
        ("cpu.stat", "user_usec x\nsystem_usec 1", "'x' is not a counter"),
        ("io.stat", "8:0 rbytes=x", "'x' is not a counter"),
        ("io.pressure", "none", "line 1: 'none' is not a pressure"),
    ],
)
def test_another_file_is_named(tmp_path: Path, file: str, text: str, reason: str) -> None:
    """What the kernel would not write raises DataError that names the file."""
    unpack(f"@ first\n## /{SCOPE}/job_7/{file}\n{text}\n@ second\n", tmp_path)
    with pytest.raises(DataError, match=f"{file}: {reason}"):
        list(SlurmCgroup(root=str(tmp_path)).collect(0))


def test_another_blkio_file_is_named(tmp_path: Path) -> None:
    """The same for version 1."""
    below = "slurm/uid_1/job_7"
    file = "blkio.throttle.io_service_bytes"
    unpack(
        f"@ first\n## /sys/fs/cgroup/memory/{below}/memory.usage_in_bytes\n1\n"
        f"## /sys/fs/cgroup/blkio/{below}/{file}\n8:0 Read 1 2\n@ second\n",
        tmp_path,
    )
    with pytest.raises(DataError, match=f"{file}: '8:0 Read 1 2' is not what a device moved"):
        list(SlurmCgroup(root=str(tmp_path)).collect(0))
