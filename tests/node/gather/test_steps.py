"""Finding and measuring the steps that Slurm runs on this node."""

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ccpipe.node.gather.jobacct import TaskPoller
from ccpipe.node.gather.jobacct.poller import TaskSample
from ccpipe.node.gather.steps import RunningStep, StepFinder, StepGather, StepKey
from tests.node.cgroups import put, unpack_snapshot

FREEZER = "freezer/slurm_c1/uid_0/job_9/step_0"

Spawn = Callable[[int], "subprocess.Popen[bytes]"]


def process(root: Path, pid: int, **environment: object) -> None:
    directory = root / f"proc/{pid}"
    directory.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name}={value}\0" for name, value in environment.items())
    (directory / "environ").write_bytes(text.encode())


def test_finder_finds_recorded_step(tmp_path: Path) -> None:
    """From the recorded groups of a real task, whose process has ended."""
    unpack_snapshot(tmp_path)
    ((key, found),) = StepFinder("n1", root=str(tmp_path)).find().items()
    assert key == StepKey("c3", 51, "0")
    assert found.tasks == {0: frozenset({4673})}
    assert (found.step.node, found.step.node_index, found.step.tasks) == ("c3", 0, 1)


def test_step_is_described_by_its_first_process(tmp_path: Path) -> None:
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
def test_finder_ignores_invalid_environment(tmp_path: Path, bad: str) -> None:
    """Programs may set Slurm's variables to anything; invalid numbers are ignored."""
    put(tmp_path, FREEZER, 40)
    process(
        tmp_path, 40, SLURM_PROCID=bad, SLURM_NODEID=bad, SLURM_STEP_TASKS_PER_NODE=bad,
        SLURM_CPUS_PER_TASK=bad, SLURMD_NODENAME="../../etc",
    )  # fmt: skip
    ((_, found),) = StepFinder("n1", root=str(tmp_path)).find().items()
    assert found.tasks == {0: frozenset({40})}
    assert found.step.node == "c1"
    assert (found.step.node_index, found.step.cpus_per_task) == (0, 1)


def test_finder_uses_environment_when_groups_lack_tasks(tmp_path: Path) -> None:
    """It is read once; without it a process counts for task 0."""
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


def test_finder_prefers_groups_of_tasks(tmp_path: Path) -> None:
    """The freezer lists the same processes again, and one that has just been forked."""
    put(tmp_path, FREEZER, 40, 41)
    put(tmp_path, f"{FREEZER.replace('freezer', 'memory')}/task_5", 40)
    process(tmp_path, 40, SLURM_PROCID=0)
    process(tmp_path, 41, SLURM_PROCID=5)
    found = StepFinder("n1", root=str(tmp_path)).find()
    assert found[StepKey("c1", 9, "0")].tasks == {5: frozenset({40, 41})}


def test_step_without_processes_is_ignored(tmp_path: Path) -> None:
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
def test_step_is_suspended_when_all_processes_are_stopped(
    tmp_path: Path, states: str, is_suspended: bool
) -> None:
    """Without a freezer Slurm sends SIGSTOP; a debugger stops single processes."""
    put(tmp_path, FREEZER, 50, 51)
    for pid, state in zip((50, 51), states, strict=True):
        process(tmp_path, pid)
        line = f"{pid} (sh) {state} 1 {'0 ' * 48}0\n"
        (tmp_path / f"proc/{pid}/stat").write_text(line)
    ((_, found),) = StepFinder("n1", root=str(tmp_path)).find().items()
    assert found.is_suspended == is_suspended


STEP = "memory/slurm_c1/uid_0/job_9/step_0"
CODE = "held = bytearray(b'x') * ({} * 2**20); print(flush=True); import time; time.sleep(60)"


class Node:
    """A node with control groups in a directory, and the reports about its steps."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").symlink_to("/proc")
        self.started: list[RunningStep] = []
        self.samples: list[TaskSample] = []
        self.ended: list[RunningStep] = []
        self.gather = StepGather(
            StepFinder("n1", root=str(root)),
            lambda on_poll: TaskPoller(on_poll=on_poll),
            on_start=self.started.append,
            on_samples=lambda _, samples: self.samples.extend(samples),
            on_end=self.ended.append,
        )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    found.gather.close()


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def start(mebibytes: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", CODE.format(mebibytes)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def test_gather_measures_step_until_its_last_process(node: Node, spawn: Spawn) -> None:
    """Tasks begin and end independently; the record covers all of them."""
    node.gather.scan()
    assert not node.started
    small, large = spawn(5), spawn(40)
    put(node.root, f"{STEP}/task_0", small.pid)
    node.gather.scan()
    put(node.root, f"{STEP}/task_1", large.pid)
    node.gather.scan()
    (running,) = node.started
    assert running.tasks == {0: small.pid, 1: large.pid}
    assert running.step.node == "c1"
    assert {sample.id.task for sample in node.samples} == {0, 1}
    assert running.seconds > 0
    put(node.root, f"{STEP}/task_0")
    end(small)
    node.gather.scan()
    assert not node.ended
    assert running.record.tasks == 1
    put(node.root, f"{STEP}/task_1")
    end(large)
    node.gather.scan()
    assert node.ended == [running]
    assert running.record.tasks == 2
    memory = running.record.usage_in["mem"]
    assert memory.max_id.task == 1
    assert (memory.max or 0) > 40 * 2**20 > (memory.min or 0)


def test_process_of_other_parent_counts_for_its_group(node: Node, spawn: Spawn) -> None:
    """As after a double fork: its ancestors do not lead to the task."""
    first, other = spawn(5), spawn(30)
    put(node.root, f"{STEP}/task_0", first.pid, other.pid)
    node.gather.scan()
    assert (node.samples[-1].values["RSS"] or 0) > 35 * 1024
    assert next(iter(node.gather.steps.values())).tasks == {0: first.pid}


def test_steps_of_several_jobs_are_separated(node: Node, spawn: Spawn) -> None:
    of_step: dict[str, set[int | None]] = {}

    def take(running: RunningStep, samples: list[TaskSample]) -> None:
        name = f"{running.step.job}.{running.step.step}"
        of_step.setdefault(name, set()).update(sample.id.task for sample in samples)

    gather = StepGather(
        StepFinder("n1", root=str(node.root)),
        lambda on_poll: TaskPoller(on_poll=on_poll),
        on_start=lambda _: None,
        on_samples=take,
        on_end=lambda _: None,
    )
    put(node.root, f"{STEP}/task_4", spawn(1).pid)
    put(node.root, f"{STEP.replace('step_0', 'step_batch')}/task_0", spawn(1).pid)
    put(node.root, f"{STEP.replace('job_9', 'job_10')}/task_2", spawn(1).pid)
    gather.scan()
    gather.poll()
    assert of_step == {"9.0": {4}, "9.batch": {0}, "10.0": {2}}
    gather.close()


def test_group_with_ended_process_is_ignored(node: Node) -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    put(node.root, f"{STEP}/task_0", process.pid)
    node.gather.scan()
    put(node.root, f"{STEP}/task_0", process.pid, os.getpid())
    node.gather.scan()
    put(node.root, f"{STEP}/task_0")
    node.gather.scan()
    (running,) = node.ended
    assert running.record.tasks == 1


def test_suspended_step_is_not_sampled(node: Node, spawn: Spawn) -> None:
    """Between the scan that finds it frozen and the one that does not; this time does not count."""
    other = STEP.replace("job_9", "job_10")
    put(node.root, f"{STEP}/task_0", spawn(1).pid)
    put(node.root, f"{other}/task_1", spawn(1).pid)
    freezer = STEP.replace("memory", "freezer")
    put(node.root, freezer)
    state = node.root / "sys/fs/cgroup" / freezer / "freezer.state"
    node.gather.scan()
    running = next(one for one in node.gather.steps.values() if one.step.job == 9)
    state.write_text("FROZEN\n")
    node.gather.scan()
    node.samples.clear()
    seconds = running.seconds
    node.gather.poll()
    node.gather.scan()
    assert {sample.id.task for sample in node.samples} == {1}
    assert running.seconds == seconds
    state.write_text("THAWED\n")
    node.gather.scan()
    node.gather.poll()
    assert {sample.id.task for sample in node.samples} == {0, 1}
    assert running.suspended > 0
    assert running.suspended_since is None
