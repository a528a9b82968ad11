"""A cluster of ``scripts/slurm_cluster.py`` for tests, and its bridges."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message
from tests.paths import ROOT

SCRIPT = ROOT / "scripts" / "slurm_cluster.py"

LINUX = ("ProctrackType=proctrack/cgroup", "JobAcctGatherType=jobacct_gather/linux")
CGROUP = (
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/cgroup",
    "JobAcctGatherType=jobacct_gather/cgroup",
    "AcctGatherProfileType=acct_gather_profile/hdf5",
)
"""Lines of slurm.conf: the two plug-ins of accounting. Few clusters, since each takes 15 s."""

SOURCE = """
cluster = "fox"
hostname = "master"
[source]
use = "slurm"
state_file = "{directory}/{name}-source.state"
poll_interval = "3s"
node_interval = "3s"
job_script = true
slurm_info = true
"""
EVENTS = """
[[translate]]
use = "slurm_to_cc"
state_file = "{directory}/{name}.state"
stop_delay = "100ms"
gpu_ids = {{ "gpu-1" = ["0000:49:00.0", "0000:4a:00.0"] }}
"""
ENVELOPES = """
[[translate]]
use = "slurm_to_sonar"
[[translate]]
use = "sonar_to_cc"
jobs = false
"""
"""Each envelope is the payload of an event ``sonar``."""
SINK = """
[sink]
use = "file"
path = "{directory}/{name}.line"
"""
RECIPES = {"events": SOURCE + EVENTS + SINK, "envelopes": SOURCE + ENVELOPES + SINK}


class Cluster:
    """The cluster of ``scripts/slurm_cluster.py``, and two bridges that watch it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.slurm = directory / "slurm"
        self.environment = {**os.environ, "SLURM_CONF": str(self.slurm / "slurm.conf"), "TZ": "UTC"}
        for name, text in RECIPES.items():
            (directory / f"{name}.toml").write_text(text.format(directory=directory, name=name))
        self.bridges: list[subprocess.Popen[bytes]] = []
        self.log = (directory / "bridge.log").open("ab")

    def control(self, *words: str) -> None:
        what, *rest = words
        subprocess.run(
            [sys.executable, str(SCRIPT), what, str(self.slurm), *rest], check=True, timeout=200
        )

    def run(self, *words: str) -> str:
        return subprocess.run(
            words, env=self.environment, check=True, capture_output=True, text=True, timeout=60,
            cwd="/",
        ).stdout  # fmt: skip

    def submit(self, *words: str, wrap: str = "sleep 3") -> int:
        options = ("--parsable", "--output", "/dev/null", *words, "--wrap", wrap)
        return int(self.run("sbatch", *options).partition(";")[0])

    def state(self, job: int) -> str:
        return self.run("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").strip()

    def wait_for_state(self, job: int, state: str) -> None:
        self.wait(lambda: self.state(job) == state)

    def sacct(self, step: str, *columns: str) -> dict[str, str]:
        options = ("-nP", "--noconvert", "-j", step, "-o", ",".join(columns))
        (row,) = self.run("sacct", *options).splitlines() or [""]
        return dict(zip(columns, row.split("|"), strict=True)) if row else {}

    def start_bridges(self) -> None:
        for name in RECIPES:
            bridge = subprocess.Popen(
                [sys.executable, "-m", "ccpipe", "bridge", str(self.directory / f"{name}.toml")],
                env=self.environment, stdout=self.log, stderr=self.log, cwd=ROOT,
            )  # fmt: skip
            self.bridges.append(bridge)

    def end_bridges(self, with_signal: signal.Signals) -> None:
        while self.bridges:
            bridge = self.bridges.pop()
            bridge.send_signal(with_signal)
            bridge.wait(30)

    def close(self) -> None:
        self.end_bridges(signal.SIGKILL)
        self.log.close()

    def messages(self, name: str = "events") -> list[Message]:
        path = self.directory / f"{name}.line"
        return list(decode(path.read_bytes())) if path.exists() else []

    def events(self, name: str) -> list[dict[str, Any]]:
        return [
            {**json.loads(str(message.value)), "function": message.tags["function"]}
            for message in self.messages()
            if message.name == name
        ]

    def starts(self) -> list[dict[str, Any]]:
        return [event for event in self.events("job") if event["function"] == "start_job"]

    def stops(self) -> list[dict[str, Any]]:
        return [event for event in self.events("job") if event["function"] == "stop_job"]

    def wait(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (self.directory / "bridge.log").read_text()[-3000:]
            time.sleep(0.3)


def seconds(text: str) -> float:
    """Read ``HH:MM:SS`` or ``MM:SS.mmm``; nothing is 0."""
    total = 0.0
    for part in re.split("[-:]", text or "0"):
        total = total * 60 + float(part)
    return total
