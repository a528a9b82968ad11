"""ClusterCockpit's own programs, where they were built: what tests beside them share."""

import shutil
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
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


async def send_grid_engines_jobs(folder: Path, server: NatsServer) -> None:
    """Send starts and stops of all jobs by the recipe as it stands; `folder` keeps its files."""
    shutil.copy(TEST_DATA / "gridengine/accounting", folder)
    shutil.copy(TEST_DATA / "gridengine/derived.jsonl", folder / "accounting.jsonl")
    own = {'"/opt/sge/default/common/': f'"{folder}/'}
    arguments = ("bridge", changed("gridengine.toml", folder, own), "--config", folder / "cc.toml")
    (folder / "cc.toml").write_text(CONFIGURATION)
    environ = {"CCPIPE_BUS__SERVERS": server.url, "CCPIPE_SOURCE__ONCE": "true"}
    await completed(*arguments, **environ)
