"""Slurm's control groups of steps, as slurmd makes them."""

from pathlib import Path

from ccpipe.node.linux.slurm_cgroups import StepCgroup, find_steps

NOBODY: frozenset[int] = frozenset()


def put(root: Path, folder: str, *pids: int) -> None:
    """Make a group with processes."""
    path = root / "sys/fs/cgroup" / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


def test_version_1_comes_once_for_each_controller(tmp_path: Path) -> None:
    """As slurmd 22.05 makes it: the freezer has no tasks; slurmstepd is in the job's group."""
    put(tmp_path, "freezer/slurm_c3/uid_2001/job_51", 4532)
    put(tmp_path, "freezer/slurm_c3/uid_2001/job_51/step_0", 4673, 4674)
    for controller in ("memory", "cpuacct"):
        put(tmp_path, f"{controller}/slurm_c3/uid_2001/job_51/step_0")
        put(tmp_path, f"{controller}/slurm_c3/uid_2001/job_51/step_0/task_0", 4673)
        put(tmp_path, f"{controller}/slurm_c3/uid_2001/job_51/step_0/task_1", 4674)
    tasks = {0: frozenset({4673}), 1: frozenset({4674})}
    assert list(find_steps(str(tmp_path))) == [
        StepCgroup("c3", 51, "0", tasks, NOBODY),
        StepCgroup("c3", 51, "0", tasks, NOBODY),
        StepCgroup("c3", 51, "0", {}, frozenset({4673, 4674})),
    ]


def test_version_2_leaves_slurmstepd_out(tmp_path: Path) -> None:
    """Its group stands beside those of tasks, which may be divided further."""
    scope = "system.slice/slurmstepd.scope"
    put(tmp_path, f"{scope}/system", 1)
    put(tmp_path, f"{scope}/job_7/step_batch/slurm", 10)
    put(tmp_path, f"{scope}/job_7/step_batch/user")
    put(tmp_path, f"{scope}/job_7/step_batch/user/task_0")
    put(tmp_path, f"{scope}/job_7/step_batch/user/task_0/container", 11, 12)
    put(tmp_path, f"{scope}/job_7/step_extern/user/task_special", 13)
    assert list(find_steps(str(tmp_path))) == [
        StepCgroup("", 7, "batch", {0: frozenset({11, 12})}, NOBODY),
        StepCgroup("", 7, "extern", {0: frozenset({13})}, NOBODY),
    ]


def test_suspended_steps_are_frozen(tmp_path: Path) -> None:
    """Version 1 says so in the freezer, version 2 in the group above the tasks."""
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
        found = {step.job: step.is_frozen for step in find_steps(str(tmp_path))}
        assert found == {1: is_frozen, 2: is_frozen}


def test_several_slurmds_on_a_machine_are_several_nodes(tmp_path: Path) -> None:
    """The same job may run on both."""
    put(tmp_path, "unified/system.slice/c2_slurmstepd.scope/job_7/step_0/user/task_1", 21)
    put(tmp_path, "unified/system.slice/c1_slurmstepd.scope/job_7/step_0/user/task_0", 20)
    assert [(found.node, found.tasks) for found in find_steps(str(tmp_path))] == [
        ("c1", {0: frozenset({20})}),
        ("c2", {1: frozenset({21})}),
    ]


def test_what_is_not_slurms_is_left_out(tmp_path: Path) -> None:
    """Names of other shapes, processes of other namespaces, and a machine without any groups."""
    assert not list(find_steps(str(tmp_path)))
    put(tmp_path, "memory/slurm/uid_x/job_1/step_0/task_0", 1)
    put(tmp_path, "memory/slurm/uid_1/job_x/step_0/task_0", 1)
    put(tmp_path, "memory/slurm/uid_1/job_1/step_x/task_0", 1)
    put(tmp_path, "memory/user.slice/uid_1/job_1/step_0/task_0", 1)
    assert not list(find_steps(str(tmp_path)))
    put(tmp_path, "memory/slurm/uid_1/job_1/step_0/task_x", 1)
    put(tmp_path, "memory/slurm/uid_1/job_1/step_0/task_0", 0, 5)
    assert list(find_steps(str(tmp_path))) == [StepCgroup("", 1, "0", {0: frozenset({5})}, NOBODY)]
