"""Process trees of tasks: real ones, and captured tables of rare cases."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ccpipe.errors import DataError
from ccpipe.node.gather.jobacct.task_usage import CgroupUsage, Frequencies, ProcessTree, TaskCgroup
from tests.node.cgroups import unpack_snapshot
from tests.node.gather.jobacct.conftest import Table

TICK = 1 / os.sysconf("SC_CLK_TCK")

BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def spawn() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.communicate()


def test_task_includes_all_descendants(table: Table) -> None:
    for pid, ppid in ((1, 0), (10, 1), (11, 10), (12, 11), (20, 1), (21, 20)):
        table.put(pid, ppid, own=pid, rss=1)
    usage = table.tree().poll([10, 20])
    assert set(usage[10].pids) == {10, 11, 12}
    assert set(usage[20].pids) == {20, 21}
    assert usage[10].user == round((10 + 11 + 12) * TICK * 1000)
    assert usage[10].resident == 3 * os.sysconf("SC_PAGE_SIZE")


def test_reaped_child_counts_once(table: Table) -> None:
    tree = table.tree()
    table.put(10, 1, own=5)
    table.put(11, 10, own=100)
    assert tree.poll([10])[10].user == round(105 * TICK * 1000)
    table.drop(11)
    table.put(10, 1, own=6, reaped=102)
    assert tree.poll([10])[10].user == round(108 * TICK * 1000)


def test_child_that_was_not_reaped_stays_counted(table: Table) -> None:
    """The parent ignores SIGCHLD, or ended before its child."""
    tree = table.tree()
    table.put(10, 1, own=5, read=100)
    table.put(11, 10, own=100, read=1000)
    tree.poll([10])
    table.drop(11)
    for _ in range(2):
        usage = tree.poll([10])[10]
        assert usage.user == round(105 * TICK * 1000)
        assert usage.io == (1100, 1100)


def test_generations_that_end_between_polls_stay_counted(table: Table) -> None:
    """The child's time is added to the parent, and both to the grandparent."""
    tree = table.tree()
    table.put(10, 1, own=1)
    table.put(11, 10, own=20)
    table.put(12, 11, own=300)
    tree.poll([10])
    table.drop(11)
    table.drop(12)
    table.put(10, 1, own=1, reaped=320)
    assert tree.poll([10])[10].user == round(321 * TICK * 1000)


def test_process_stays_in_task_when_parent_ends(table: Table) -> None:
    """Its parent is then init; Slurm loses it."""
    tree = table.tree()
    table.put(1, 0)
    table.put(10, 1, own=1)
    table.put(11, 10, own=2)
    table.put(12, 11, own=30)
    tree.poll([10])
    table.drop(11)
    table.put(10, 1, own=1, reaped=2)
    table.put(12, 1, own=40)
    usage = tree.poll([10])[10]
    assert usage.user == round(43 * TICK * 1000)
    assert set(usage.pids) == {10, 12}


def test_reused_pid_is_another_process(table: Table) -> None:
    tree = table.tree()
    table.put(10, 1, own=5)
    table.put(11, 10, own=7)
    tree.poll([10])
    table.put(11, 1, start=99, own=5000)
    assert tree.poll([10])[10].user == round(12 * TICK * 1000)
    table.put(10, 1, start=99, own=9000)
    assert 10 not in tree.poll([10])


def test_task_continues_without_its_first_process(table: Table) -> None:
    """Its time stays counted, and its children still belong to the task."""
    tree = table.tree()
    table.put(10, 1, own=50)
    table.put(11, 10, own=7)
    tree.poll([10])
    table.drop(10)
    table.put(11, 1, own=9)
    assert tree.poll([10])[10].user == round(59 * TICK * 1000)


def test_unreadable_io_is_unknown(table: Table) -> None:
    """A process of another user has a ``stat`` and no ``io``."""
    table.put(10, 1, own=5)
    assert table.tree().poll([10])[10].io is None
    table.put(11, 10, read=5)
    assert table.tree().poll([10])[10].io == (5, 5)


def test_cycle_of_parents_is_detected(table: Table) -> None:
    table.put(30, 31)
    table.put(31, 30)
    table.put(32, 32)
    table.put(10, 1)
    assert table.tree().poll([10])[10].pids == (10,)


def test_ten_thousand_processes_lose_no_task(table: Table) -> None:
    for task in range(100):
        table.put(1000 + task, 1, own=task)
    for child in range(9900):
        table.put(2000 + child, 1000 + child % 100, own=1)
    (table.root / "proc/2500/stat").write_text("broken")
    (table.root / "proc/2501/stat").unlink()
    usage = table.tree().poll(range(1000, 1100))
    assert len(usage) == 100
    assert sum(len(one.pids) for one in usage.values()) == 9998


def test_short_lived_processes_are_counted(
    spawn: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    """200 of them between two polls: the kernel adds them to their parent."""
    code = (
        "import os, sys, time\n"
        "for _ in range(200):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        while time.process_time() < 0.002: pass\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "print('done', flush=True)\n"
        "sys.stdin.read()\ntime.sleep(60)\n"
    )
    process = spawn(code)
    tree = ProcessTree()
    tree.poll([process.pid])
    assert process.stdout is not None
    process.stdout.readline()
    usage = tree.poll([process.pid])[process.pid]
    times = psutil.Process(process.pid).cpu_times()
    theirs = times.user + times.system + times.children_user + times.children_system
    assert times.children_user + times.children_system > 0.2
    assert (usage.user + usage.system) / 1000 == pytest.approx(theirs, abs=0.1)


def test_usage_equals_psutil(spawn: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    """Memory, addresses and bytes of a real tree, through fork and exec."""
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {BURN.format(seconds=0.3)!r}"
        " + 'x = bytearray(30_000_000); print(1, flush=True); time.sleep(60)'])\n"
        "time.sleep(60)\n"
    )
    process = spawn(code)
    assert process.stdout is not None
    process.stdout.readline()
    usage = ProcessTree().poll([process.pid])[process.pid]
    root = psutil.Process(process.pid)
    members = [root, *root.children(recursive=True)]
    assert set(usage.pids) == {member.pid for member in members}
    infos = [member.memory_info() for member in members]
    assert usage.resident == pytest.approx(sum(info.rss for info in infos), rel=0.02)
    assert usage.virtual == sum(info.vms for info in infos)
    assert usage.io is not None
    assert usage.io[0] == sum(member.io_counters()[4] for member in members)
    assert (usage.user + usage.system) / 1000 >= 0.25


def test_pss_counts_shared_memory_once(
    spawn: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    """Three processes share 40 MB."""
    code = (
        "import os, sys, time\n"
        "x = bytearray(b'1') * 40_000_000\n"
        "for _ in range(2):\n"
        "    if not os.fork():\n"
        "        time.sleep(60)\n"
        "print(1, flush=True); time.sleep(60)\n"
    )
    process = spawn(code)
    assert process.stdout is not None
    process.stdout.readline()
    pid = process.pid
    plain, pss = (
        tree.poll([pid])[pid].resident for tree in (ProcessTree(), ProcessTree(use_pss=True))
    )
    assert plain > 120e6
    assert 40e6 < pss < 80e6
    assert pss < plain


def test_poll_survives_vanishing_processes() -> None:
    """A poll in the middle of a burst of forks raises nothing and keeps the task."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "while True:\n"
        "    if not os.fork():\n"
        "        os._exit(0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    tree, last = ProcessTree(), -1
    try:
        for _ in range(40):
            usage = tree.poll([process.pid])[process.pid]
            assert usage.user + usage.system >= last
            last = usage.user + usage.system
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_frequency_is_of_processor_that_ran_task(table: Table) -> None:
    """Weighted by the time between two polls; known before any time was used."""
    (table.root / "proc/cpuinfo").write_text("processor : 0\ncpu MHz : 2000\n")
    tree = table.tree()
    table.put(10, 1, own=0)
    usage = tree.poll([10])[10]
    assert (usage.weighed, tree.frequency(10)) == (0, 2_000_000)
    table.put(10, 1, own=50)
    usage = tree.poll([10])[10]
    assert usage.weighed == round(50 * TICK * 1000)
    assert usage.weighted_frequency == usage.weighed * 2_000_000
    assert tree.frequency(11) is None


def test_frequencies_prefer_cpufreq_and_convert_cpuinfo_to_kilohertz(tmp_path: Path) -> None:
    """A refresh reads again."""
    directory = tmp_path / "sys/devices/system/cpu/cpu1/cpufreq"
    directory.mkdir(parents=True)
    (directory / "scaling_cur_freq").write_text("1800000\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\ncpu MHz\t\t: 2596.120\n\nprocessor\t: 3\ncpu MHz\t\t: 3000\n"
    )
    found = Frequencies(str(tmp_path))
    assert found.of(1) == 1_800_000
    assert found.of(0) == 2_596_120
    assert found.of(3) == 3_000_000
    assert found.of(7) == 0
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\ncpu MHz : 1000.5\n")
    assert found.of(0) == 2_596_120
    found.refresh()
    assert found.of(0) == 1_000_500


def test_frequency_is_0_when_not_reported(tmp_path: Path) -> None:
    """Such as on ARM without cpufreq."""
    assert Frequencies(str(tmp_path)).of(0) == 0


V1 = "slurm_c3/uid_2001/job_51/step_0/task_0"
V2 = "system.slice/slurmstepd.scope/job_51/step_0/user/task_0"


def _version_2(root: Path, directory: str = V2) -> Path:
    path = root / "sys/fs/cgroup" / directory
    path.mkdir(parents=True)
    (path / "cpu.stat").write_text("usage_usec 7000\nuser_usec 4500999\nsystem_usec 2500\n")
    (path / "memory.current").write_text("1000000\n")
    (path / "memory.peak").write_text("3000000\n")
    (path / "memory.stat").write_text(
        "anon 5\nactive_file 200000\ninactive_file 100000\npgmajfault 7\n"
    )
    (root / "proc/77").mkdir(parents=True)
    (root / "proc/77/cgroup").write_text(f"0::/{directory}\n")
    return path


def test_cgroup_version_1_as_slurm_made_it(tmp_path: Path) -> None:
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


def test_cgroup_version_2_is_read(tmp_path: Path) -> None:
    _version_2(tmp_path)
    group = TaskCgroup.of(77, root=str(tmp_path))
    assert group is not None
    assert group.read() == CgroupUsage(4500, 2, 1_000_000, 3_000_000, None, 7)


def test_cgroup_of_more_than_task_is_ignored(tmp_path: Path) -> None:
    _version_2(tmp_path, "user.slice/user-1000.slice/session-1.scope")
    assert TaskCgroup.of(77, root=str(tmp_path)) is None
    assert TaskCgroup.of(78, root=str(tmp_path)) is None


def test_cgroup_returns_none_when_missing_and_raises_for_invalid_file(tmp_path: Path) -> None:
    """The task ended, or the file is not the kernel's."""
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
