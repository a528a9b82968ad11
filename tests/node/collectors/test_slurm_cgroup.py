"""Slurm's jobs: cgroups of version 2 and version 1."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ccpipe.node.collectors.slurm_cgroup import SlurmCgroup
from tests.node.conftest import Reported, Root, reported, unpack

SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope"


def _of(values: Reported, job: str) -> dict[str, float]:
    return {name: float(value) for (name, of), value in values.items() if of == job}


def test_slurm_cgroup_reports_job_of_version_2(root: Root, seconds: Any) -> None:
    """Current memory; processor time, input and output, and pressure since the last sample."""
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


def test_slurm_cgroup_follows_jobs(root: Root) -> None:
    """An ended job is omitted, a new one has rates from its second sample on."""
    first, second = root.twice(SlurmCgroup(root=str(root)), "cgroup-v2")
    assert _of(first, "1002") == {"job_mem_used": 4096}
    assert _of(second, "1002") == {}
    assert _of(second, "1003") == {"job_mem_used": 1}


def test_slurm_cgroup_reports_job_of_version_1(root: Root, seconds: Any) -> None:
    """The files have other names and other units; a limit of 2⁶³ means unlimited."""
    seconds(100)
    first, second = root.twice(SlurmCgroup(root=str(root)), "cgroup-v1")
    assert _of(first, "51") == {"job_mem_used": 28442624, "job_max_mem_used": 40923136}
    values = _of(second, "51")
    assert values["job_user_cpu"] == 10  # 1000 ticks of 10 ms in 100 s
    assert values["job_sys_cpu"] == 1
    assert values["job_read_bytes"] == 1000
    assert values["job_write_bytes"] == 0


def test_slurm_cgroup_separates_job_of_two_slurmds(root: Root, tmp_path: Path) -> None:
    root.show("cgroup-v2/first")
    directory = root.path / "sys/fs/cgroup/system.slice"
    shutil.copytree(directory / "slurmstepd.scope", directory / "c1_slurmstepd.scope")
    jobs = {job for _, job in reported(SlurmCgroup(root=str(root)).collect(0))}
    assert jobs == {"1001", "1002", "1001@c1_slurmstepd.scope", "1002@c1_slurmstepd.scope"}


def test_slurm_cgroup_reads_hybrid_hierarchy(root: Root, tmp_path: Path) -> None:
    """Version 2 is then mounted at /sys/fs/cgroup/unified."""
    root.show("cgroup-v2/first")
    hybrid = tmp_path / "hybrid/sys/fs/cgroup/unified"
    shutil.copytree(root.path / "sys/fs/cgroup", hybrid)
    collector = SlurmCgroup(root=str(tmp_path / "hybrid"))
    assert reported(collector.collect(0)) == reported(SlurmCgroup(root=str(root)).collect(0))


def test_slurm_cgroup_accepts_job_that_ends_while_read(root: Root) -> None:
    """Metrics of vanished files are omitted, as an empty directory shows."""
    root.show("cgroup-v2/first")
    (root.path / SCOPE / "job_1004").mkdir()
    jobs = {job for _, job in reported(SlurmCgroup(root=str(root)).collect(0))}
    assert jobs == {"1001", "1002"}


def test_slurm_cgroup_reports_job_named_by_sluid_by_number(root: Root) -> None:
    """Slurm from 26.05 on names its directory so; a job without a known number is omitted."""
    root.show("cgroup-v2/first")
    scope = root.path / SCOPE
    (scope / "job_1001").rename(scope / "sEKNKTV3WPV500")
    (scope / "job_1002").rename(scope / "s5K1KKYAYG5D00")
    slurmstepd = scope / "sEKNKTV3WPV500/step_extern/slurm"
    slurmstepd.mkdir(parents=True)
    (slurmstepd / "cgroup.procs").write_text("77\n")
    (root.path / "proc/77").mkdir(parents=True)
    (root.path / "proc/77/cmdline").write_text("slurmstepd: [1001.extern]\0")
    values = reported(SlurmCgroup(root=str(root)).collect(0))
    assert _of(values, "1001")["job_mem_used"] == 28442624
    assert {job for _, job in values} == {"1001"}


def test_slurm_cgroup_raises_filenotfounderror_without_slurm(tmp_path: Path) -> None:
    """A node with Slurm but without jobs has no metrics, which is not an error."""
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
        ("cpuset.cpus", "all", "'all' is not a list of hardware threads"),
        ("io.pressure", "none", "line 1: 'none' is not a pressure"),
    ],
)
def test_slurm_cgroup_omits_only_values_of_invalid_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, text: str, reason: str
) -> None:
    """It is logged once; the job's other files and other jobs are reported."""
    good = f"## /{SCOPE}/job_8/memory.current\n5\n"
    files = {"memory.current": "1", "cpuset.cpus": "0", file: text}
    bad = "".join(f"## /{SCOPE}/job_7/{name}\n{content}\n" for name, content in files.items())
    unpack(f"@ first\n{bad}{good}@ second\n", tmp_path)
    collector = SlurmCgroup(root=str(tmp_path))
    for _ in range(2):
        values = reported(collector.collect(0))
        assert values["job_mem_used", "8"] == 5
        assert (("job_mem_used", "7") in values) == (file != "memory.current")
    [record] = caplog.records
    assert record.message.startswith("collector slurm_cgroup: ")
    assert re.search(f"{file}: {reason}", record.message)


def test_slurm_cgroup_divides_job_among_hwthreads(root: Root, seconds: Any) -> None:
    """Among those of the cpuset; hardware threads without a job have 0; no sub-type."""
    seconds(10)
    for reading in ("first", "second"):
        root.show(f"cgroup-v2/{reading}")
        directory = root.path / SCOPE
        (directory / "job_1001/cpuset.cpus").write_text("0-1,3\n")
        (directory / "job_1001/cpuset.cpus.effective").write_text("0-3\n")
        (root.path / "sys/devices/system/cpu").mkdir(parents=True, exist_ok=True)
        (root.path / "sys/devices/system/cpu/online").write_text("0-3\n")
    collector = SlurmCgroup(hwthreads=True, root=str(root))
    root.show("cgroup-v2/first")
    first = list(collector.collect(0))
    assert {tuple(m.tags) for m in first} == {("type", "type-id")}
    values = reported(first)
    assert values["job_mem_used", "0"] == values["job_mem_used", "3"] == 28442624 // 3
    assert values["job_mem_used", "2"] == 0
    root.show("cgroup-v2/second")
    values = reported(collector.collect(1))
    assert values["job_user_cpu", "1"] == pytest.approx(200 / 3)
    assert values["job_user_cpu", "2"] == 0
    assert values["job_read_bytes", "0"] == 4096 // 3
    assert values["job_psi_cpu_some", "1001"] == 25
    assert {of for name, of in values if name == "job_sys_cpu"} == {"0", "1", "2", "3"}


def test_slurm_cgroup_adds_up_jobs_on_same_hwthread(tmp_path: Path) -> None:
    """As on shared nodes; a job without an own cpuset has the effective one."""
    files = "".join(
        f"## /{SCOPE}/job_{job}/memory.current\n{size}\n"
        f"## /{SCOPE}/job_{job}/cpuset.cpus\n\n"
        f"## /{SCOPE}/job_{job}/cpuset.cpus.effective\n{cpus}\n"
        for job, size, cpus in ((1, 10, "0"), (2, 100, "0-1"))
    )
    online = "## /sys/devices/system/cpu/online\n0-2\n"
    unpack(f"@ first\n{files}{online}@ second\n", tmp_path)
    values = reported(SlurmCgroup(hwthreads=True, root=str(tmp_path)).collect(0))
    assert [values["job_mem_used", cpu] for cpu in "012"] == [60, 50, 0]


def test_slurm_cgroup_divides_job_of_unknown_number(tmp_path: Path) -> None:
    """Its threads are not idle, and the number is not needed; pressure, which needs it, is absent.

    Where its memory cannot be read, nobody knows that of its threads.
    """
    pressures = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}"
    tree = "## /sys/devices/system/cpu/online\n0-3\n"
    for directory, cpu in (
        ("job_7", 1),
        ("sEKNKTV3WPV500", 2),
        ("s5K1KKYAYG5D00", 3),
        ("system", 0),
    ):
        tree += f"## /{SCOPE}/{directory}/cpuset.cpus\n{cpu}\n"
        tree += f"## /{SCOPE}/{directory}/cpu.pressure\n{pressures.format(0)}\n"
        if cpu != 3:
            tree += f"## /{SCOPE}/{directory}/memory.current\n{cpu * 100}\n"
    unpack(f"@ first\n{tree}@ second\n", tmp_path)
    collector = SlurmCgroup(hwthreads=True, root=str(tmp_path))
    values = reported(collector.collect(0))
    assert [values.get(("job_mem_used", cpu)) for cpu in "0123"] == [0, 100, 200, None]
    values = reported(collector.collect(1))
    assert {of for name, of in values if name.startswith("job_psi")} == {"7"}


def test_slurm_cgroup_names_invalid_blkio_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same for version 1."""
    below = "slurm/uid_1/job_7"
    file = "blkio.throttle.io_service_bytes"
    unpack(
        f"@ first\n## /sys/fs/cgroup/memory/{below}/memory.usage_in_bytes\n1\n"
        f"## /sys/fs/cgroup/blkio/{below}/{file}\n8:0 Read 1 2\n@ second\n",
        tmp_path,
    )
    assert reported(SlurmCgroup(root=str(tmp_path)).collect(0)) == {("job_mem_used", "7"): 1}
    assert f"{file}: '8:0 Read 1 2' is not a device's I/O counters" in caplog.text
