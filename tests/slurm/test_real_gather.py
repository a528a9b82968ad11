"""``ccpipe step --daemon`` beside Slurm's own plug-ins, on the same tasks: ``make slurm``."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import msgspec
import pytest

from ccpipe.formats.slurm_profile import open_profile
from ccpipe.formats.slurm_profile.merge import find_node_steps, merge
from ccpipe.node.gather.jobacct import JobacctInfo, aggregate, create, to_sacct
from tests.formats.slurm_profile.test_sh5util import are_equal
from tests.paths import ROOT
from tests.slurm.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

LINUX = ("ProctrackType=proctrack/cgroup", "JobAcctGatherType=jobacct_gather/linux")
CGROUP = (
    "ProctrackType=proctrack/cgroup",
    "JobAcctGatherType=jobacct_gather/cgroup",
    "AcctGatherProfileType=acct_gather_profile/hdf5",
)
NODES = ("c1", "c2")
MEBIBYTE = 2**20

WORK = """
import os, subprocess, sys, time
number = int(os.environ["SLURM_PROCID"])

def compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(10_000))

held = bytearray(b"x") * ((30 + 20 * number) * 2**20)
code = "import time; held = bytearray(b'x') * (10 * 2**20); sum(range(30_000_000)); time.sleep(3)"
child = subprocess.Popen([sys.executable, "-c", code])
with open(f"{sys.argv[1]}/written{number}", "wb") as file:
    file.write(b"y" * ((5 + number) * 2**20))
compute(1 + number)
child.wait()
time.sleep(2.5)
"""
"""Tasks that differ in all that is measured. They end with a sleep of more than two polls: what is
used after the last poll, which only the parent of a task gets to know, is then next to nothing."""

COLUMNS = (
    "NTasks", "AveCPU", "MinCPU", "MinCPUTask", "MinCPUNode", "TotalCPU", "MaxRSS", "MaxRSSTask",
    "MaxRSSNode", "AveRSS", "MaxVMSize", "AveVMSize", "MaxPages", "MaxDiskRead", "AveDiskRead",
    "MaxDiskWrite", "MaxDiskWriteTask", "AveDiskWrite",
)  # fmt: skip


@contextmanager
def daemon(cluster: Cluster, *options: str) -> Iterator[Path]:
    """Run the daemon and give the file of its reports."""
    report = cluster.folder / "report.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "ccpipe", "step", "--daemon", "-o", "json", "--report", str(report),
         "--profile", str(cluster.folder / "ours"), "--series", "task", *options],
        stdout=cluster.log, stderr=cluster.log, cwd=ROOT,
    )  # fmt: skip
    try:
        yield report
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def run_job(cluster: Cluster, report: Path, *options: str) -> int:
    """Run the tasks as a step on two nodes; return the job's number."""
    (cluster.folder / "work.py").write_text(WORK)
    (cluster.folder / "ours").mkdir()
    where = ("-N2", "-n4", "-w", ",".join(NODES), "--mem-per-cpu=400M", *options)
    command = f"srun -n4 {sys.executable} {cluster.folder}/work.py {cluster.folder}"
    job = cluster.submit(*where, wrap=command)
    cluster.wait(lambda: cluster.state(job) == "COMPLETED", 150)
    cluster.wait(lambda: len(step_rows(report, job)) == len(NODES))
    cluster.wait(lambda: bool(sacct(cluster, job)["MaxRSS"]))
    return job


def step_rows(report: Path, job: int) -> list[dict[str, Any]]:
    """Return the reports of the step 0, one of each node."""
    lines = report.read_text().splitlines() if report.exists() else []
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [row for row in rows if row["JobID"] == f"{job}.0"]


def gathered(report: Path, job: int) -> dict[str, str]:
    """Return the columns of the step: the nodes' records, aggregated as slurmctld does it."""
    step = create()
    for row in sorted(step_rows(report, job), key=lambda row: str(row["NodeList"])):
        aggregate(step, msgspec.convert(row["raw"], JobacctInfo, strict=False))
    return to_sacct(step, NODES, convert=False)


def sacct(cluster: Cluster, job: int) -> dict[str, str]:
    """Return sacct's columns of the step."""
    options = ("-nP", "--noconvert", "-j", f"{job}.0", "-o", ",".join(COLUMNS))
    values = cluster.run("sacct", *options).strip().split("|")
    return dict(zip(COLUMNS, values, strict=True))


def seconds(text: str) -> float:
    """Read ``HH:MM:SS`` or ``MM:SS.mmm``."""
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + float(part)
    return total


def size(text: str) -> float:
    """Read bytes, or mebibytes such as ``3.08M``: sacct writes disk traffic so, always."""
    return float(text.removesuffix("M")) * (MEBIBYTE if text.endswith("M") else 1)


@pytest.mark.parametrize("cluster", [LINUX], indirect=True)
def test_figures_are_those_of_jobacct_gather_linux(cluster: Cluster) -> None:
    """All that sacct says of a step with four tasks on two nodes, from what the daemon saw.

    Tolerances: both poll each second, at different moments, so sizes may differ by what Python
    allocates between them, a twentieth. Processor time lacks what was used after the last poll and
    before the process was found: 0.3 s for each task.
    """
    with daemon(cluster) as report:
        job = run_job(cluster, report)
    ours, theirs = gathered(report, job), sacct(cluster, job)
    print(json.dumps({name: [ours[name], theirs[name]] for name in COLUMNS}, indent=1))
    exact = ("NTasks", "MaxRSSTask", "MaxRSSNode", "MinCPUTask", "MinCPUNode", "MaxDiskWriteTask")
    assert {name: ours[name] for name in exact} == {name: theirs[name] for name in exact}
    for name in ("MaxRSS", "AveRSS"):
        assert int(ours[name]) == pytest.approx(int(theirs[name]), rel=0.05)
    for name in ("MaxDiskRead", "AveDiskRead", "MaxDiskWrite", "AveDiskWrite"):
        assert size(ours[name]) == pytest.approx(size(theirs[name]), rel=0.05, abs=0.01 * MEBIBYTE)
    for name in ("AveCPU", "MinCPU"):  # whole seconds, rounded down
        assert seconds(ours[name]) == pytest.approx(seconds(theirs[name]), abs=1)
    assert seconds(ours["TotalCPU"]) == pytest.approx(seconds(theirs["TotalCPU"]), abs=1.2)
    # Slurm's first poll comes before exec: it sees the address space of slurmstepd.
    assert int(ours["MaxRSS"]) < int(ours["MaxVMSize"]) <= int(theirs["MaxVMSize"])
    assert abs(int(ours["MaxPages"]) - int(theirs["MaxPages"])) < 100
    check_profiles(cluster, job, int(theirs["MaxRSS"]))


def check_profiles(cluster: Cluster, job: int, max_rss: int) -> None:
    """The real sh5util merges and extracts the daemon's files; they say what sacct says."""
    merged, csv = cluster.folder / "job.h5", cluster.folder / "tasks.csv"
    base = ("sh5util", "-p", str(cluster.folder / "ours"), "-j", str(job))
    cluster.run(*base, "-S", "-o", str(merged))
    extract = ("-E", "-i", str(merged), "-s", "Tasks", "-l", "Node:TimeSeries", "-o", str(csv))
    cluster.run(*base, *extract)
    header, *lines = csv.read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    step = [row for row in rows if row["Step"] == "0"]
    assert {(row["Node"], row["Series"]) for row in step} == {
        ("c1", "0"), ("c1", "1"), ("c1", "2"), ("c2", "3"),
    }  # fmt: skip
    assert max(int(row["RSS"]) * 1024 for row in step) == pytest.approx(max_rss, rel=0.05)
    with open_profile(merged) as profile:
        tasks = {(one.step, one.node): one.tasks for one in profile.node_steps}
    assert tasks == {("0", "c1"): 3, ("0", "c2"): 1, ("batch", "c1"): 1}


@pytest.mark.parametrize("cluster", [CGROUP], indirect=True)
def test_control_groups_and_profiles_of_slurms_own_plugins(cluster: Cluster) -> None:
    """Tasks by their groups; and the files of the real plug-in, merged by both programs."""
    with daemon(cluster, "--cgroup") as report:
        job = run_job(cluster, report, "--profile=task", "--acctg-freq=task=1")
    ours, theirs = gathered(report, job), sacct(cluster, job)
    print(json.dumps({name: [ours[name], theirs[name]] for name in COLUMNS}, indent=1))
    exact = ("NTasks", "MaxRSSTask", "MaxRSSNode", "MinCPUTask", "MinCPUNode", "MaxDiskWriteTask")
    assert {name: ours[name] for name in exact} == {name: theirs[name] for name in exact}
    assert seconds(ours["TotalCPU"]) == pytest.approx(seconds(theirs["TotalCPU"]), abs=1.2)
    assert int(ours["MaxVMSize"]) == pytest.approx(int(theirs["MaxVMSize"]), rel=0.05)
    # Since 24.11 Slurm takes the peak of the group, as we do; it has the page cache.
    assert int(theirs["MaxRSS"]) * 0.95 <= int(ours["MaxRSS"])
    assert int(ours["MaxRSS"]) <= int(theirs["MaxRSS"]) * 1.05 + 20 * MEBIBYTE
    check_merge(cluster, job)


def check_merge(cluster: Cluster, job: int) -> None:
    """Both merge the files that Slurm's plug-in left; h5diff finds all equal but one attribute."""
    left = cluster.slurm / "profiles"
    theirs, ours = cluster.folder / "theirs.h5", cluster.folder / "ours.h5"
    cluster.run("sh5util", "-p", str(left), "-j", str(job), "-S", "-o", str(theirs))
    paths = find_node_steps(left / "root", job)
    assert {path.name for path in paths} == {
        f"{job}_0_c1.h5", f"{job}_0_c2.h5", f"{job}_batch_c1.h5",
    }  # fmt: skip
    assert not merge(paths, ours).failures
    # sh5util writes "Number of Nodes" when the next step begins: the last one has none.
    with h5py.File(theirs, "r+") as file:
        assert "Number of Nodes" not in file["Steps/0"].attrs
        file["Steps/0"].attrs.create("Number of Nodes", [len(NODES)], dtype="<i4")
    assert are_equal(theirs, ours)
