"""Every command that may take longer than two seconds shows on a terminal that it works."""

import asyncio
import os
import pty
import re
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.cli import COMMANDS
from ccpipe.cli.app import app
from ccpipe.cli.console.help import subcommands
from ccpipe.config import Bus, Site
from ccpipe.formats import dead_letters
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.jobs import Job, JobNode, message
from ccpipe.message import metric
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.cli.command import environment
from tests.conftest import eventually
from tests.paths import ROOT, TEST_DATA

AT_ONCE = (
    "import sys, ccpipe.terminal; ccpipe.terminal.PROGRESS_DELAY = 0.0;"
    " from ccpipe.cli import main; main()"
)
"""The command, which does not wait for two seconds before it shows anything."""
PROGRESS = re.compile(r"\r\x1b\[K(?!connecting)[^\r\x1b\n]+")

LOG = {"up", "publish", "bridge", "dashboard"}
"""Run until they are stopped, and log."""
PRINT = {"tail", "step"}
"""Print what arrives, or why nothing does; run another command."""
QUICK = {
    "init", "config show", "plugins", "help", "version", "completion",
    "nodelist expand", "nodelist compress", "nodelist count",
}  # fmt: skip

PROFILES = TEST_DATA / "slurm_profile"
JOB = ["--input", PROFILES / "merged/job_17.h5", "--series", "Tasks"]
NODE_STEPS = [word for path in sorted((PROFILES / "node-step/alice").glob("17_0_*.h5"))
              for word in ("--input", path)]  # fmt: skip
WORDS: dict[str, list[object]] = {
    "acct gridengine": [TEST_DATA / "gridengine/accounting"],
    "acct slurm": [TEST_DATA / "slurm/snapshots/sacct.1795171119.txt"],
    "acct index": [TEST_DATA / "gridengine/accounting", "--dir", "index"],
    "auth init": ["keys", "--node", "n1"],
    "backfill": ["a.lp", "--from", "file", "--to", "null.toml"],
    "check dead-letters": [], "check freshness": [], "check lag": [], "check streams": [],
    "config clustercockpit": ["--since", "1h"],
    "control get": ["--timeout", "100ms"],
    "control set": ["interval", "1s", "--node", "n1", "--timeout", "100ms"],
    "convert": ["a.lp", "--to", "json"],
    "dead-letters list": [], "dead-letters show": [], "dead-letters replay": ["dead.lp"],
    "doctor": [],
    "hdf5 extract": JOB, "hdf5 items": [*JOB, "--data", "RSS"], "hdf5 list": JOB,
    "hdf5 merge": [*NODE_STEPS, "--out", "merged.h5"], "hdf5 publish": JOB,
    "hdf5 show": [*JOB, "--out", "job.svg"],
    "jobs": ["--all"],
    "query": ["SELECT count(*) FROM range(10000000000) AS a"],
    "send": ["a.lp"],
    "simulate": ["--nodes", "2", "--interval", "1s", "--duration", "3s"],
    "streams apply": [], "streams show": [],
    "top": ["--once", "--for", "100ms"],
    "validate": ["a.lp", "null.toml"],
}  # fmt: skip
"""A use of each of the other commands."""
UNTIL_SHOWN = {"query"}
"""Ended once progress was shown."""


def test_every_command_is_known_here() -> None:
    names = {f"{name} {sub}".strip() for name in COMMANDS for sub in subcommands(app[name]) or [""]}
    assert names == {*LOG, *PRINT, *QUICK, *WORDS}


@pytest.fixture
async def where(nats_server: NatsServer, tmp_path: Path) -> dict[str, str]:
    """Write files, and store metrics, a job and a dead letter; return commands' environment."""
    (tmp_path / "a.lp").write_text("m,cluster=c,hostname=n1,type=node value=1 1740027951\n")
    (tmp_path / "dead.lp").write_bytes(dead_letters.encode(b"m,hostname=n value=1", "no", time=1))
    (tmp_path / "null.toml").write_text('[source]\nuse = "null"\n[sink]\nuse = "null"\n')
    site = Site(cluster="c", bus=Bus(servers=[nats_server.url]))
    telemetry, now = Telemetry(), time.time_ns()
    job = Job(cluster="c", id=1, user="anna", state="running", start=now, nodes=(JobNode("n1"),))
    sent = [message("start_job", job), metric("m", 1.0, time=now, tags={"hostname": "n1"})]
    source = NatsSource(site=site, telemetry=telemetry, durable="b")
    async with source, NatsSink(site=site, telemetry=telemetry) as sink:
        await source.start()
        await eventually(lambda: bool(source.stream))
        await sink.write(to_lines(sent))
        await NatsDeadLetterSink(source.bus, site).write([DeadLetter(b"x", "why")])
        source.stop()
    return {
        "CCPIPE_CLUSTER": "c", "CCPIPE_BUS__SERVERS": nats_server.url, "PYTHONPATH": str(ROOT),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip


def shown(words: list[str], directory: Path, given: dict[str, str], *, is_endless: bool) -> str:
    """Return what a command writes on the terminal that its stderr is."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen(
        [sys.executable, "-c", AT_ONCE, *words], cwd=directory, env=environment(**given),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    text = ""
    try:
        while piece := os.read(ours, 65536):
            text += piece.decode(errors="replace")
            if is_endless and PROGRESS.search(text):
                process.terminate()
    except OSError:
        pass  # Linux reports this when the other side has closed
    finally:
        os.close(ours)
        process.wait(60)
    return text


@pytest.mark.timeout(600)
async def test_command_shows_progress_on_terminal(where: dict[str, str], tmp_path: Path) -> None:
    """Each of them, if anything takes its time."""
    limit = asyncio.Semaphore(2)

    async def run(name: str) -> str:
        words = [*name.split(), *map(str, WORDS[name])]
        async with limit:
            return await asyncio.to_thread(
                shown, words, tmp_path, where, is_endless=name in UNTIL_SHOWN
            )

    texts = dict(zip(WORDS, await asyncio.gather(*map(run, WORDS)), strict=True))
    missing = {name: text for name, text in texts.items() if not PROGRESS.search(text)}
    assert not missing
