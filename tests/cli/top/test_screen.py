"""``ccpipe top`` on a real broker: by keys, and with ``--once`` for programs."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from typing import NamedTuple

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
from ccpipe.cli.top.tables import VIEWS, as_json, new_state
from ccpipe.config import Bus, Site
from ccpipe.errors import DeniedError
from ccpipe.live.feed import LiveFeed
from ccpipe.telemetry import Telemetry
from tests.cli.command import command as words
from tests.cli.command import environment, on_terminal
from tests.cli.top.messages import NODE, job_event
from tests.conftest import free_port


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


WAITING = (
    b"jobpending,cluster=fritz,function=jobpending "
    b'event="{\\"cluster\\":\\"fritz\\",\\"pending\\":[{\\"jobId\\":8,\\"arrayTasks\\":20}]}"\n'
)


async def publish(client: Client) -> None:
    nodes = [{"hostname": "e1"}, {"hostname": "e2"}]
    start = job_event("start_job", user="ann", resources=nodes, startTime=900)
    other = NODE.replace(b"hostname=e", b"hostname=f")
    while True:
        await client.publish("fritz.metrics", NODE + other)
        await client.publish("fritz.events.job", start)
        await client.publish("fritz.events.jobpending", WAITING)
        await client.publish("fritz.dead", b"x", headers={"Ccpipe-Reason": "no [bold]good"})
        await asyncio.sleep(0.1)


async def test_screen_switches_tables_by_keys(nats_server: NatsServer) -> None:
    """Each table by its number, the nodes of a cluster by Enter, a filter, and back."""
    client = await nats.connect(nats_server.url)
    publishing = asyncio.create_task(publish(client))
    app = app_for(nats_server)
    try:
        async with app.run_test(size=(110, 20)) as pilot:
            await shows(pilot, app, "fritz", "4")
            heads = [str(each.label) for each in app.query_one(DataTable).columns.values()]
            assert heads[:3] == ["CLUSTER", "NODES", "SILENT"]
            await pilot.press("enter")
            await shows(pilot, app, "e1", "busy", "3.5")
            assert app.view == "nodes"
            await pilot.press("slash", *"e2", "enter")
            await shows(pilot, app, "e2")
            assert len(rows(app)) == 1
            await pilot.press("escape", "3")
            await shows(pilot, app, "7", "ann", "running")
            await pilot.press("4")
            await shows(pilot, app, "e1", "████   80%")
            await pilot.press("5")
            await shows(pilot, app, "no [bold]good")
            await pilot.press("2", "s", "r")
            assert (app.sort["nodes"], app.reverse) == (4, True)
            assert "4 nodes  1 job  20 waiting" in app.status()
            await pilot.press("q")
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await client.close()


async def test_enter_on_job_shows_values_of_its_nodes(nats_server: NatsServer) -> None:
    """Of several nodes, and no others; Escape goes back to the row from which it came."""
    client = await nats.connect(nats_server.url)
    publishing = asyncio.create_task(publish(client))
    app = app_for(nats_server)
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("2")
            await shows(pilot, app, "f2")
            await pilot.press("3")
            await shows(pilot, app, "7", "ann")
            await pilot.press("enter")
            await shows(pilot, app, "e1", "busy", "3.5")
            await shows(pilot, app, "e2", "busy")
            assert len(rows(app)) == 2
            assert app.status().startswith("job 7: ann, running, ")
            await pilot.press("down", "enter")
            await shows(pilot, app, "7", "ann")
            assert app.status().startswith("node fritz/e")
            await pilot.press("escape")
            await shows(pilot, app, "e2")
            await pilot.pause()
            assert app.query_one(DataTable).cursor_row == 1
            await pilot.press("escape")
            await shows(pilot, app, "7", "ann")
            assert app.origin is None
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await client.close()


def drawn(app: Top) -> list[str]:
    """Return the lines of the screen."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


@pytest.mark.parametrize("view", ["clusters", "nodes", "jobs", "gpus"])
async def test_tables_fit_terminal_of_80_columns(nats_server: NatsServer, view: str) -> None:
    """With bars, the column of the order and all keys; a wider screen has more columns."""
    client = await nats.connect(nats_server.url)
    publishing = asyncio.create_task(publish(client))
    app = app_for(nats_server)
    app.view = view
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(pilot, app)
            while not any("█" in line for line in drawn(app)):
                await pilot.pause(0.05)
            table = app.query_one(DataTable)
            assert table.virtual_size.width <= 80
            assert drawn(app)[-1].endswith("q quit")
            narrow = len(table.columns)
            await pilot.resize_terminal(200, 24)
            while len(table.columns) < len(VIEWS[view].columns):
                await pilot.pause(0.05)
            assert len(table.columns) >= narrow
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await client.close()


class Session(NamedTuple):
    """What a program drew on a terminal, and how it ended."""

    code: int
    seconds: float
    drawn: str
    is_restored: bool


def on_screen(url: str, act: bytes | signal.Signals, **environ: str) -> Session:
    """Run ``top`` on a terminal; press keys or send a signal once it has drawn."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        ["setsid", "--ctty", *words("top", "--server", url)],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**environ),
    )  # fmt: skip
    drawn, since = b"", 0.0
    while process.poll() is None:
        if select.select([ours], [], [], 0.05)[0]:
            drawn += os.read(ours, 65536)
        if not since and "q quit" in "".join(ANSI.split(drawn.decode(errors="ignore"))):
            since = time.monotonic()
            if isinstance(act, bytes):
                os.write(ours, act)
            else:
                process.send_signal(act)
        assert not since or time.monotonic() - since < 60
    seconds = time.monotonic() - since
    while select.select([ours], [], [], 0)[0]:
        drawn += os.read(ours, 65536)
    is_restored = termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
    return Session(process.returncode, seconds, drawn.decode(), is_restored)


ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
"""Enter and leave the terminal's second screen."""


@pytest.mark.parametrize("act", [b"q", b"\x03", signal.SIGTERM])
async def test_top_quits_at_once_and_restores_terminal(
    nats_server: NatsServer, act: bytes | signal.Signals
) -> None:
    """By q, Ctrl-C and SIGTERM, with exit code 0."""
    session = await asyncio.to_thread(on_screen, nats_server.url, act)
    assert session.code == 0
    assert session.is_restored
    assert LEAVE in session.drawn
    assert session.seconds < 20  # under load; otherwise a quarter of one


async def test_log_is_printed_after_screen_is_left() -> None:
    """A line on the screen would stay between the rows."""
    url = f"nats://127.0.0.1:{free_port()}"
    session = await asyncio.to_thread(on_screen, url, b"q", CCPIPE_LOGLEVEL="debug")
    screen, _, after = session.drawn.partition(ENTER)[2].partition(LEAVE)
    assert "WARNING" not in screen
    assert "DEBUG" not in screen
    assert f"WARNING top: NATS at {url}: Connection refused" in after


async def test_screen_has_no_colours_with_no_color(nats_server: NatsServer) -> None:
    """Only bold, dim and reversed text (no-color.org)."""
    session = await asyncio.to_thread(on_screen, nats_server.url, b"q", NO_COLOR="1")
    codes = {
        code
        for codes in re.findall(r"\x1b\[([0-9;]+)m", session.drawn)
        for code in codes.split(";")
    }
    assert codes <= {"0", "1", "2", "3", "7", "39", "49"}  # the last are the default colours


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


async def test_top_once_fits_terminal(nats_server: NatsServer) -> None:
    """The last columns are left out where all do not fit, which is said."""
    once = ("top", "--once", "--for", "100ms", "--server", nats_server.url)
    done = await asyncio.to_thread(lambda: on_terminal(*once, NO_COLOR="1"))
    [line] = done.out.splitlines()
    assert line.startswith("CLUSTER  NODES  SILENT")
    assert len(line) <= 80
    assert "not shown for lack of width: " in done.err
