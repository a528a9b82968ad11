"""``ccpipe top --once``: for programs, and where there is no terminal."""

import asyncio
import json
import os
import signal

import nats
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.console.options import LoginOptions
from ccpipe.cli.top import command
from ccpipe.cli.top.tables import as_json, new_state
from tests.cli.top.messages import NODE, job_event


async def test_once_prints_all_tables_as_json(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After listening for a while; jobs that started before are known from what is stored."""
    state = new_state()
    monkeypatch.setattr(command, "new_state", lambda: state)
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    await stream.add_stream(name="all", subjects=["fritz.events.*"])
    await stream.publish("fritz.events.job", job_event("start_job", user="ann", resources=[]))
    login = LoginOptions(server=nats_server.url)
    running = asyncio.create_task(command.top(login=login, once=True, output="json", for_="300s"))
    while not all(as_json(state)[name] for name in ("nodes", "jobs", "gpus")):
        await client.publish("fritz.metrics", NODE)
        await asyncio.sleep(0.1)
        assert not running.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    await client.close()
    read = json.loads(capsys.readouterr().out)
    assert [node["node"] for node in read["nodes"]] == ["e1", "e2"]
    assert [(job["job"], job["user"]) for job in read["jobs"]] == [(7, "ann")]
    assert read["gpus"][0]["used"] == 80
