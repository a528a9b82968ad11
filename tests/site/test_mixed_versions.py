"""Nodes and bridges of c69553a9 and of this version on one broker: nothing is lost."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import tomllib
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import duckdb
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus
from ccpipe.process.die_with_parent import die_with_parent
from tests.bus.nats.conftest import connected
from tests.cli.command import command, environment
from tests.paths import ROOT

pytestmark = pytest.mark.site

FORMER = "c69553a9"
VERSIONS = ("former", "present")
MAX_WAIT = {"former": "CCPIPE_BATCH__AGE", "present": "CCPIPE_BATCH__MAX_WAIT"}
"""The key of the time until a batch is stored."""


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the former version from git; its libraries are those of this version."""
    directory = tmp_path_factory.mktemp("former")
    archive = subprocess.run(
        ["git", "archive", FORMER, "ccpipe", "pyproject.toml", "bridges"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout  # fmt: skip
    subprocess.run(["tar", "x", "-C", directory], input=archive, check=True)
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    info = directory / "ccpipe-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ccpipe\nVersion: 0.1.0\n")
    with (info / "entry_points.txt").open("w") as file:
        for group, points in project["entry-points"].items():
            file.write(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    return directory


class Cluster:
    """Processes of both versions on one broker."""

    def __init__(self, directory: Path, former: Path, server: NatsServer) -> None:
        self.directory, self.former, self.server = directory, former, server

    async def start(self, version: str, *arguments: object, **environ: str) -> Process:
        own = {
            "CCPIPE_CLUSTER": "fritz", "CCPIPE_HOSTNAME": version,
            "CCPIPE_BUS__SERVERS": self.server.url,
            "XDG_STATE_HOME": str(self.directory / version),
        }  # fmt: skip
        if version == "former":
            own["PYTHONPATH"] = str(self.former)
        return await asyncio.create_subprocess_exec(
            *command(*arguments), env=environment(**own, **environ), cwd=self.directory,
            stderr=PIPE, preexec_fn=die_with_parent,
        )  # fmt: skip

    async def bridge(self, version: str, name: str) -> Process:
        """Start a bridge to Parquet files in a directory of its name."""
        options = {
            "CCPIPE_SOURCE__DURABLE": name, "CCPIPE_SINK__DIR": str(self.stored(name)),
            MAX_WAIT[version]: "1s",
        }  # fmt: skip
        recipe = (self.former if version == "former" else ROOT) / "bridges/parquet.toml"
        return await self.start(version, "bridge", recipe, **options)

    def stored(self, name: str) -> Path:
        return self.directory / f"stored-{name}"

    async def unread(self) -> dict[str, int]:
        """Return how many messages each bridge has not stored yet."""
        with contextlib.suppress(Exception):  # the broker may be restarting
            async with connected(Bus(servers=[self.server.url])) as bus:
                found = await bus.jetstream().consumers_info("ccpipe-fritz")
            return {c.name: (c.num_pending or 0) + (c.num_ack_pending or 0) for c in found}
        return {}

    def lines(self, name: str) -> dict[str, int]:
        """Return how many metrics of each node a bridge has stored."""
        query = f"""
            SELECT hostname, count(*) FROM read_parquet('{self.stored(name)}/**/*.parquet')
            WHERE value IS NOT NULL GROUP BY 1
        """  # noqa: S608
        return dict(duckdb.execute(query).fetchall())


@pytest.fixture
def cluster(tmp_path: Path, former: Path, nats_server: NatsServer) -> Cluster:
    return Cluster(tmp_path, former, nats_server)


async def ended(process: Process) -> str:
    """Stop a process; return its log."""
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, log.decode()
    return log.decode()


async def test_nodes_and_bridges_of_both_versions_lose_nothing(cluster: Cluster) -> None:
    """While the broker is killed, and one bridge is replaced by one of this version."""
    bridges = {version: await cluster.bridge(version, version) for version in VERSIONS}
    while (await cluster.unread()).keys() != bridges.keys():
        await asyncio.sleep(0.1)
    nodes = {
        version: await cluster.start(version, "publish", CCPIPE_PUBLISH__INTERVAL="1s")
        for version in VERSIONS
    }
    await asyncio.sleep(5)
    assert cluster.server.pid is not None
    os.kill(cluster.server.pid, signal.SIGKILL)
    await asyncio.sleep(5)
    await ended(bridges["former"])
    await asyncio.sleep(2)
    bridges["former"] = await cluster.bridge("present", "former")
    written = {}
    for version, node in nodes.items():
        found = re.search(r"publisher: (\d+) records read, (\d+) written", await ended(node))
        assert found
        assert found[1] == found[2]
        written[version] = int(found[1])
    while await cluster.unread() != dict.fromkeys(VERSIONS, 0):
        await asyncio.sleep(0.1)
    for bridge in bridges.values():
        await ended(bridge)
    assert min(written.values()) > 100
    assert cluster.lines("former") == cluster.lines("present") == written
