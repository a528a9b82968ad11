"""``ccpipe top`` on a real broker: by keys, and with ``--once`` for programs."""

import asyncio
import json
import os
import signal

import nats
import pytest
from nats.aio.client import Client
from textual.pilot import Pilot
from textual.widgets import DataTable

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.console.options import BrokerOptions
from ccpipe.cli.top import command
from ccpipe.cli.top.screen import Top
from ccpipe.cli.top.tables import as_json, new_state
from ccpipe.config import Bus, Site
from ccpipe.errors import DeniedError
from ccpipe.live.feed import LiveFeed
from ccpipe.telemetry import Telemetry
from tests.cli.top.messages import NODE, job_event


def app_for(server: NatsServer, url: str = "") -> Top:
    site = Site(bus=Bus(servers=[url or server.url]))
    return Top(LiveFeed(site, Telemetry(), new_state(), name="top"), interval=0.1)


def rows(app: Top) -> list[list[str]]:
    table = app.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(number)] for number in range(table.row_count)]


async def shows(pilot: Pilot[None], app: Top, *wanted: str) -> None:
    for _ in range(600):
        await pilot.pause(0.05)
        if any(all(text in row for text in wanted) for row in rows(app)):
            return
    raise AssertionError(f"{wanted} are not in {rows(app)}")


async def failure(app: Top) -> Exception | None:
    async with app.run_test() as pilot:
        for _ in range(600):
            await pilot.pause(0.05)
            if app.failure is not None:
                break
    return app.failure


async def publish(client: Client) -> None:
    start = job_event("start_job", user="ann", resources=[{"hostname": "e1"}], startTime=900)
    while True:
        await client.publish("fritz.metrics", NODE)
        await client.publish("fritz.events.job", start)
        await client.publish("fritz.dead", b"x", headers={"Ccpipe-Reason": "no [bold]good"})
        await asyncio.sleep(0.1)


async def test_screen_switches_tables_by_keys(nats_server: NatsServer) -> None:
    """Each table by its number, the nodes of a cluster by Enter, a filter, and back."""
    client = await nats.connect(nats_server.url)
    publishing = asyncio.create_task(publish(client))
    app = app_for(nats_server)
    try:
        async with app.run_test(size=(110, 20)) as pilot:
            await shows(pilot, app, "fritz", "2")
            heads = [str(each.label) for each in app.query_one(DataTable).columns.values()]
            assert heads[:3] == ["CLUSTER", "NODES", "SILENT"]
            await pilot.press("enter")
            await shows(pilot, app, "fritz", "e1", "3.5")
            assert app.view == "nodes"
            await pilot.press("slash", *"e2", "enter")
            await shows(pilot, app, "e2")
            assert len(rows(app)) == 1
            await pilot.press("escape", "3")
            await shows(pilot, app, "7", "ann", "running")
            await pilot.press("enter")
            await shows(pilot, app, "e1", "3.5")
            await pilot.press("escape", "4")
            await shows(pilot, app, "e1", "80 %")
            await pilot.press("5")
            await shows(pilot, app, "no [bold]good")
            await pilot.press("2", "s", "r")
            assert (app.sort["nodes"], app.reverse) == (3, True)
            assert "2 nodes" in app.status()
            await pilot.press("q")
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await client.close()


async def test_top_ends_when_server_denies_access(nats_server: NatsServer) -> None:
    """With the reason, not an empty screen."""
    app = app_for(nats_server, nats_server.url.replace("ccpipe:", "ccpipe:wrong"))
    assert isinstance(await failure(app), DeniedError)


async def test_screen_ends_when_feed_fails_unexpectedly(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen that no longer changes would look like a quiet cluster."""

    async def fail(*_: object) -> None:
        raise KeyError("unexpected")

    monkeypatch.setattr(LiveFeed, "run", fail)
    assert isinstance(await failure(app_for(nats_server)), KeyError)


async def test_screen_writes_only_changed_cells(nats_server: NatsServer) -> None:
    app = app_for(nats_server)
    async with app.run_test(size=(110, 20)) as pilot:
        app.feed.state.feed_dead(Delivery("fritz.dead", b"x"), 1.0)
        await shows(pilot, app, "fritz")
        table = app.query_one(DataTable)
        before = table._update_count
        app.draw()
        app.draw()
        assert table._update_count == before


async def test_top_once_prints_all_tables_as_json(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After listening for a while; jobs that started before are known from stored events."""
    state = new_state()
    monkeypatch.setattr(command, "new_state", lambda: state)
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    await stream.add_stream(name="all", subjects=["fritz.events.*"])
    await stream.publish("fritz.events.job", job_event("start_job", user="ann", resources=[]))
    where = BrokerOptions(server=nats_server.url)
    running = asyncio.create_task(command.top(where=where, once=True, output="json", for_="300s"))
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


async def test_top_once_prints_table_with_heads_in_capitals(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the other commands do; names in JSON are in small letters."""
    where = BrokerOptions(server=nats_server.url)
    await command.top(where=where, view="errors", once=True, for_="5s")
    assert capsys.readouterr().out.split() == ["AGE", "FROM", "TEXT"]
