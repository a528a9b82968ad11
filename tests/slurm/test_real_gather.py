"""``ccpipe step --daemon`` and Slurm's own plug-ins, on the same tasks: ``make slurm``."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import h5py
import msgspec
import pytest
from nats.js.errors import NotFoundError

from ccpipe.bus.nats.server import NatsServer
from ccpipe.errors import CcpipeError
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.slurm_profile.merge import find_node_steps, merge
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.node.gather.jobacct import JobacctInfo, aggregate, create, to_sacct
from tests.conftest import free_port
from tests.e2e.formats.test_sh5util import are_equal
from tests.paths import ROOT
from tests.servers.nats.stored import stored
from tests.slurm.cluster import CGROUP, LINUX, Cluster, seconds

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

UNIT = ROOT / "bridges/systemd/ccpipe-step.service"
NODES = ("c1", "c2")
TASKS = range(4)
MEBIBYTE = 2**20

WORK = """
import os, subprocess, sys, time
directory, number = sys.argv[1], int(os.environ["SLURM_PROCID"])

def compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(10_000))

def wait_for(name):
    while not os.path.exists(f"{directory}/{name}"):
        time.sleep(0.1)

if len(sys.argv) > 2:
    held = bytearray(b"x") * (10 * 2**20)
    compute(0.5)
    wait_for("child-may-end")
    sys.exit()
child = subprocess.Popen([sys.executable, *sys.argv, "child"])
# Not before: until it calls exec, a child counts with all the memory of its parent.
held = bytearray(b"x") * ((30 + 20 * number) * 2**20)
piece = b"y" * 2**16
with open(f"{directory}/written{number}", "wb") as file:
    for _ in range(16 * (5 + number)):
        file.write(piece)
compute(1 + number)
open(f"{directory}/computed{number}", "w").close()
child.wait()
open(f"{directory}/alone{number}", "w").close()
wait_for("may-end")
"""
"""Tasks that differ in every figure. All keep their resources until polled by both: neither plug-in
sees short-lived usage between two polls."""

COLUMNS = (
    "NTasks", "AveCPU", "MinCPU", "MinCPUTask", "MinCPUNode", "TotalCPU", "MaxRSS", "MaxRSSTask",
    "MaxRSSNode", "AveRSS", "MaxVMSize", "AveVMSize", "MaxPages", "MaxDiskRead", "AveDiskRead",
    "MaxDiskWrite", "MaxDiskWriteTask", "AveDiskWrite",
)  # fmt: skip
EXACT = ("NTasks", "MaxRSSTask", "MaxRSSNode", "MinCPUTask", "MinCPUNode", "MaxDiskWriteTask")


class Daemon:
    """``ccpipe step --daemon``, with only the rights of its systemd unit."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.report, self.profiles = directory / "report.json", directory / "ours"
        self.server = NatsServer(directory / "nats", port=free_port())
        self.status = ""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(directory / "notify"))
        (directory / "notify").chmod(0o666)

    @contextmanager
    def running(self, *options: str) -> Iterator[None]:
        for path in (self.profiles, self.directory / "state"):
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
        self.report.touch()
        self.report.chmod(0o666)
        names = re.findall(r"^#?CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
        granted = ",".join(f"+{name.lower()[4:]}" for line in names for name in line.split())
        command = [
            "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs",
            f"--bounding-set=-all,{granted}", f"--inh-caps=-all,{granted}",
            f"--ambient-caps=-all,{granted}", sys.executable, "-m", "ccpipe", "step", "--daemon",
            "-o", "json", "--out", str(self.report), "--hdf5", str(self.profiles),
            "--publish", "--server", self.server.url, "--cluster", "fox.test",
            "--series", "task", *options,
        ]  # fmt: skip
        environment = {
            "PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": str(self.directory / "notify"),
            "XDG_STATE_HOME": str(self.directory / "state"), "WATCHDOG_USEC": "1000000",
        }  # fmt: skip
        process = subprocess.Popen(
            command, env=environment, stdout=self.cluster.log, stderr=self.cluster.log, cwd=ROOT
        )
        try:
            self.wait_for_status("")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            self._socket.close()

    def wait_for_status(self, text: str) -> None:
        def is_there() -> bool:
            try:
                lines = self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return False
            status = [line for line in lines if line.startswith("STATUS=")]
            return bool(status) and status[-1].endswith(text)

        self.cluster.wait(is_there)

    def times(self, job: int, node: str) -> dict[str, list[int]]:
        """Return the times of the samples in a step's file, by task; it may be written to.

        They are whole seconds, rounded down.
        """
        try:
            with open_profile(self.profiles / "root" / f"{job}_0_{node}.h5") as profile:
                return {str(one.task): one.read()["EpochTime"].tolist() for one in profile.tables}
        except (CcpipeError, OSError):
            return {}

    def wait_for_samples(self, job: int) -> None:
        now = time.time() + 1
        tasks = {"c1": {"0", "1", "2"}, "c2": {"3"}}
        self.cluster.wait(
            lambda: all(
                {task for task, times in self.times(job, node).items() if times[-1] > now} == tasks
                for node, tasks in tasks.items()
            )
        )
        self.cluster.run("sstat", "-nPj", f"{job}.0", "-o", "MaxRSS")  # it polls

    def step_rows(self, job: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = list(map(json.loads, self.report.read_text().splitlines()))
        return [row for row in rows if row["JobID"] == f"{job}.0"]

    def gathered(self, job: int) -> dict[str, str]:
        """Return the columns of the step: the nodes' records, aggregated as slurmctld does it."""
        step = create()
        for row in sorted(self.step_rows(job), key=lambda row: str(row["NodeList"])):
            aggregate(step, msgspec.convert(row["raw"], JobacctInfo, strict=False))
        return to_sacct(step, NODES, convert=False)

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[None]:
        async with self.server:
            yield


def run_job(daemon: Daemon, *options: str) -> int:
    cluster, directory = daemon.cluster, daemon.directory
    (directory / "work.py").write_text(WORK)
    where = ("-N2", "-n4", "-w", ",".join(NODES), "--mem-per-cpu=400M", *options)
    command = f"srun -n4 {sys.executable} {directory}/work.py {directory}"
    job = cluster.submit(*where, wrap=command)
    for named, release in (("computed", "child-may-end"), ("alone", "may-end")):
        wait_for_files(cluster, [directory / f"{named}{number}" for number in TASKS])
        daemon.wait_for_samples(job)
        (directory / release).touch()
    cluster.wait(lambda: cluster.state(job) == "COMPLETED", 150)
    cluster.wait(lambda: len(daemon.step_rows(job)) == len(NODES))
    cluster.wait(lambda: bool(cluster.sacct(f"{job}.0", "MaxRSS").get("MaxRSS")))
    return job


def wait_for_files(cluster: Cluster, paths: list[Path]) -> None:
    cluster.wait(lambda: all(path.exists() for path in paths))


def size(text: str) -> float:
    """Read bytes, or mebibytes such as ``3.08M``: sacct writes disk traffic so, always."""
    return float(text.removesuffix("M")) * (MEBIBYTE if text.endswith("M") else 1)


def compare(daemon: Daemon, job: int) -> tuple[dict[str, str], dict[str, str]]:
    """Compare what is the same with both plug-ins; return our columns, and sacct's.

    Processor time differs by what is used after the last sample: Python's end, of four tasks.
    """
    ours, theirs = daemon.gathered(job), daemon.cluster.sacct(f"{job}.0", *COLUMNS)
    print(json.dumps({name: [ours[name], theirs[name]] for name in COLUMNS}))
    assert {name: ours[name] for name in EXACT} == {name: theirs[name] for name in EXACT}
    for name in ("MaxDiskRead", "AveDiskRead", "MaxDiskWrite", "AveDiskWrite"):
        assert size(ours[name]) == pytest.approx(size(theirs[name]), abs=0.01 * MEBIBYTE)
    for name in ("AveCPU", "MinCPU"):  # whole seconds, rounded down
        assert seconds(ours[name]) == pytest.approx(seconds(theirs[name]), abs=1)
    assert seconds(ours["TotalCPU"]) == pytest.approx(seconds(theirs["TotalCPU"]), abs=0.6)
    assert abs(int(ours["MaxPages"]) - int(theirs["MaxPages"])) < 100
    return ours, theirs


@pytest.mark.parametrize("cluster", [LINUX], indirect=True)
async def test_daemon_reports_figures_of_jobacct_gather_linux(
    cluster: Cluster, tmp_path: Path
) -> None:
    """All of sacct's columns of a step with four tasks on two nodes, from the daemon's samples.

    Without a broker meanwhile: messages wait in the spool until it starts.
    """
    daemon = Daemon(cluster, tmp_path)
    with daemon.running():
        job = run_job(daemon)
        ours, theirs = compare(daemon, job)
        async with daemon.broker():
            await check_messages(daemon, job)
    for name in ("MaxRSS", "AveRSS"):
        assert int(ours[name]) == pytest.approx(int(theirs[name]), rel=0.02)
    # Slurm's first poll is before exec: it sees the address space of slurmstepd.
    assert int(ours["MaxRSS"]) < int(ours["MaxVMSize"]) <= int(theirs["MaxVMSize"])
    check_profiles(daemon, job, int(theirs["MaxRSS"]))


async def check_messages(daemon: Daemon, job: int) -> None:
    nodes: dict[str, int] = {}
    samples: set[tuple[str, str]] = set()
    deadline = time.monotonic() + 60
    while len(nodes) < len(NODES):
        assert time.monotonic() < deadline
        try:
            messages = await stored(daemon.server)
        except NotFoundError:  # the daemon has not seen yet that there is a broker
            await asyncio.sleep(0.2)
            continue
        for _, payload in messages:
            for message in decode(payload):
                if message.tags.get("stepid") != "0" or message.tags["jobid"] != str(job):
                    continue
                if message.name == "step":
                    end = json.loads(str(message.value))
                    nodes[end["node"]] = int(end["NTasks"])
                elif message.name == "task_mem_rss":
                    samples.add((message.tags["hostname"], message.tags["taskid"]))
    assert nodes == {"c1": 3, "c2": 1}
    assert samples == {("c1", "0"), ("c1", "1"), ("c1", "2"), ("c2", "3")}


def check_profiles(daemon: Daemon, job: int, max_rss: int) -> None:
    """The real sh5util merges and extracts the daemon's files; the figures equal sacct's."""
    cluster = daemon.cluster
    merged, csv = daemon.directory / "job.h5", daemon.directory / "tasks.csv"
    base = ("sh5util", "-p", str(daemon.profiles), "-j", str(job))
    cluster.run(*base, "-S", "-o", str(merged))
    extract = ("-E", "-i", str(merged), "-s", "Tasks", "-l", "Node:TimeSeries", "-o", str(csv))
    cluster.run(*base, *extract)
    header, *lines = csv.read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    step = [row for row in rows if row["Step"] == "0"]
    assert {(row["Node"], row["Series"]) for row in step} == {
        ("c1", "0"), ("c1", "1"), ("c1", "2"), ("c2", "3"),
    }  # fmt: skip
    assert max(int(row["RSS"]) * 1024 for row in step) == pytest.approx(max_rss, rel=0.02)
    with open_profile(merged) as profile:
        tasks = {(one.step, one.node): one.tasks for one in profile.node_steps}
    assert tasks == {("0", "c1"): 3, ("0", "c2"): 1, ("batch", "c1"): 1}
    file = daemon.profiles / "root" / f"{job}_0_c1.h5"
    assert (file.owner(), file.stat().st_mode & 0o777) == ("root", 0o600)


@pytest.mark.parametrize("cluster", [CGROUP], indirect=True)
def test_daemon_matches_slurm_cgroup_and_profile_plugins(cluster: Cluster, tmp_path: Path) -> None:
    """Tasks by their groups; and the files of the real plug-in, merged by both programs.

    Slurm 22.05 counts ``total_rss`` of ``memory.stat`` at each poll, each second and when a task
    ends, as memory, and with the page cache and swap as address space. We take the peak of the
    group, as Slurm does since 24.11: the kernel tracks it continuously, with the page cache and
    kernel memory of the group.
    """
    daemon = Daemon(cluster, tmp_path)
    with daemon.running("--cgroup"):
        job = run_job(daemon, "--profile=task", "--acctg-freq=task=1")
        ours, theirs = compare(daemon, job)
    # Both read the same file; the kernel brings it up to date for whole batches of pages only.
    assert int(ours["MaxVMSize"]) == pytest.approx(int(theirs["MaxVMSize"]), abs=MEBIBYTE)
    above = int(ours["MaxRSS"]) - int(theirs["MaxVMSize"])
    assert -MEBIBYTE < above < 4 * MEBIBYTE
    check_merge(cluster, tmp_path, job)


def check_merge(cluster: Cluster, directory: Path, job: int) -> None:
    """Both merge the files that Slurm's plug-in left; h5diff finds all equal but one attribute."""
    left = cluster.slurm / "profiles"
    theirs, ours = directory / "theirs.h5", directory / "ours.h5"
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


@pytest.mark.parametrize("cluster", [LINUX], indirect=True)
def test_suspended_step_is_not_sampled(cluster: Cluster, tmp_path: Path) -> None:
    """Slurm freezes its control group: no samples, and the time does not count as run time."""
    daemon = Daemon(cluster, tmp_path)
    wait = f"while [ ! -e {tmp_path}/may-end ]; do sleep 0.1; done"
    with daemon.running():
        began = time.time()
        job = cluster.submit("-n1", "-w", "c1", wrap=f"srun sh -c '{wait}'")
        cluster.wait(lambda: bool(daemon.times(job, "c1").get("0")))
        cluster.run("scontrol", "suspend", str(job))
        daemon.wait_for_status(": 2 steps, 2 suspended")
        first = time.time()
        time.sleep(3)
        last = time.time()
        cluster.run("scontrol", "resume", str(job))
        daemon.wait_for_status(": 2 steps, 0 suspended")
        resumed = time.time()
        cluster.wait(lambda: daemon.times(job, "c1")["0"][-1] > resumed)
        (tmp_path / "may-end").touch()
        cluster.wait(lambda: len(daemon.step_rows(job)) == 1)
        ended = time.time()
    times = daemon.times(job, "c1")["0"]
    assert not [when for when in times if first < when < last - 1]
    assert min(times) < first < last < max(times)
    (row,) = daemon.step_rows(job)
    assert row["Elapsed"] <= ended - began - (last - first)
    cluster.wait(lambda: cluster.sacct(f"{job}.0", "State").get("State") == "COMPLETED")
    shown = cluster.sacct(f"{job}.0", "ElapsedRaw", "Suspended")
    assert seconds(shown["Suspended"]) >= int(last - first)
    print(row["Elapsed"], shown)


@pytest.mark.parametrize("cluster", [LINUX], indirect=True)
def test_step_takes_ids_from_slurm_within_job(cluster: Cluster, tmp_path: Path) -> None:
    command = (
        f"{sys.executable} -m ccpipe step -o json --out {tmp_path}/$SLURM_PROCID.json "
        f"--hdf5 $([ $SLURM_PROCID = 1 ] && echo {tmp_path} || echo {tmp_path}/other.h5) "
        "-- sleep 2"
    )
    job = cluster.submit(
        "-n2", "-w", "c2", "--chdir", str(ROOT), wrap=f"srun -n2 sh -c '{command}'"
    )
    reports = [tmp_path / "0.json", tmp_path / "1.json"]
    cluster.wait(lambda: cluster.state(job) == "COMPLETED")
    rows = [json.loads(path.read_text()) for path in reports]
    assert [(row["JobID"], row["NodeList"], row["MaxRSSTask"]) for row in rows] == [
        (f"{job}.0", "c2", "0"), (f"{job}.0", "c2", "1"),
    ]  # fmt: skip
    with open_profile(tmp_path / f"{job}_0_c2.h5") as profile:
        assert {(one.step, one.node) for one in profile.node_steps} == {("0", "c2")}
        assert {str(table.task) for table in profile.tables if table.task} == {"1"}
