"""Files of one process, names of users, containers, and the use of processors between walks."""

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.node.collectors.sonar.process import (
    TICKS,
    CpuUse,
    Data,
    MemoryUse,
    ProcessFiles,
    Users,
    in_containers,
)
from ccpipe.node.linux.process_table import Process, ProcessScan
from tests.node.conftest import Root, unpack


def files(root: Path | Root, **options: bool) -> ProcessFiles:
    return ProcessFiles(root=str(root), **options)


def made(directory: Path, **contents: str) -> Path:
    blocks = "".join(f"## /proc/7/{name}\n{text}" for name, text in contents.items())
    return unpack(f"@ first\n{blocks}@ second\n", directory)


def test_memory_is_private_memory_and_data_with_stack(root: Root) -> None:
    """RssAnon, and VmData with VmStk; threads of the kernel have none."""
    root.show("sonar/first")
    assert files(root).memory(1001) == MemoryUse(500_000, 600_132)
    assert files(root).memory(20) == MemoryUse(0, 0)
    assert files(root).memory(9999) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_owner_is_effective_user_of_process() -> None:
    """Also of one that may not be traced, whose files belong to root."""
    child = (
        "import ctypes, os, sys; os.setresuid(65534, 65533, 65534)\n"
        "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(); sys.stdout.flush(); sys.stdin.read()"
    )
    command = [sys.executable, "-c", child]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert Path(f"/proc/{process.pid}/stat").stat().st_uid == 0
        assert files(Path("/")).owner(process.pid) == 65533
        process.communicate()
    assert files(Path("/")).owner(process.pid) is None


def test_pss_is_reported_if_readable(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    rollup = "0-1 ---p 0 00:00 0  [rollup]\nRss:      9 kB\nPss:      6 kB\nPss_Dirty: 1 kB\n"
    made(tmp_path, statm="500 90 40 1 0 100 0\n")
    assert files(tmp_path, pss=True).memory(7) == MemoryUse(50 * page, 100 * page)
    made(tmp_path, smaps_rollup=rollup)
    assert files(tmp_path, pss=True).memory(7) == MemoryUse(6, 100 * page)
    assert files(tmp_path).memory(7) == MemoryUse(50 * page, 100 * page)


def test_data_covers_all_calls_rounded_up(root: Root) -> None:
    root.show("sonar/first")
    assert files(root).data(1000) == Data(1, 2, 0)
    assert files(root).data(1001) == Data(9766, 1954, 3)
    assert files(root).data(1003) == Data(0, 0, 0)
    assert files(root).data(2003) == Data(0, 0, 0)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("statm", "1 2 3\n", "7/statm: 3 counters, not 6"),
        ("statm", "1 2 3 4 0 -5 0\n", "7/statm: '-5' is not a counter"),
        ("statm", f"1 {2**63} 3 4 0 5 0\n", "7/statm: .* pages are more than an address space"),
        ("io", "rchar: 5\nwchar: x\n", "7/io: .* is not a process's I/O counters"),
    ],
)
def test_process_files_reject_invalid_file(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    """Content that the kernel never writes raises DataError that names the file."""
    made(tmp_path, **{name: text})
    with pytest.raises(DataError, match=reason):
        files(tmp_path).memory(7) if name == "statm" else files(tmp_path).data(7)


def test_process_files_agree_with_psutil() -> None:
    mine, me = psutil.Process(), os.getpid()
    before = mine.io_counters()
    owner, memory = files(Path("/")).owner(me), files(Path("/")).memory(me) or MemoryUse()
    data = files(Path("/")).data(me)
    after, usage = mine.io_counters(), mine.memory_info()
    assert owner == mine.uids().effective
    anonymous = (usage.rss - usage.shared) / 1024
    assert memory.resident == pytest.approx(anonymous, rel=0.2)
    assert memory.virtual == pytest.approx(usage.data / 1024, rel=0.2)
    assert before.read_chars <= data.read * 1024 <= after.read_chars + 1024
    assert before.write_chars <= data.written * 1024 <= after.write_chars + 1024


def test_users_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown users are named by number, and looked up again at the next sample."""
    users, root = Users(), pwd.getpwuid(0)
    assert users.name(0) == root.pw_name
    assert users.name(61234) == "_user_61234"
    monkeypatch.setattr(pwd, "getpwuid", lambda number: root)
    assert users.name(61234) == "_user_61234"
    users.refresh()
    assert users.name(61234) == root.pw_name


def process(pid: int, ppid: int, name: str = "a", **more: Any) -> Process:
    return Process(pid, name, "S", ppid, pid, 0, 0, 1, 10)._replace(**more)


def test_containers_are_descendants_of_runtimes() -> None:
    """Not the runtime itself, nor a process of its name that is not a child of process 1."""
    table = [
        process(2, 1, "containerd-shim"), process(3, 2), process(4, 3),
        process(5, 1, "conmon"), process(6, 5),
        process(7, 1, "dockerd"), process(8, 7, "containerd"), process(9, 8),
    ]  # fmt: skip
    assert in_containers(table) == {3, 4, 6}
    assert in_containers([process(2, 3, "containerd"), process(3, 2)]) == set()


def walk(seconds: float, *processes: Process) -> ProcessScan:
    return ProcessScan(list(processes), [], seconds)


def test_cpu_use_covers_time_between_walks() -> None:
    """100 percent is one processor; a new process has used all of its time since."""
    use = CpuUse()
    assert use.since(walk(50, process(1, 0, own=5))) == {}
    new = process(2, 1, own=TICKS, reaped=2 * TICKS)
    assert use.since(walk(60, process(1, 0, own=5 + 5 * TICKS), new)) == {1: 50, 2: 30}


def test_cpu_use_distinguishes_reused_pid() -> None:
    use = CpuUse()
    use.since(walk(0, process(1, 0, own=100)))
    assert use.since(walk(10, process(1, 0, own=5 * TICKS, start=11))) == {1: 50}


def test_cpu_use_subtracts_reported_time_of_ended_children() -> None:
    """Also of a child's ended children; one never seen counts in full."""
    use = CpuUse()
    use.since(
        walk(
            0,
            process(1, 0),
            process(2, 1, own=300 * TICKS, reaped=100 * TICKS),
            process(3, 2, own=50 * TICKS),
        )
    )
    reported = use.since(walk(100, process(1, 0, reaped=(300 + 100 + 50 + 60) * TICKS)))
    assert reported == {1: 60}
    assert use.since(walk(200, process(1, 0, reaped=(510 + 30) * TICKS))) == {1: 30}


def test_cpu_use_is_never_negative() -> None:
    """Neither if a counter decreased, nor if a child was not waited for."""
    use = CpuUse()
    use.since(walk(0, process(1, 0, own=500), process(2, 1, own=900)))
    assert use.since(walk(10, process(1, 0, own=400))) == {1: 0}


def test_cpu_use_is_empty_for_simultaneous_walks() -> None:
    use = CpuUse()
    use.since(walk(5, process(1, 0)))
    assert use.since(walk(5, process(1, 0))) == {}


TABLES = st.lists(
    st.builds(
        process,
        pid=st.integers(1, 6),
        ppid=st.integers(0, 6),
        own=st.integers(0, 1000),
        reaped=st.integers(0, 1000),
        start=st.integers(0, 2),
    ),
    unique_by=lambda process: process.pid,
)


@given(st.lists(TABLES, max_size=5))
def test_cpu_use_covers_each_process_of_any_tables(tables: list[list[Process]]) -> None:
    """In any process tree: no endless loop, nothing negative, no other processes."""
    use = CpuUse()
    for number, table in enumerate(tables):
        reported = use.since(walk(number, *table))
        assert set(reported) == {process.pid for process in table if number}
        assert all(percent >= 0 for percent in reported.values())


def test_cpu_use_of_short_children_adds_up_to_their_time() -> None:
    """A shell that starts one child after the other: each second of work counts once."""
    use, total = CpuUse(), 0.0
    use.since(walk(0, process(1, 0)))
    for second in range(10, 101, 10):  # children of 4 s each: some are seen, some are not
        child = process(second, 1, own=second % 4 * TICKS, start=second)
        shell = process(1, 0, reaped=(second - second % 4) * TICKS)
        total += sum(use.since(walk(second, shell, child)).values()) * 10 / 100
    assert total == pytest.approx(100)
