"""ClusterCockpit's own programs, where they were built: what tests beside them share."""

import asyncio
import shutil
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.process.die_with_parent import die_with_parent
from tests.cli.command import command, environment
from tests.paths import ROOT, TEST_DATA

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


async def send_grid_engines_jobs(folder: Path, server: NatsServer) -> None:
    """Send starts and stops of all jobs by the recipe as it stands; `folder` keeps its files."""
    shutil.copy(TEST_DATA / "gridengine/accounting", folder)
    shutil.copy(TEST_DATA / "gridengine/derived.jsonl", folder / "accounting.jsonl")
    text = (ROOT / "bridges/gridengine.toml").read_text()
    for old in ("/opt/sge/default/common/", "/var/lib/ccpipe/"):
        text = text.replace(old, f"{folder}/")
    (folder / "recipe.toml").write_text(text)
    (folder / "ccpipe.toml").write_text(CONFIGURATION)
    arguments = ("bridge", folder / "recipe.toml", "--config", folder / "ccpipe.toml")
    bridge = await asyncio.create_subprocess_exec(
        *command(*arguments),
        env=environment(CCPIPE_BUS__SERVERS=server.url, CCPIPE_SOURCE__ONCE="true"),
        preexec_fn=die_with_parent,
    )
    assert await asyncio.wait_for(bridge.wait(), 60) == 0
