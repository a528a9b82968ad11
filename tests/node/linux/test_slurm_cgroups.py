"""Slurm's control groups of steps, as slurmd makes them."""

import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux.slurm_cgroups import (
    JobIds,
    StepCgroup,
    directories_of,
    find_steps,
    keyed_counters,
)
from tests.node.cgroups import put

SLUID, OTHER = "sEKNKTV3WPV500", "s5K1KKYAYG5D00"
SCOPE = "system.slice/slurmstepd.scope"
NOBODY: frozenset[int] = frozenset()


def steps(root: Path) -> list[StepCgroup]:
    return list(find_steps(str(root), JobIds(str(root))))


def test_version_1_yields_step_once_per_controller(tmp_path: Path) -> None:
    """As slurmd 22.05 makes it: the freezer has no tasks; slurmstepd is in the job's group."""
    put(tmp_path, "freezer/slurm_c3/uid_2001/job_51", 4532)
    put(tmp_path, "freezer/slurm_c3/uid_2001/job_51/step_0", 4673, 4674)
    for controller in ("memory", "cpuacct"):
        put(tmp_path, f"{controller}/slurm_c3/uid_2001/job_51/step_0")
        put(tmp_path, f"{controller}/slurm_c3/uid_2001/job_51/step_0/task_0", 4673)
        put(tmp_path, f"{controller}/slurm_c3/uid_2001/job_51/step_0/task_1", 4674)
    tasks = {0: frozenset({4673}), 1: frozenset({4674})}
    assert steps(tmp_path) == [
        StepCgroup("c3", 51, "0", tasks, NOBODY),
        StepCgroup("c3", 51, "0", tasks, NOBODY),
        StepCgroup("c3", 51, "0", {}, frozenset({4673, 4674})),
    ]


def test_version_2_excludes_slurmstepd(tmp_path: Path) -> None:
    """Its group is next to the groups of tasks, which may have subgroups."""
    scope = "system.slice/slurmstepd.scope"
    put(tmp_path, f"{scope}/system", 1)
    put(tmp_path, f"{scope}/job_7/step_batch/slurm", 10)
    put(tmp_path, f"{scope}/job_7/step_batch/user")
    put(tmp_path, f"{scope}/job_7/step_batch/user/task_0")
    put(tmp_path, f"{scope}/job_7/step_batch/user/task_0/container", 11, 12)
    put(tmp_path, f"{scope}/job_7/step_extern/user/task_special", 13)
    assert steps(tmp_path) == [
        StepCgroup("", 7, "batch", {0: frozenset({11, 12})}, NOBODY),
        StepCgroup("", 7, "extern", {0: frozenset({13})}, NOBODY),
    ]


def test_suspended_step_is_frozen(tmp_path: Path) -> None:
    """Version 1 reports it in the freezer, version 2 in the group above the tasks."""
    put(tmp_path, "freezer/slurm_c1/uid_0/job_1/step_0", 4)
    state = tmp_path / "sys/fs/cgroup/freezer/slurm_c1/uid_0/job_1/step_0/freezer.state"
    put(tmp_path, "system.slice/slurmstepd.scope/job_2/step_0/user/task_0", 5)
    user = tmp_path / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_2/step_0/user"
    for text, events, is_frozen in (
        ("THAWED\n", "populated 1\nfrozen 0\n", False),
        ("FREEZING\n", "populated 1\nfrozen 1\n", True),
        ("FROZEN\n", "frozen 1\n", True),
        ("", "", False),
    ):
        state.write_text(text)
        (user / "cgroup.events").write_text(events)
        found = {step.job: step.is_frozen for step in steps(tmp_path)}
        assert found == {1: is_frozen, 2: is_frozen}


def test_steps_of_several_slurmds_have_several_nodes(tmp_path: Path) -> None:
    put(tmp_path, "unified/system.slice/c2_slurmstepd.scope/job_7/step_0/user/task_1", 21)
    put(tmp_path, "unified/system.slice/c1_slurmstepd.scope/job_7/step_0/user/task_0", 20)
    assert [(found.node, found.tasks) for found in steps(tmp_path)] == [
        ("c1", {0: frozenset({20})}),
        ("c2", {1: frozenset({21})}),
    ]


def test_steps_skip_foreign_groups(tmp_path: Path) -> None:
    """Names of other shapes, processes of other namespaces, and a machine without any groups."""
    assert not steps(tmp_path)
    put(tmp_path, "memory/slurm/uid_x/job_1/step_0/task_0", 1)
    put(tmp_path, "memory/slurm/uid_1/job_x/step_0/task_0", 1)
    put(tmp_path, "memory/slurm/uid_1/job_1/step_x/task_0", 1)
    put(tmp_path, "memory/user.slice/uid_1/job_1/step_0/task_0", 1)
    assert not steps(tmp_path)
    put(tmp_path, "memory/slurm/uid_1/job_1/step_0/task_x", 1)
    put(tmp_path, "memory/slurm/uid_1/job_1/step_0/task_0", 0, 5)
    assert steps(tmp_path) == [StepCgroup("", 1, "0", {0: frozenset({5})}, NOBODY)]


@contextlib.contextmanager
def process(title: str, **environment: str) -> Iterator[int]:
    child = subprocess.Popen([title, "infinity"], executable="/bin/sleep", env=environment)
    try:
        while not Path(f"/proc/{child.pid}/cmdline").read_bytes():  # it is being executed
            time.sleep(0.001)
        yield child.pid
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc").symlink_to("/proc")
    return tmp_path


def test_job_named_by_sluid_has_number_in_slurmstepd_title(root: Path) -> None:
    """Slurm from 26.05 on names jobs by SLUID; the titles of users' processes are ignored."""
    with process("slurmstepd: [1001.batch]") as slurmstepd, process("slurmstepd: [7.0]") as task:
        put(root, f"{SCOPE}/system", 1)
        put(root, f"{SCOPE}/{SLUID}/step_batch/slurm", slurmstepd)
        put(root, f"{SCOPE}/{SLUID}/step_batch/user/task_0", task)
        batch = StepCgroup("", 1001, "batch", {0: frozenset({task})}, NOBODY)
        assert steps(root) == [batch]


def test_job_named_by_sluid_has_number_in_environment(root: Path) -> None:
    """Used if no title has it; a process started with another job's environment is ignored."""
    foreign = process("a", SLURM_JOB_ID="7", SLURM_JOB_SLUID=OTHER)
    own = process("a", SLURM_JOB_ID="1001", SLURM_JOB_SLUID=SLUID)
    with process("sleep") as slurmstepd, foreign as one, own as other:
        put(root, f"{SCOPE}/{SLUID}/step_0/slurm", slurmstepd)
        put(root, f"{SCOPE}/{SLUID}/step_0/user/task_0", one, other)
        assert [step.job for step in steps(root)] == [1001]


def test_number_of_sluid_is_remembered(root: Path) -> None:
    """Its processes are read once: a SLUID belongs to one run of one job only."""
    ids = JobIds(str(root))
    with process("slurmstepd: [1001.0]") as slurmstepd:
        put(root, f"{SCOPE}/{SLUID}/step_0/slurm", slurmstepd)
        put(root, f"{SCOPE}/{SLUID}/step_0/user/task_0", 5)
        assert [step.job for step in find_steps(str(root), ids)] == [1001]
    assert [step.job for step in find_steps(str(root), ids)] == [1001]


@pytest.mark.parametrize("name", [SLUID, "job-1001", "j1001"])
def test_job_without_number_is_logged_once(
    root: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a name of another form nor processes without a number give a job, least of all 0."""
    ids = JobIds(str(root))
    with caplog.at_level(logging.WARNING), process("sleep") as pid:
        put(root, f"{SCOPE}/system", 1)
        put(root, f"{SCOPE}/{name}/step_0/user/task_0", pid)
        for _ in range(3):
            assert not list(find_steps(str(root), ids))
    [text] = caplog.messages
    assert f"{SCOPE}/{name}: not attributed to a Slurm job" in text


def test_job_being_created_is_not_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(root, f"{SCOPE}/{SLUID}/step_0/slurm")
    assert not steps(root)
    assert not caplog.messages


def test_steps_are_found_in_other_slice(tmp_path: Path) -> None:
    """cgroup.conf may name it: ``CgroupSlice=slurm.slice``."""
    put(tmp_path, "slurm.slice/slurmstepd.scope/job_7/step_0/user/task_0", 5)
    assert [step.job for step in steps(tmp_path)] == [7]


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_456/step_batch/user/task_0\n", 456),
        ("0::/system.slice/n1_slurmstepd.scope/job_457/step_0/slurm\n", 457),
        ("0::/system.slice/slurmstepd.scope/job_458\n", 458),
        (f"0::/{SCOPE}/{SLUID}/step_0/user/task_0\n", 1001),
        ("8:freezer:/slurm/uid_1000/job_1467073/step_extern\n0::/\n", 1467073),
        ("3:cpu:/\n2:memory:/slurm_n1/uid_0/job_9/step_0/task_3\n", 9),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        (f"0::/user.slice/{SLUID}/x\n", None),
        ("0::/slurm/job_abc/step_0\n", None),
        ("0::/my_job_7/x\n", None),
        ("0::/job_7x/x\n", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("mount", ["", "unified/"])
def test_job_of_process_is_found_by_cgroup(
    tmp_path: Path, cgroup: str, job: int | None, mount: str
) -> None:
    """In both versions, at every depth at which Slurm puts a process."""
    put(tmp_path, f"{mount}{SCOPE}/{SLUID}/step_0/slurm", 8)
    for pid, name, text in ((7, "cgroup", cgroup), (8, "cmdline", "slurmstepd: [1001.0]\0")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/{name}").write_text(text)
    assert JobIds(str(tmp_path)).of_process(7) == job


def test_keyed_counters_are_found_by_key(tmp_path: Path) -> None:
    path = tmp_path / "cpu.stat"
    path.write_text("a 1\nb 22\nc 3\n")
    assert keyed_counters(path, ("c", "a")) == [3, 1]
    assert keyed_counters(path, ("x",)) == []
    assert keyed_counters(tmp_path / "nothing", ("a",)) == []
    with pytest.raises(DataError, match="1 counters, not 2"):
        keyed_counters(path, ("a", "x"))


def test_directories_are_found_by_controller(tmp_path: Path) -> None:
    """Version 2 is mounted too, and controllers of version 1 may share a mount under both names."""
    (tmp_path / "proc/5").mkdir(parents=True)
    (tmp_path / "proc/5/cgroup").write_text("4:cpu,cpuacct:/a\n3:memory:/a:b\n0::/c\n")
    for name in ("cpu,cpuacct", "memory", "unified/c"):
        (tmp_path / "sys/fs/cgroup" / name).mkdir(parents=True)
    top = tmp_path / "sys/fs/cgroup"
    assert directories_of(5, str(tmp_path)) == {
        "cpu": top / "cpu,cpuacct/a",
        "cpuacct": top / "cpu,cpuacct/a",
        "memory": top / "memory/a:b",
        "": top / "unified/c",
    }


def test_directories_of_own_process_are_found() -> None:
    assert all(path.is_absolute() for path in directories_of(os.getpid()).values())
