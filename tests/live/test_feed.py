"""Data received on the real bus, and data stored in its streams."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.live.feed import LiveFeed, Replay
from ccpipe.message import Message, event, log
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.live.conftest import Live, fed

SECOND = 10**9


@pytest.fixture
async def feed(site: Site) -> AsyncIterator[LiveFeed]:
    async with LiveFeed(site, Telemetry(), name="dashboard") as feed:
        yield feed


def message(text: str) -> list[Message]:
    tags = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
    return [log("ccpipe", "warn", text, time=1740027951 * SECOND, tags=tags)]


def job(function: str, number: int) -> list[Message]:
    payload = f'{{"jobId": {number}, "cluster": "fox.test", "startTime": 5, "jobState": "failed"}}'
    if function == "start_job":
        payload = payload.replace(', "jobState": "failed"', "")
    tags = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
    return [event("job", function, payload, time=1740027951 * SECOND, tags=tags)]


async def test_feed_receives_metrics_events_and_logs(live: Live) -> None:
    """Of every cluster, also with names that are invalid in a subject."""
    tags = "cluster=fox.test,hostname=n1,type=node"
    await live.say("metrics", f"load,{tags} value=3 1740027951", "bad line", f"mem,{tags} value=4")
    await live.say("log.ccpipe", f'ccpipe,{tags},loglevel=info log="hello" 1740027951')
    await live.bus.publish(
        "other.metrics.n7", b"load,cluster=other,hostname=n7,type=node value=9\n"
    )
    nodes, health = live.state.nodes, live.state.health
    await eventually(lambda: len(nodes.nodes) == 2 and live.state.journal.count == 1, 60)
    assert list(nodes.column("load")) == [3, 9]
    assert health.rejected == 1
    assert live.state.journal.after(0)[0].text == "hello"


async def test_feed_reads_stored_messages_first(site: Site) -> None:
    """Jobs that began before are known, and a live stop ends them."""
    telemetry = Telemetry()
    async with NatsSink(site=site, telemetry=telemetry) as sink:
        for number in (1, 2):
            await sink.write(to_lines(job("start_job", number)))
        await sink.write(to_lines(job("stop_job", 2)))
        await sink.write(to_lines(message("before")))
        async with LiveFeed(site, telemetry, name="dashboard") as feed:
            jobs = feed.state.jobs
            states = {1: "running", 2: "failed"}
            await eventually(lambda: {j.id: j.state for j in jobs.latest()} == states, 60)
            await sink.write(to_lines(job("stop_job", 1)))
            await sink.write(to_lines(message("after")))
            await eventually(lambda: feed.state.jobs.running == [], 60)
            await eventually(lambda: feed.state.journal.count == 6, 60)
            texts = [entry.text for entry in feed.state.journal.after(0) if entry.kind == "log"]
            assert texts == ["before", "after"]


async def test_feed_counts_each_message_once(site: Site) -> None:
    """Messages published while the streams are read arrive both ways."""
    telemetry = Telemetry()
    async with (
        NatsSink(site=site, telemetry=telemetry) as sink,
        Connection(site.bus, name="letters", telemetry=telemetry) as bus,
    ):
        letters = NatsDeadLetterSink(bus, site)
        await sink.write(to_lines(message("first")))
        async with LiveFeed(site, telemetry, name="dashboard") as feed:
            for number in range(20):
                await sink.write(to_lines(message(f"text {number}")))
                await letters.write([DeadLetter(b"bytes %d" % number, "why", "origin")])
            await eventually(lambda: feed.state.journal.count >= 21, 60)
            await eventually(lambda: feed.state.health.dead_count >= 20, 60)
            await asyncio.sleep(1)
            assert feed.state.journal.count == 21
            assert feed.state.health.dead_count == 20
            assert feed.state.health.reasons == {"why": 20}


async def test_feed_reports_lag_of_bridges(site: Site, feed: LiveFeed) -> None:
    """Messages that wait for a durable consumer, by its name."""
    telemetry = Telemetry()
    async with (
        NatsSource(site=site, telemetry=telemetry, durable="slow") as source,
        NatsSink(site=site, telemetry=telemetry) as sink,
    ):
        await source.start()
        await eventually(lambda: bool(source.stream), 60)
        source.stop()
        for number in range(7):
            await sink.write(to_lines(message(f"text {number}")))
        await eventually(lambda: bool(feed.state.health.consumers), 60)
        found = feed.state.health.consumers
        assert [(each.name, each.stream_name) for each in found] == [("slow", "ccpipe-fox%2Etest")]
        await eventually(
            lambda: (
                sum(e.num_pending + e.num_ack_pending for e in feed.state.health.consumers) == 7
            ),
            60,
        )
        assert feed.state.health.streams[0].state.messages == 7


async def test_feed_continues_after_broker_was_killed(live: Live, nats_server: NatsServer) -> None:
    """Values stay while disconnected, and lines arrive again."""
    line = "load,cluster=c,hostname={},type=node value=1"
    await live.say("metrics", line.format("n1"))
    await eventually(lambda: len(live.state.nodes.nodes) == 1, 60)
    assert nats_server.pid is not None
    os.kill(nats_server.pid, signal.SIGKILL)
    await eventually(lambda: not live.feed.bus.is_connected, 60)
    assert len(live.state.nodes.nodes) == 1
    await eventually(lambda: live.feed.bus.is_connected and live.bus.is_connected, 60)
    async with asyncio.timeout(60):
        while len(live.state.nodes.nodes) < 2:  # a line is lost that is sent before it subscribes
            await live.say("metrics", line.format("n2"))
            await asyncio.sleep(0.2)


async def test_feed_reads_starts_from_streams_of_all_clusters(site: Site) -> None:
    """However old, if configured; none without streams."""
    telemetry = Telemetry()
    for sent in ([], job("start_job", 1)):
        async with NatsSink(site=site, telemetry=telemetry) as sink:
            await sink.write(to_lines(sent))
        elsewhere = Site(cluster="other", bus=site.bus)
        feed = LiveFeed(
            elsewhere, telemetry, name="top", replay=Replay({"events": (None, None)}, "*"),
            watches_streams=False,
        )  # fmt: skip
        async with fed(feed):
            assert len(feed.state.jobs.running) == len(sent)


async def test_feed_counts_messages_on_overlapping_subjects_once(site: Site) -> None:
    """A site may have all kinds on one subject: each message counts once."""
    subjects: dict[str, str | dict[str, str]] = {"metrics": "all", "events": "all"}
    flat = Site(cluster=site.cluster, bus=Bus(servers=site.bus.servers, subjects=subjects))
    async with fed(LiveFeed(flat, Telemetry(), name="top")) as live:
        before = live.state.health.payloads
        await live.bus.publish("all", b"load,hostname=n1 value=1\n")
        await live.bus.publish("fritz.dead", b"load,hostname=n2 value=1\n")
        await eventually(lambda: bool(live.state.health.dead_count), 60)
        await live.bus.publish("all", b"load,hostname=n3 value=1\n")
        nodes = live.state.nodes.nodes
        await eventually(lambda: ("", "n3") in nodes, 60)
        assert {id_[1]: node.lines for id_, node in nodes.items()} == {"n1": 1, "n3": 1}
        assert live.state.health.payloads >= before + 2
