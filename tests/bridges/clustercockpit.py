"""ClusterCockpit's own programs, if they were built, shared by tests."""

import asyncio
import contextlib
import shutil
import signal
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.process.die_with_parent import die_with_parent
from tests.bridges.recipes import changed, completed
from tests.paths import TEST_DATA

CLUSTER = "fritz"
JOBS = 143
"""In the accounting files of ``tests/data/gridengine``."""

JOB_SUBJECT = "cc.job.event"
CONFIGURATION = f"""
cluster = "{CLUSTER}"
[bus.subjects]
events.job = "{JOB_SUBJECT}"
events.nodestate = "cc.node.state"
"""


def peer(name: str) -> Path:
    """Return a program of ClusterCockpit; no package brings it, so the test is skipped without."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on PATH: build github.com/ClusterCockpit/{name} with Go")
    return Path(path)


@contextlib.asynccontextmanager
async def running(
    name: str, directory: Path, level: str, *, end: signal.Signals = signal.SIGKILL
) -> AsyncIterator[Path]:
    """Run a program of ClusterCockpit in the directory of its configuration; yield its log."""
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            peer(name), "-loglevel", level, cwd=directory, stdout=output, stderr=output,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        yield log
    finally:
        process.send_signal(end)
        await process.wait()


def job_receiver(nats: str) -> dict[str, Any]:
    """Return the configuration of what receives job events, in the terms of cc-lib."""
    address = urllib.parse.urlsplit(nats)
    return {
        "jobs": {
            "type": "nats",
            "address": address.hostname,
            "port": str(address.port),
            "user": address.username or "",
            "password": address.password or "",
            "subject": JOB_SUBJECT,
        }
    }


async def send_grid_engines_jobs(directory: Path, server: NatsServer) -> None:
    """Send starts and stops of all jobs by the shipped recipe; `directory` keeps its files."""
    shutil.copy(TEST_DATA / "gridengine/accounting", directory)
    shutil.copy(TEST_DATA / "gridengine/derived.jsonl", directory / "accounting.jsonl")
    own = {'"/opt/sge/default/common/': f'"{directory}/'}
    arguments = (
        "bridge",
        changed("gridengine.toml", directory, own),
        "--config",
        directory / "cc.toml",
    )
    (directory / "cc.toml").write_text(CONFIGURATION)
    environ = {"CCPIPE_BUS__SERVERS": server.url, "CCPIPE_SOURCE__FOLLOW": "false"}
    await completed(*arguments, **environ)
