"""The real sh5util on ccpipe's files, compared with ccpipe on the same files."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from ccpipe.formats.slurm_profile.extract import Level, extract_csv
from ccpipe.formats.slurm_profile.items import find_peaks, sh5util_item_csv, zip_item
from ccpipe.formats.slurm_profile.merge import find_node_steps, merge
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.table import NodeStep, Table
from ccpipe.formats.slurm_profile.writer import NodeStepWriter
from tests.conftest import program
from tests.formats.slurm_profile.samples import (
    DATA,
    START,
    contents,
    read_contents,
    write_node_step,
)

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost
AuthType=auth/none
NodeName=c1
PartitionName=p Nodes=c1
AcctGatherProfileType=acct_gather_profile/hdf5
"""
USER = pwd.getpwuid(os.getuid()).pw_name

Sh5util = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sh5util(tmp_path: Path) -> Sh5util:
    path = program("sh5util", "slurm-wlm-hdf5-plugin")
    (tmp_path / "slurm.conf").write_text(CONFIGURATION)
    (tmp_path / "acct_gather.conf").write_text(f"ProfileHDF5Dir={tmp_path}\n")
    (tmp_path / USER).mkdir()
    environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [str(path), "-p", str(tmp_path), *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
        )

    return run


def are_equal(first: Path, second: Path) -> bool:
    command = [program("h5diff", "hdf5-tools"), first, second]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def extract(sh5util: Sh5util, job: Path, series: str, level: Level, *more: str) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "extracted.csv")
        done = sh5util("-j", 1, "-E", "-i", job, "-s", series, "-l", level, "-o", output, *more)
        assert done.returncode == 0, done.stderr
        return output.read_bytes()


def tables(path: Path, series: str) -> list[Table]:
    """Return the tables of a series; they stay readable because the file is in memory."""
    with open_profile(path) as profile:
        return [table for table in profile.tables if table.series == series]


def test_sh5util_merges_and_extracts_files_of_ccpipe(sh5util: Sh5util, tmp_path: Path) -> None:
    """The real program reads node-step files of ccpipe's writer unchanged."""
    paths = [
        write_node_step(tmp_path / USER / name, rows=37, tasks=3)
        for name in ("1_0_c1.h5", "1_0_c2.h5", "1_1_c1.h5", "1_batch_c1.h5")
    ]
    written = {name: data for path in paths for name, data in read_contents(path).items()}
    done = sh5util("-j", 1, "-S", "-o", tmp_path / "job_1.h5")
    assert done.returncode == 0, done.stderr
    assert read_contents(tmp_path / "job_1.h5") == written
    for series in ("Energy", "Tasks"):
        for level in (Level.NODE_TIME_SERIES, Level.NODE_TOTALS):
            theirs = extract(sh5util, tmp_path / "job_1.h5", series, level)
            chosen = tables(tmp_path / "job_1.h5", series)
            assert b"".join(extract_csv(chosen, level)) == theirs
            assert theirs.count(b"\n") > 4


def test_sh5util_reads_running_step_of_ccpipe(sh5util: Sh5util, tmp_path: Path) -> None:
    """With Slurm's own files it creates an empty merge and fails."""
    path = tmp_path / USER / "1_0_c1.h5"
    with NodeStepWriter(path, NodeStep(step="0", node="c1"), start=START) as writer:
        for second in range(12):
            writer.append("Energy", {"Power": second}, START + second)
        writer.flush()
        assert sh5util("-j", 1, "-S", "-o", tmp_path / "job_1.h5").returncode == 0
        lines = extract(sh5util, tmp_path / "job_1.h5", "Energy", Level.NODE_TIME_SERIES)
    assert lines.count(b"\n") == 13


def test_sh5util_reads_file_of_killed_writer_without_repair(
    sh5util: Sh5util, tmp_path: Path
) -> None:
    killed = (
        "import os, signal, sys\n"
        "from ccpipe.formats.slurm_profile.table import NodeStep\n"
        "from ccpipe.formats.slurm_profile.writer import NodeStepWriter\n"
        "writer = NodeStepWriter(sys.argv[1], NodeStep(step='0', node='c1'), start=1000)\n"
        "for second in range(33):\n"
        "    writer.append('Energy', {'Power': second}, 1000 + second)\n"
        "    writer.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / USER / "1_0_c1.h5"
    subprocess.run([sys.executable, "-c", killed, path], check=False)
    assert sh5util("-j", 1, "-S", "-o", tmp_path / "job_1.h5").returncode == 0
    lines = extract(sh5util, tmp_path / "job_1.h5", "Energy", Level.NODE_TIME_SERIES)
    assert lines.splitlines()[-1] == b"0,c1,32,1032,32"


@pytest.mark.parametrize("job", [3, 13, 17])
def test_merge_differs_from_sh5util_in_one_attribute(
    sh5util: Sh5util, tmp_path: Path, job: int
) -> None:
    """Both merge the same real node-step files, and h5diff compares every object.

    The one difference: sh5util writes "Number of Nodes" when the next step begins, so the step
    with the highest number has none. Chunks are larger with ccpipe; h5diff does not compare them.
    """
    for path in find_node_steps(DATA / "node-step" / "alice", job):
        shutil.copy(path, tmp_path / USER)
    theirs, ours = tmp_path / "theirs.h5", tmp_path / "ours.h5"
    assert sh5util("-j", job, "-S", "-o", theirs).returncode == 0
    merge(find_node_steps(tmp_path / USER, job), ours)
    with open_profile(ours) as profile:
        steps = {step.step for step in profile.node_steps} - {"batch"}
    last = max(steps, key=int)
    assert not are_equal(theirs, ours)
    with open_profile(ours) as profile, h5py.File(theirs, "r+") as file:
        nodes = sum(step.step == last for step in profile.node_steps)
        file["Steps"][last].attrs.create("Number of Nodes", [nodes], dtype="<i4")
    assert are_equal(theirs, ours)


def test_merge_keeps_runs_of_requeued_job_separate(sh5util: Sh5util, tmp_path: Path) -> None:
    """sh5util merges the nodes of both runs into one step; the rows are the same."""
    for path in find_node_steps(DATA / "node-step" / "bob", 22):
        shutil.copy(path, tmp_path / USER)
    assert sh5util("-j", 22, "-S", "-o", tmp_path / "theirs.h5").returncode == 0
    merge(find_node_steps(tmp_path / USER, 22), tmp_path / "ours.h5")
    with open_profile(tmp_path / "theirs.h5") as theirs, open_profile(tmp_path / "ours.h5") as ours:
        plain = {name.split()[1]: data for name, data in contents(ours).items()}
        assert plain == {name.split()[1]: data for name, data in contents(theirs).items()}
        assert {step.run for step in theirs.node_steps} == {0}
        assert {step.run for step in ours.node_steps} == {0, 1}


@pytest.mark.parametrize("job", [3, 13, 17])
def test_sh5util_extracts_from_merge_of_ccpipe(sh5util: Sh5util, tmp_path: Path, job: int) -> None:
    """The bytes equal those from its own merge, and ccpipe's extract."""
    ours = tmp_path / "ours.h5"
    merge(find_node_steps(DATA / "node-step" / "alice", job), ours)
    with open_profile(ours) as profile:
        series = {table.series for table in profile.tables}
    for name in series - ({"Tasks"} if job == 3 else set()):
        for level in (Level.NODE_TIME_SERIES, Level.NODE_TOTALS):
            theirs = extract(sh5util, ours, name, level)
            assert theirs == extract(sh5util, DATA / "merged" / f"job_{job}.h5", name, level)
            assert b"".join(extract_csv(tables(ours, name), level)) == theirs


@pytest.mark.parametrize("item", ["RSS", "Pages", "CPUFrequency"])
def test_items_of_one_table_equal_sh5util(sh5util: Sh5util, tmp_path: Path, item: str) -> None:
    """Up to 25.11 sh5util fails with several tables and with floating-point numbers."""
    path = write_node_step(tmp_path / USER / "1_0_c1.h5", rows=23, tasks=1)
    merge([path], tmp_path / "job_1.h5")
    output = tmp_path / "item.csv"
    done = sh5util(
        *("-j", 1, "-I", "-i", tmp_path / "job_1.h5", "-s", "Tasks", "-d", item, "-o", output)
    )
    assert done.returncode == 0, done.stderr
    chosen = tables(tmp_path / "job_1.h5", "Tasks")
    assert b"".join(sh5util_item_csv(zip_item(chosen, item), chosen)) == output.read_bytes()
    (peak,) = find_peaks(zip_item(chosen, item))
    assert peak.text(item) in done.stdout.splitlines()


def test_items_are_written_where_sh5util_fails(sh5util: Sh5util, tmp_path: Path) -> None:
    """With several tables sh5util up to 25.11 writes a header without rows and fails."""
    job = DATA / "merged" / "job_3.h5"
    output = tmp_path / "item.csv"
    done = sh5util("-j", 3, "-I", "-i", job, "-s", "Tasks", "-d", "RSS", "-o", output)
    recorded = (DATA / "csv" / "job_3.I.Tasks.RSS.csv").read_bytes()
    assert (done.returncode, output.read_bytes()) == (237, recorded)
    chosen = tables(job, "Tasks")
    assert len(b"".join(sh5util_item_csv(zip_item(chosen, "RSS"), chosen)).splitlines()) > 50
