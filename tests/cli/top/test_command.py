"""``ccpipe top --once``: for programs, and where there is no terminal."""

import asyncio
import json

import nats

from ccpipe.bus.nats.server import NatsServer
from tests.cli.command import ccpipe
from tests.cli.top.messages import NODE, job_event


async def test_once_prints_all_tables_as_json(nats_server: NatsServer) -> None:
    """After listening for a while; jobs that started before are known from what is stored."""
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    await stream.add_stream(name="all", subjects=["fritz.events.*"])
    await stream.publish("fritz.events.job", job_event("start_job", user="ann", resources=[]))
    running = asyncio.create_task(
        asyncio.to_thread(
            ccpipe, "top", "--once", "-o", "json", "--for", "4s", "--server", nats_server.url
        )
    )
    while not running.done():
        await client.publish("fritz.metrics", NODE)
        await asyncio.sleep(0.1)
    await client.close()
    shown = await running
    assert shown.code == 0, shown.err
    read = json.loads(shown.out)
    assert [node["node"] for node in read["nodes"]] == ["e1", "e2"]
    assert [(job["job"], job["user"]) for job in read["jobs"]] == [(7, "ann")]
    assert read["gpus"][0]["used"] == 80


def test_without_a_server_it_fails(unused_port: int) -> None:
    """An empty table would look like an idle cluster."""
    shown = ccpipe("top", "--once", "--for", "500ms", "--server", f"nats://127.0.0.1:{unused_port}")
    assert (shown.code, shown.out) == (69, "")
