"""``ccpipe step --daemon``; tests/slurm has its tests with a real Slurm."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ccpipe.cli.step.daemon import StepDaemon, own_directory
from ccpipe.errors import UnavailableError
from ccpipe.formats.slurm_profile.hdf5 import ProfileError
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.node.gather.profile import SeriesSelection
from tests.cli.command import ccpipe, command, environment
from tests.node.cgroups import put

STEP = "memory/slurm_c1/uid_0/job_9/step_0"
SECONDS = 0.1


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def series(path: Path) -> set[tuple[str, str | None]]:
    try:
        with open_profile(path) as profile:
            return {(table.series, table.task) for table in profile.tables}
    except (OSError, ProfileError):
        return set()


def test_daemon_writes_report_and_profile_of_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpipe.cli.step.daemon.SCAN_SECONDS", SECONDS)
    (tmp_path / "proc").symlink_to("/proc")
    report, profiles = tmp_path / "report.json", tmp_path / "profiles"
    daemon = StepDaemon(
        "n1",
        dict.fromkeys(("task", "energy", "filesystem", "network"), SECONDS),
        selection=SeriesSelection.ALL,
        directory=profiles,
        report=report,
        root=str(tmp_path),
    )
    stop = threading.Event()
    thread = threading.Thread(target=daemon.run_until, args=(stop,))
    thread.start()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        put(tmp_path, f"{STEP}/task_3", process.pid)
        path = profiles / Path(f"/proc/{process.pid}").owner() / "9_0_c1.h5"
        wait_for(lambda: ("Tasks", "3") in series(path))
        put(tmp_path, f"{STEP}/task_3")
        process.kill()
    wait_for(report.exists)
    stop.set()
    thread.join(30)
    row = json.loads(report.read_text())
    assert (row["JobID"], row["NodeList"], row["MaxRSSTask"]) == ("9.0", "c1", "3")
    assert "State" not in row
    with open_profile(path) as profile:
        assert ("Tasks", "3") in {(table.series, table.task) for table in profile.tables}
        assert not profile.damage


def test_daemon_logs_unwritable_report_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports of steps that end at the same time are not delayed."""
    (tmp_path / "proc").symlink_to("/proc")
    daemon = StepDaemon("n1", {}, report=tmp_path / "nothing" / "report", root=str(tmp_path))
    tasks = [f"{STEP}/task_3", f"{STEP.replace('step_0', 'step_1')}/task_3"]
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as other:
        for task, process in zip(tasks, (one, other), strict=True):
            put(tmp_path, task, process.pid)
        daemon._steps.scan()
        for task, process in zip(tasks, (one, other), strict=True):
            put(tmp_path, task)
            process.kill()
    daemon._steps.scan()
    daemon._steps.close()
    lost = [each.message for each in caplog.records if "is lost" in each.message]
    assert len(lost) == 2
    assert "nothing/report: No such file or directory" in lost[0]


def test_daemon_runs_until_signal() -> None:
    process = subprocess.Popen(
        command("step", "--daemon"), env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "watching for Slurm steps" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.stderr.close()


@pytest.mark.parametrize("more", [("--", "true"), ("--job", 1), ("--task", 0)])
def test_daemon_rejects_command_and_ids(more: tuple[object, ...]) -> None:
    done = ccpipe("step", "--daemon", *more)
    assert done.code == 64
    assert "--daemon takes no command" in done.err


def test_daemon_rejects_profile_directory_of_another_user(tmp_path: Path) -> None:
    """As root it would follow symbolic links in it."""
    found = own_directory(tmp_path / "profiles", "alice")
    assert found.stat().st_uid == os.geteuid()
    (tmp_path / "profiles" / "bob").symlink_to(found)
    with pytest.raises(UnavailableError, match="another user"):
        own_directory(tmp_path / "profiles", "bob")
