"""Which metrics are sent, from the bus; those of a node are in ``test_clustercockpit.py``."""

import asyncio
import json
import time

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, metric
from ccpipe.telemetry import Telemetry
from tests.cli.command import ccpipe


async def test_what_nodes_sent_is_read_from_the_bus(nats_server: NatsServer, site: Site) -> None:
    """What was stored in the time that is asked for, of all nodes of the cluster."""
    now = time.time_ns()

    def sent(name: str, node: str, kind: str, seconds: int) -> Message:
        tags = {"cluster": site.cluster, "hostname": node, "type": kind, "type-id": "0"}
        return metric(name, 1.0, time=now - seconds * 10**9, tags=tags)

    records = [
        sent("mem_used", "n1", "node", 5),
        sent("cpu_user", "n1", "node", 5),
        sent("cpu_user", "n2", "hwthread", 5),
        sent("nv_util", "gpu1", "accelerator", 5),
        sent("own", "n1", "node", 5),
    ]
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        while not sink.bus.is_connected:
            await asyncio.sleep(0.01)
        await sink.write(to_lines(records))
    done = await asyncio.to_thread(
        ccpipe, "config", "clustercockpit", "--since", "1h",
        "--server", nats_server.url, "--cluster", site.cluster,
    )  # fmt: skip
    assert done.code == 0, done.err
    found = {each["name"]: each["scope"] for each in json.loads(done.out)["metricConfig"]}
    assert found == {"mem_used": "node", "cpu_user": "hwthread", "nv_util": "accelerator"}
    assert "own" in done.err
