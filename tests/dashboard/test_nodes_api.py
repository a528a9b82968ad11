"""Silent nodes: acknowledged by a request, and kept over a restart."""

import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ccpipe.config import Site
from ccpipe.dashboard.nodes_api import SilentNodes
from ccpipe.dashboard.server import DashboardServer
from ccpipe.live.feed import LiveFeed
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.dashboard.conftest import Served

LINE = "load,cluster=fox.test,hostname={},type=node value=1 1740027951"


async def acknowledge(server: DashboardServer, nodes: object) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}api/nodes/acknowledge", data=json.dumps(nodes)) as answer,
    ):
        return answer.status, await answer.text()


async def silence(live: Served, *names: str) -> None:
    """Make nodes silent, as if their last metrics had arrived an hour ago."""
    await live.say("metrics", *[LINE.format(name) for name in names])
    nodes = live.state.nodes.nodes
    await eventually(lambda: all(("fox.test", name) in nodes for name in names))
    for name in names:
        nodes["fox.test", name].seen -= 3600
    live.feed.update()


async def test_acknowledged_node_is_not_listed_until_it_sends(live: Served) -> None:
    """The answer has the number of nodes that were silent."""
    await silence(live, "n1", "n2")
    asked = [["fox.test", "n1"], ["fox.test", "n1"], ["fox.test", "other"]]
    assert await acknowledge(live.server, {"nodes": asked}) == (200, '{"acknowledged": 1}')
    assert [node.id[1] for node in live.state.nodes.in_order()] == ["n2"]
    await live.say("metrics", LINE.format("n1"))
    await eventually(lambda: len(live.state.nodes.in_order()) == 2)


@pytest.mark.parametrize("body", ["x", {}, {"nodes": [["a"]]}, {"nodes": [], "more": 1}])
async def test_malformed_acknowledgement_is_refused(live: Served, body: object) -> None:
    """With the reason."""
    status, text = await acknowledge(live.server, body)
    assert status == 400
    assert "not an acknowledgement" in text


async def test_silent_nodes_are_kept_over_restart(live: Served, site: Site, tmp_path: Path) -> None:
    """With the time of their last metrics; not the ones that were acknowledged."""
    path = tmp_path / "state" / "silent.json"
    async with DashboardServer(live.feed, listen="127.0.0.1:0", silent_nodes=path) as server:
        await silence(live, "n1", "n2")
        await acknowledge(server, {"nodes": [["fox.test", "n2"]]})
    assert path.stat().st_mode & 0o777 == 0o600
    async with (
        LiveFeed(site, Telemetry(), name="dashboard") as feed,
        DashboardServer(feed, listen="127.0.0.1:0", silent_nodes=path),
    ):
        feed.state.nodes.tick(time.time())
        [node] = feed.state.nodes.silent
        assert node.id == ("fox.test", "n1")
        assert 3600 <= time.time() - node.seen < 3700


@pytest.mark.parametrize("content", [b"", b"[[1]]", b"\xff", b'[["c","n1",1e999,1]]'])
async def test_damaged_file_of_silent_nodes_is_reported(
    site: Site, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The dashboard starts without them."""
    path = tmp_path / "silent.json"
    path.write_bytes(content)
    feed = LiveFeed(site, Telemetry(), name="dashboard")
    SilentNodes(feed, path).restore()
    assert feed.state.nodes.in_order() == []
    assert "silent nodes of the last run are not shown" in caplog.text
