"""``ccpipe step``: the command runs as it would alone, and what it used is known."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ccpipe.formats.slurm_profile.reader import open_profile
from tests.cli.command import ccpipe, command, environment
from tests.conftest import program

BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"


def report(*arguments: object, **environ: str) -> tuple[int, dict[str, Any]]:
    done = ccpipe("step", "-o", "json", *arguments, stdin=b"", **environ)
    return done.code, json.loads(done.err)


def test_step_keeps_output_and_exit_code_of_command() -> None:
    done = ccpipe("step", "--job", 17, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.code, done.out) == (3, "out\n")
    assert done.err.startswith("err\n")
    assert "17.0" in done.err
    assert "FAILED" in done.err
    assert re.search(r"MaxRSS +MaxVMSize", done.err)


def test_step_passes_input_to_command() -> None:
    assert ccpipe("step", "--", "cat", stdin=b"in").out == "in"


def test_step_figures_equal_gnu_time(tmp_path: Path) -> None:
    """Both measure the same run: another one may take a third more on a busy machine."""
    code = f"x = bytearray(60_000_000)\n{BURN.format(0.6)}"
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])"
    measured = tmp_path / "time"
    gnu = [str(program("time", "time")), "-f", "%U %S %M", "-o", str(measured)]
    _, found = report("--freq", "0.1", "--", *gnu, sys.executable, "-c", child)
    user, system, kilobytes = map(float, measured.read_text().split())
    raw = found["raw"]
    assert (raw["user"] + raw["system"]) / 1e6 == pytest.approx(user + system, abs=0.1)
    single = raw["usage_in"]["mem"]["max"]
    parent_too = single - kilobytes * 1024
    assert 0 <= parent_too < 30e6  # the tree's memory has the parent's too
    assert found["State"] == "COMPLETED"


def test_step_reads_ids_from_slurm_environment() -> None:
    slurm = {
        "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "5",
        "SLURM_NODEID": "2", "SLURMD_NODENAME": "c3",
    }  # fmt: skip
    _, found = report("--", "true", **slurm)
    assert (found["JobID"], found["NodeList"]) == ("4711.batch", "c3")
    assert (found["MinCPUNode"], found["MinCPUTask"]) == ("c3", "5")
    _, found = report("--job", 3, "--step", 7, "--task", 1, "--", "true", **slurm)
    assert (found["JobID"], found["MinCPUTask"]) == ("3.7", "1")
    slurm["SLURM_JOB_ID"] = "x"
    assert ccpipe("step", "--", "true", stdin=b"", **slurm).code == 78


def test_step_forwards_signals() -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        command("step", "--", sys.executable, "-c", code),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "MaxRSS" in errors


def test_step_does_not_sample_stopped_command(tmp_path: Path) -> None:
    code = "import os\nprint(os.getpid(), flush=True)\n" + BURN.format(0.8)
    path = tmp_path / "17_0_n.h5"
    arguments = ("--freq", "0.1", "--series", "task", "--hdf5", path)
    with subprocess.Popen(
        command("step", *arguments, "--", sys.executable, "-c", code),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        time.sleep(0.3)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(pid, signal.SIGCONT)
        process.communicate(timeout=60)
    assert process.returncode == 0
    with open_profile(path) as profile:
        [table] = profile.tables
        times = table.read()["EpochTime"].tolist()
    assert max(after - before for before, after in pairwise(times)) >= 2


def test_step_profile_has_series_of_task(tmp_path: Path) -> None:
    arguments = ("--job", 17, "--hdf5", tmp_path, "--series", "task", "--freq", "0.1")
    _, found = report(*arguments, "--", sys.executable, "-c", BURN.format(0.7))
    [path] = tmp_path.iterdir()
    assert re.fullmatch(r"17_0_.+\.h5", path.name)
    with open_profile(path) as profile:
        [table] = profile.tables
        rows = table.read()
        assert (table.series, table.task) == ("Tasks", "0")
        total = (found["raw"]["user"] + found["raw"]["system"]) / 1e6
        assert float(rows["CPUTime"].sum()) == pytest.approx(total, abs=0.3)
        assert int(rows["RSS"].max()) * 1024 <= found["raw"]["usage_in"]["mem"]["max"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--freq", "tsk=1", "--", "true"),
        ("--step", "x", "--", "true"),
        ("--job", "-5", "--", "true"),
        ("--hdf5", "x.h5", "--series", "nothing", "--", "true"),
    ],
)
def test_step_rejects_wrong_flags(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert ccpipe("step", *arguments).code == 64


def test_step_writes_report_to_file(tmp_path: Path) -> None:
    path = tmp_path / "used.json"
    done = ccpipe("step", "-o", "json", "--out", path, "--", "sh", "-c", "echo e >&2")
    assert done.err == "e\n"
    assert json.loads(path.read_text())["ExitCode"] == 0
