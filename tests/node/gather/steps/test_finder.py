"""Steps and their tasks, from control groups and environments."""

import os
import pwd
from pathlib import Path

import pytest

from ccpipe.node.gather.steps import StepFinder, StepKey
from tests.node.cgroups import put, unpack_snapshot

FREEZER = "freezer/slurm_c1/uid_0/job_9/step_0"


def process(root: Path, pid: int, **environment: object) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name}={value}\0" for name, value in environment.items())
    (folder / "environ").write_bytes(text.encode())


def test_a_step_as_slurmd_left_it(tmp_path: Path) -> None:
    """Of the recorded groups of a real task; its process has ended, which does no harm."""
    unpack_snapshot(tmp_path)
    ((key, found),) = StepFinder("n1", root=str(tmp_path)).find().items()
    assert key == StepKey("c3", 51, "0")
    assert found.tasks == {0: frozenset({4673})}
    assert (found.step.node, found.step.node_index, found.step.tasks) == ("c3", 0, 1)


def test_a_step_is_described_by_its_first_process(tmp_path: Path) -> None:
    put(tmp_path, "system.slice/slurmstepd.scope/job_9/step_0/user/task_6", 30)
    put(tmp_path, "system.slice/slurmstepd.scope/job_9/step_0/user/task_7", 31)
    process(
        tmp_path, 30, SLURM_NODEID=2, SLURM_STEP_TASKS_PER_NODE="3(x2),4", SLURM_CPUS_PER_TASK=8
    )
    ((_, found),) = StepFinder("n1", root=str(tmp_path)).find().items()
    step = found.step
    assert (step.job, step.step, step.node, step.node_index) == (9, "0", "n1", 2)
    assert (step.tasks, step.cpus_per_task) == (4, 8)
    assert (found.uid, step.user) == (os.getuid(), pwd.getpwuid(os.getuid()).pw_name)


@pytest.mark.parametrize("bad", ["", "x", "-1", "²", "9" * 30])
def test_an_environment_may_say_anything(tmp_path: Path, bad: str) -> None:
    """Programs set what they like: what is no number of Slurm's does not count."""
    put(tmp_path, FREEZER, 40)
    process(
        tmp_path, 40, SLURM_PROCID=bad, SLURM_NODEID=bad, SLURM_STEP_TASKS_PER_NODE=bad,
        SLURM_CPUS_PER_TASK=bad, SLURMD_NODENAME="../../etc",
    )  # fmt: skip
    ((_, found),) = StepFinder("n1", root=str(tmp_path)).find().items()
    assert found.tasks == {0: frozenset({40})}
    assert found.step.node == "c1"
    assert (found.step.node_index, found.step.cpus_per_task) == (0, 1)


def test_where_groups_know_no_tasks_environments_do(tmp_path: Path) -> None:
    """They are read once; without one a process counts for task 0."""
    put(tmp_path, FREEZER, 40, 41, 42)
    process(tmp_path, 40, SLURM_PROCID=3)
    process(tmp_path, 41, SLURM_PROCID=4)
    finder = StepFinder("n1", root=str(tmp_path))
    key = StepKey("c1", 9, "0")
    first = {3: frozenset({40}), 4: frozenset({41}), 0: frozenset({42})}
    assert finder.find()[key].tasks == first
    process(tmp_path, 40, SLURM_PROCID=8)
    put(tmp_path, FREEZER, 40)
    assert finder.find()[key].tasks == {3: frozenset({40})}


def test_groups_of_tasks_win(tmp_path: Path) -> None:
    """The freezer lists the same processes again, and one that has just been forked."""
    put(tmp_path, FREEZER, 40, 41)
    put(tmp_path, f"{FREEZER.replace('freezer', 'memory')}/task_5", 40)
    process(tmp_path, 40, SLURM_PROCID=0)
    process(tmp_path, 41, SLURM_PROCID=5)
    found = StepFinder("n1", root=str(tmp_path)).find()
    assert found[StepKey("c1", 9, "0")].tasks == {5: frozenset({40, 41})}


def test_a_step_without_processes_does_not_run(tmp_path: Path) -> None:
    put(tmp_path, FREEZER)
    put(tmp_path, f"{FREEZER.replace('freezer', 'memory')}/task_5")
    finder = StepFinder("n1", root=str(tmp_path))
    assert not finder.find()
    put(tmp_path, FREEZER, 40)
    assert finder.find()
    put(tmp_path, FREEZER)
    assert not finder.find()


@pytest.mark.parametrize(
    ("states", "is_suspended"), [("TT", True), ("TZ", True), ("TS", False), ("ZZ", False)]
)
def test_a_step_whose_processes_are_stopped_is_suspended(
    tmp_path: Path, states: str, is_suspended: bool
) -> None:
    """Where Slurm cannot freeze it, it sends SIGSTOP; a debugger stops single processes."""
    put(tmp_path, FREEZER, 50, 51)
    for pid, state in zip((50, 51), states, strict=True):
        process(tmp_path, pid)
        line = f"{pid} (sh) {state} 1 {'0 ' * 48}0\n"
        (tmp_path / f"proc/{pid}/stat").write_text(line)
    ((_, found),) = StepFinder("n1", root=str(tmp_path)).find().items()
    assert found.is_suspended == is_suspended
