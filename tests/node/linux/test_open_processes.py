"""Walks over processes whose files stay open."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.node.linux.open_processes import OpenProcesses
from ccpipe.node.linux.process_table import ProcessTable

MINE = os.getpid()


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
def test_a_walk_is_that_of_the_process_table(limit: int | None) -> None:
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
def test_a_process_is_the_same_object_and_its_line_is_read_anew(
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
def test_a_process_that_ended_is_not_there(
    sleeper: "subprocess.Popen[bytes]", limit: int | None
) -> None:
    """What it read and wrote is unknown then, and its files are closed."""
    with OpenProcesses(limit=limit) as processes:
        one = processes.walk()[sleeper.pid]
        assert processes.transferred(one) is not None
        sleeper.kill()
        sleeper.wait()
        assert processes.transferred(one) is None
        assert sleeper.pid not in processes.walk()


def test_the_same_number_is_another_process(tmp_path: Path) -> None:
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


def test_files_are_closed_with_their_processes_and_their_holder(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    """Also where nobody calls ``close()``: thousands may be open."""
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


def test_the_limit_of_open_files_holds() -> None:
    before = open_files()
    with OpenProcesses(limit=3) as processes:
        for _ in range(2):
            found = processes.walk()
            assert processes.transferred(found[MINE])
            assert open_files() <= before + 3
        del found
    assert open_files() == before


@given(st.binary(max_size=300))
def test_any_bytes_are_a_process_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "proc/9").mkdir(parents=True)
    (folder / "proc/9/stat").write_bytes(text)
    (folder / "proc/9/io").write_bytes(text)
    processes = OpenProcesses(root=str(folder))
    for one in processes.walk().values():
        processes.transferred(one)
    processes.walk()


def test_a_system_without_proc_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenProcesses(root=str(tmp_path)).walk()
