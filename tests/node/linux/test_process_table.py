"""Processes, in captured trees and on this machine; walks whose files stay open."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.node.linux.process_table import (
    OpenProcesses,
    ProcessScan,
    ProcessTable,
    parse_transferred,
    proportional,
    read,
    read_environment,
    start_time,
)
from tests.node.conftest import Root, unpack

MINE = os.getpid()


def test_process_table_reads_fields_of_stat(root: Root) -> None:
    """Times are sums of user and system; a name may contain brackets and blanks."""
    root.show("sonar/first")
    walk = ProcessTable(root=str(root)).at(0)
    by_pid = {process.pid: process for process in walk.processes}
    rank = by_pid[1001]
    assert rank[1:9] == ("rank (a) b", "R", 1000, 1000, 35000, 0, 4, 20000)
    assert by_pid[1].reaped == 1500
    assert by_pid[20][1:5] == ("kworker/0:1H-kblockd", "I", 2, 0)
    assert 4000 not in by_pid
    assert walk.errors == []


def test_process_table_shares_walk_of_slot(root: Root) -> None:
    """All calls with the same slot return the same walk; the next slot has another."""
    root.show("sonar/first")
    table = ProcessTable(root=str(root))
    walk = table.at(1)
    root.show("sonar/second")
    assert table.at(1) is walk
    assert table.at(2) is not walk
    assert 2002 not in {process.pid for process in table.at(2).processes}


def test_process_table_shares_walk_between_threads() -> None:
    table, walks = ProcessTable(), list[ProcessScan]()
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        walks.append(table.at(7))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(walks) == 8
    assert all(walk is walks[0] for walk in walks)


def test_process_table_opens_file_of_process_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another walk takes one system call for each process, and parses what has changed."""
    table = ProcessTable()
    first = {process.pid: process for process in table.at(1).processes}
    opened: list[str] = []
    open_file = os.open

    def counted(path: str, flags: int) -> int:
        opened.append(path)
        return open_file(path, flags)

    monkeypatch.setattr(os, "open", counted)
    second = {process.pid: process for process in table.at(2).processes}
    pids = {int(path.split("/")[2]) for path in opened if path.startswith("/proc/")}
    assert not pids & first.keys() & second.keys()
    shared = first.keys() & second.keys()
    assert sum(first[pid] is second[pid] for pid in shared) > len(shared) / 2


def test_process_table_skips_bad_line_only(tmp_path: Path) -> None:
    good = "8 (b) S 1 8 8 0 -1 4194560 8548 0 0 0 55 6 0 0 20 0 1 0 14 30408704 6308 1"
    unpack(f"@ first\n## /proc/7/stat\n7 (a) R 1\n## /proc/8/stat\n{good}\n@ second\n", tmp_path)
    walk = ProcessTable(root=str(tmp_path)).at(0)
    assert [process.pid for process in walk.processes] == [8]
    [error] = walk.errors
    assert "/proc/7/stat: b'7 (a) R 1" in str(error)


def test_process_table_agrees_with_psutil() -> None:
    """Of this process: name, parent, group, threads, start and processor time."""
    before, threads = psutil.Process().cpu_times(), psutil.Process().num_threads()
    [mine] = [process for process in ProcessTable().at(0).processes if process.pid == MINE]
    after = psutil.Process()
    ticks = os.sysconf("SC_CLK_TCK")
    assert mine.name == after.name()[:15]
    assert (mine.ppid, mine.group) == (os.getppid(), os.getpgrp())
    assert after.num_threads() <= mine.threads <= threads  # those of earlier tests may end
    assert abs(mine.start / ticks - (after.create_time() - psutil.boot_time())) < 1.1
    spent = after.cpu_times()
    assert before.user + before.system - 0.02 <= mine.own / ticks
    assert mine.own / ticks <= spent.user + spent.system + 0.02


@given(st.binary(max_size=300))
def test_parser_returns_process_or_error_for_any_bytes(tmp_path_factory: pytest.TempPathFactory,
                                             text: bytes) -> None:  # fmt: skip
    """Nothing else is raised for any content."""
    directory = tmp_path_factory.mktemp("any")
    (directory / "proc/9").mkdir(parents=True)
    (directory / "proc/9/stat").write_bytes(text)
    walk = ProcessTable(root=str(directory)).at(0)
    assert len(walk.processes) + len(walk.errors) == bool(text)


def test_read_returns_nothing_for_unreadable_file(tmp_path: Path) -> None:
    assert read(str(tmp_path / "gone")) == b""
    assert read(str(tmp_path)) == b""  # a directory opens and fails at the first read


def test_process_memory_and_faults_agree_with_psutil() -> None:
    me = psutil.Process()
    [mine] = [p for p in ProcessTable().at(0).processes if p.pid == MINE]
    assert mine.virtual == pytest.approx(me.memory_info().vms, rel=0.05)
    page = os.sysconf("SC_PAGE_SIZE")
    assert mine.resident * page == pytest.approx(me.memory_info().rss, rel=0.05)
    assert mine.system <= mine.own
    assert 0 <= mine.processor < (os.cpu_count() or 1)


def test_start_time_is_known_while_process_runs() -> None:
    [mine] = [p for p in ProcessTable().at(0).processes if p.pid == MINE]
    assert start_time(MINE) == mine.start / os.sysconf("SC_CLK_TCK")
    assert start_time(2**22 + 1) is None


OWN = f"/proc/{MINE}"


def test_files_of_own_process_are_read() -> None:
    """As the kernel writes them."""
    io = parse_transferred(Path(OWN, "io").read_bytes())
    assert io is not None
    assert io[0] > 0
    resident = int(Path(OWN, "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert 0 < (proportional(OWN) or 0) <= resident * 1.1


def test_proportional_size_ignores_lines_of_its_parts(tmp_path: Path) -> None:
    """Newer kernels list the parts; before Linux 4.14 there is a file of all mappings."""
    (tmp_path / "smaps_rollup").write_text("Rss: 9 kB\nPss:  22 kB\nPss_Dirty: 7 kB\n")
    assert proportional(str(tmp_path)) == 22 * 1024
    (tmp_path / "smaps_rollup").unlink()
    (tmp_path / "smaps").write_text("a-b r\nPss:  2 kB\nc-d r\nPss:  3 kB\n")
    assert proportional(str(tmp_path)) == 5 * 1024


@given(st.binary(max_size=80))
def test_io_parser_returns_numbers_or_none_for_any_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name in ("smaps_rollup", "environ"):
            Path(directory, name).write_bytes(data)
        assert isinstance(proportional(directory), int | None)
        assert isinstance(parse_transferred(data), tuple | None)
        assert isinstance(read_environment(directory), dict)


def test_environment_is_read_as_of_start(tmp_path: Path) -> None:
    assert read_environment(OWN)["PATH"]
    (tmp_path / "environ").write_bytes(b"A=1\0B=x=y\0nothing\0")
    assert read_environment(str(tmp_path)) == {"A": "1", "B": "x=y"}
    assert read_environment(str(tmp_path / "none")) == {}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "60"]) as process:
        while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
            time.sleep(0.001)
        yield process
        process.kill()


@pytest.mark.parametrize("limit", [None, 0])
def test_open_processes_agree_with_process_table(limit: int | None) -> None:
    with OpenProcesses(limit=limit) as processes:
        for _ in range(2):
            found = processes.walk()
            table = {one.pid: one for one in ProcessTable().at(0).processes}
            shared = found.keys() & table.keys()
            assert len(shared) > 0.5 * len(table)
            assert found[MINE].process[:5] == table[MINE][:5]
            assert {pid: found[pid].process.start for pid in shared} == {
                pid: table[pid].start for pid in shared
            }
            assert (processes.transferred(found[MINE]) or (0,))[0] > 0


@pytest.mark.parametrize("limit", [None, 0])
def test_open_process_stays_same_object_with_new_line(
    sleeper: "subprocess.Popen[bytes]", limit: int | None
) -> None:
    with OpenProcesses(limit=limit) as processes:
        first = processes.walk()
        lines = first[MINE].process, first[sleeper.pid].process
        sum(range(3_000_000))
        second = processes.walk()
        assert second[MINE] is first[MINE]
        assert second[MINE].process.own > lines[0].own
        assert second[sleeper.pid].process is lines[1]


@pytest.mark.parametrize("limit", [None, 0])
def test_open_processes_drop_ended_process(
    sleeper: "subprocess.Popen[bytes]", limit: int | None
) -> None:
    """Its I/O counters are then unknown, and its files are closed."""
    with OpenProcesses(limit=limit) as processes:
        one = processes.walk()[sleeper.pid]
        assert processes.transferred(one) is not None
        sleeper.kill()
        sleeper.wait()
        assert processes.transferred(one) is None
        assert sleeper.pid not in processes.walk()


def test_open_processes_distinguish_reused_pid(tmp_path: Path) -> None:
    stat = tmp_path / "proc/7/stat"
    stat.parent.mkdir(parents=True)
    line = "7 (a) R 1 7 7 0 -1 0 0 0 0 0 5 0 0 0 20 0 1 0 {} 4096 1\n"
    processes = OpenProcesses(root=str(tmp_path))
    stat.write_text(line.format(10))
    first = processes.walk()[7]
    stat.write_text(line.format(99))
    second = processes.walk()[7]
    assert second is not first
    assert (first.process.start, second.process.start) == (10, 99)


def test_open_processes_close_files_with_processes_and_walker(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    """Also without a call of ``close()``: thousands may be open."""
    before = open_files()
    processes = OpenProcesses()
    found = processes.walk()
    processes.transferred(found[sleeper.pid])
    opened = open_files()
    assert opened > before + 2
    del found
    sleeper.kill()
    sleeper.wait()
    processes.walk()
    assert open_files() <= opened
    del processes
    assert open_files() == before


def test_open_processes_respect_limit_of_files() -> None:
    before = open_files()
    with OpenProcesses(limit=3) as processes:
        for _ in range(2):
            found = processes.walk()
            assert processes.transferred(found[MINE])
            assert open_files() <= before + 3
        del found
    assert open_files() == before


@given(st.binary(max_size=300))
def test_open_processes_skip_invalid_bytes(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    directory = tmp_path_factory.mktemp("any")
    (directory / "proc/9").mkdir(parents=True)
    (directory / "proc/9/stat").write_bytes(text)
    (directory / "proc/9/io").write_bytes(text)
    processes = OpenProcesses(root=str(directory))
    for one in processes.walk().values():
        processes.transferred(one)
    processes.walk()


def test_open_processes_raise_oserror_without_proc(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenProcesses(root=str(tmp_path)).walk()
