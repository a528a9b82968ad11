"""The collector of Slurm's jobs on the control groups of a real slurmd: ``make slurm``."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message
from ccpipe.node.collectors.slurm_cgroup import SlurmCgroup
from ccpipe.node.linux.slurm_cgroups import JobIds, find_steps
from tests.paths import ROOT
from tests.slurm.cluster import CGROUP, Cluster, seconds

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

HELD = 90 * 2**20
WORK = f"""
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
held = bytearray(b"x") * {HELD}
end = time.process_time() + 3
while time.process_time() < end:
    sum(range(10_000))
time.sleep(4)
"""
"""It begins when it is seen, and sleeps at the end until it was seen once more."""


@pytest.mark.parametrize("cluster", [CGROUP], indirect=True)
def test_collector_measures_real_job(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    begin, samples = tmp_path / "begin", tmp_path / "samples"
    command = f"srun {sys.executable} {tmp_path}/work.py {begin}"
    job = cluster.submit("-n1", "-w", "c1", "--mem=400M", wrap=command)
    cluster.wait(lambda: f"{job}.0" in cluster.run("squeue", "-hs", "-o", "%i"))
    with samples.open("wb") as output:
        publisher = subprocess.Popen(
            [sys.executable, "-m", "ccpipe", "publish", "--dry-run", "--interval", "1s"],
            stdout=output, stderr=cluster.log, cwd=ROOT,
        )  # fmt: skip
    try:

        def seen(name: str) -> list[Message]:
            payload = samples.read_bytes()
            lines = decode(payload[: payload.rfind(b"\n") + 1])
            return [m for m in lines if m.name == name and m.tags.get("stype-id") == str(job)]

        cluster.wait(lambda: len(seen("job_user_cpu")) > 0)
        begin.touch()
        cluster.wait(lambda: cluster.state(job) == "COMPLETED", 150)
    finally:
        publisher.send_signal(signal.SIGTERM)
        assert publisher.wait(30) == 0

    cluster.wait(lambda: bool(cluster.sacct(f"{job}.0", "MaxRSS").get("MaxRSS")))
    row = cluster.sacct(f"{job}.0", "MaxRSS", "TotalCPU")
    max_rss, total_cpu = int(row["MaxRSS"]), seconds(row["TotalCPU"])
    memory = [float(message.value) for message in seen("job_mem_used")]
    assert max(memory) >= HELD
    assert max(memory) == pytest.approx(max_rss, rel=0.5)  # the batch script and caches, too
    times = [message.time or 0 for message in seen("job_mem_used")]
    since = {time: (time - before) / 1e9 for before, time in pairwise(times)}
    used = sum(
        float(message.value) / 100 * since[message.time or 0]
        for name in ("job_user_cpu", "job_sys_cpu")
        for message in seen(name)
    )
    assert used + 0.1 >= 3
    assert used == pytest.approx(total_cpu, abs=1)  # without usage before it was found


@pytest.fixture
def scope() -> Iterator[Path]:
    mounts = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
    top = next((one for one in mounts if (one / "cgroup.subtree_control").exists()), None)
    if top is None or not os.access(top, os.W_OK):
        pytest.skip("no writable control groups of version 2")
    group = top / f"ccpipe{os.getpid()}.slice"
    path = group / "slurmstepd.scope"
    path.mkdir(parents=True)
    yield path
    for directory in sorted(group.rglob("*/"), reverse=True):
        directory.rmdir()
    group.rmdir()


def test_collector_measures_job_named_by_sluid(scope: Path) -> None:
    """As slurmstepd from 26.05 on names them: the CPU time of its tasks equals the job's."""
    children = []
    for directory, command in (
        ("slurm", "exec -a 'slurmstepd: [4711.0]' sleep infinity"),
        ("user/task_0", "while :; do :; done"),
    ):
        group = scope / "sEKNKTV3WPV500/step_0" / directory
        group.mkdir(parents=True)
        child = subprocess.Popen(["bash", "-c", command])
        children.append(child)
        (group / "cgroup.procs").write_text(str(child.pid))
    try:
        collector, ids = SlurmCgroup(), JobIds()
        stepd, task = children
        deadline = time.monotonic() + 60
        while not Path(f"/proc/{stepd.pid}/cmdline").read_bytes().startswith(b"slurmstepd"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        [found] = [one for one in find_steps("/", ids) if one.job == 4711]
        assert found.tasks == {0: frozenset({task.pid})}
        assert ids.of_process(task.pid) == 4711
        list(collector.collect(0))
        used = 0.0
        while used <= 0 and time.monotonic() < deadline:
            time.sleep(0.2)
            used = sum(
                float(message.value)
                for message in collector.collect(0)
                if message.name == "job_user_cpu" and message.tags["stype-id"] == "4711"
            )
        assert used > 0
    finally:
        for child in children:
            child.kill()
            child.wait()
