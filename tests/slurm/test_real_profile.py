"""Slurm's own profile plug-in posts to a bridge: ``make slurm``."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.slurm_metrics import from_metric
from ccpipe.message import Message
from tests.paths import ROOT
from tests.slurm.cluster import LINUX, Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

RECIPE = """
cluster = "fox"
hostname = "master"
[source]
use = "http"
listen = "127.0.0.1:{port}"
[[translate]]
use = "slurm_influx_to_cc"
[sink]
use = "file"
path = "{directory}/profile.line"
"""
WORK = """srun -n2 python3 -c '
import time
held = bytearray(80 * 2**20)
end = time.monotonic() + 5
while time.monotonic() < end: sum(range(10000))
'"""


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def written(directory: Path) -> list[Message]:
    path = directory / "profile.line"
    return list(decode(path.read_bytes())) if path.exists() else []


@pytest.mark.parametrize("cluster", [LINUX], indirect=True)
def test_bridge_receives_samples_of_influxdb_plugin(cluster: Cluster, tmp_path: Path) -> None:
    ports = dict(line.split() for line in (cluster.slurm / "ports").read_text().splitlines())
    recipe = tmp_path / "profile.toml"
    recipe.write_text(RECIPE.format(port=ports["profile"], directory=tmp_path))
    bridge = subprocess.Popen(
        [sys.executable, "-m", "ccpipe", "bridge", str(recipe)],
        stdout=cluster.log, stderr=cluster.log, cwd=ROOT,
    )  # fmt: skip
    try:
        cluster.wait(
            lambda: listens(int(ports["profile"]))
        )  # Slurm drops samples without a receiver
        options = ("-n2", "-w", "c1", "--profile=task", "--acctg-freq=task=1", "--mem=400M")
        job = cluster.submit(*options, wrap=WORK)
        cluster.wait(lambda: cluster.state(job) == "COMPLETED", 120)
        # Slurm posts when its buffer is full or the task ends.
        cluster.wait(lambda: {"0", "1"} <= {m.tags.get("taskid") for m in written(tmp_path)
                                            if m.tags["stepid"] == "0"})  # fmt: skip
    finally:
        bridge.terminate()
        assert bridge.wait(30) == 0
    found = [from_metric(message) for message in written(tmp_path)]
    assert {one.job for one in found} == {str(job)}
    assert {one.step for one in found} == {"0", "batch"}
    assert {(one.node, one.series) for one in found} == {("c1", "Tasks")}
    peak = max(one.value for one in found if (one.step, one.field) == ("0", "RSS"))
    cluster.wait(lambda: bool(cluster.sacct(f"{job}.0", "MaxRSS").get("MaxRSS")))
    max_rss = int(cluster.sacct(f"{job}.0", "MaxRSS")["MaxRSS"])
    assert peak * 1024 == pytest.approx(max_rss, rel=0.2)
    assert peak > 80 * 1024
