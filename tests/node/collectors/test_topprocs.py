"""The busiest processes, in a tree and on this machine."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Publish, Site
from ccpipe.errors import ConfigError
from ccpipe.node.agent.parts import AgentParts
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.topprocs import TopProcesses
from ccpipe.telemetry import Telemetry
from tests.node.conftest import Reported, Root, reported

STAT = "{pid} ({name}) S 1 {pid} {pid} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 14 4096 1 1\n"


def names(values: Reported) -> list[str]:
    return [str(values[f"topproc{place}", ""]) for place in range(1, len(values) + 1)]


def put(root: Path, **ticks: int) -> None:
    """Write a process table of names and their CPU time so far."""
    for pid, (name, value) in enumerate(ticks.items(), 10):
        path = root / f"proc/{pid}/stat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAT.format(pid=pid, name=name, ticks=value))


def test_topprocs_orders_by_cpu_time_since_the_last_sample(root: Root) -> None:
    """Not since the start; the first sample is empty, and a new process counts in full."""
    first, second = root.twice(TopProcesses(root=str(root)), "topprocs")
    assert first == {}
    ranks = ["rank (a) b", "rank (a) b"]
    assert names(second) == [*ranks, "kworker/0:1H-kblockd", "task-00", "task-01"]


def test_topprocs_omits_processes_without_cpu_time(tmp_path: Path) -> None:
    collector = TopProcesses(root=str(tmp_path))
    put(tmp_path, a=5, b=5, c=5)
    list(collector.collect(1))
    put(tmp_path, a=5, b=6, c=8)
    assert names(reported(collector.collect(2))) == ["c", "b"]
    assert list(collector.collect(3)) == []


def test_topprocs_breaks_ties_by_process_number(tmp_path: Path) -> None:
    collector = TopProcesses(root=str(tmp_path), num_procs=2)
    put(tmp_path, c=0, b=0, a=0)
    list(collector.collect(1))
    put(tmp_path, c=3, b=3, a=3)
    assert names(reported(collector.collect(2))) == ["c", "b"]


def test_topprocs_escapes_control_characters_of_a_name(tmp_path: Path) -> None:
    """Any process may choose its name; others read it on a terminal."""
    collector = TopProcesses(root=str(tmp_path))
    put(tmp_path, **{"\x1b[2J\nx": 1})
    list(collector.collect(1))
    put(tmp_path, **{"\x1b[2J\nx": 2})
    assert names(reported(collector.collect(2))) == ["%1B%5B2J%0Ax"]


def test_topprocs_skips_process_with_bad_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = TopProcesses(root=str(tmp_path))
    put(tmp_path, a=5, b=5, c=5)
    list(collector.collect(1))
    put(tmp_path, a=9, b=8, c=7)
    (tmp_path / "proc/10/stat").write_text("10 (a) S 1\n")
    assert names(reported(collector.collect(2))) == ["b", "c"]
    assert collector.soft.count == 1
    assert "10/stat: b'10 (a) S 1\\n' is not a process" in caplog.text


@pytest.mark.parametrize("number", [0, 21, -1])
def test_topprocs_rejects_a_number_outside_its_range(number: int) -> None:
    with pytest.raises(ConfigError, match=f"num_procs: expected 1 to 20, got {number}"):
        parts_of(topprocs={"enabled": True, "num_procs": number})


def parts_of(before: AgentParts | None = None, **collectors: dict[str, Any]) -> AgentParts:
    return AgentParts.of(Site(publish=Publish(collectors=collectors)), None, Telemetry(), before)


def test_topprocs_is_disabled_unless_enabled() -> None:
    """Its values are strings; a table of options alone does not enable it."""
    assert "topprocs" not in parts_of().collectors
    assert "topprocs" not in parts_of(topprocs={"num_procs": 3}).collectors
    assert "topprocs" in parts_of(topprocs={"enabled": True}).collectors


def test_topprocs_shares_walk_of_collector_processes() -> None:
    """Also after a reload that creates one of them anew."""
    enabled: dict[str, Any] = {"topprocs": {"enabled": True}}
    first = parts_of(**enabled)
    second = parts_of(first, **enabled, processes={"root": "/."})
    assert second.collectors["topprocs"] is first.collectors["topprocs"]
    assert second.collectors["processes"] is not first.collectors["processes"]
    for made in (second, parts_of(**enabled)):
        states, top = made.collectors["processes"], made.collectors["topprocs"]
        assert isinstance(states, Processes)
        assert isinstance(top, TopProcesses)
        assert top.table is states.table


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[str]:
    """Run a program that computes, under a name of its own; give its name."""
    program = tmp_path / f"busy{os.getpid()}"
    program.symlink_to("/bin/sh")
    with subprocess.Popen([program, "-c", "while :; do :; done"]) as process:
        yield program.name
        process.kill()


def test_topprocs_finds_busy_process_of_this_machine(busy: str) -> None:
    collector = TopProcesses(num_procs=20)
    list(collector.collect(0))
    deadline = time.monotonic() + 120
    for slot in range(1, 1000):
        time.sleep(0.3)
        values = reported(collector.collect(slot))
        if busy in names(values):
            return
        assert time.monotonic() < deadline, values
