"""Messages that a stream is about to delete unread, or has deleted, on a real broker."""

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta

import pytest
from nats.js import JetStreamContext, api

from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams import unread as module
from ccpipe.bus.nats.streams.jetstream import Consumer, Position, Stream, StreamState
from ccpipe.bus.nats.streams.unread import UnreadWatch, forecast
from ccpipe.config import Site
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.conftest import eventually


async def small_stream(jetstream: JetStreamContext) -> None:
    """Make a stream of about 48 messages of `fill`, and a consumer of all of it."""
    await jetstream.add_stream(name="s", subjects=["a"], max_bytes=64 * 1024)
    config = api.ConsumerConfig(durable_name="b", ack_policy=api.AckPolicy.EXPLICIT)
    await jetstream.add_consumer("s", config)


async def fill(jetstream: JetStreamContext, count: int) -> None:
    """Publish messages of 1300 bytes."""
    for _ in range(count):
        await jetstream.publish("a", b"x" * 1300)


def dropped(telemetry: Telemetry) -> float:
    labels = {"consumer": "b"}
    return telemetry.registry.get_sample_value("ccpipe_dropped_messages_total", labels) or 0


async def test_source_counts_messages_dropped_unread(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Exactly once: while the bridge was down, and while it reads too slowly."""
    telemetry = Telemetry()
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await small_stream(jetstream)
        await fill(jetstream, 200)
        stored = (await jetstream.stream_info("s")).state.messages
        watch = UnreadWatch(bus, "b", telemetry)
        for _ in range(2):
            await watch.poll("s")
        assert dropped(telemetry) == 200 - stored
        assert "has deleted" in caplog.text
        reader = await jetstream.pull_subscribe_bind("b", "s")
        for message in await reader.fetch(10):
            await message.ack_sync()
        await fill(jetstream, 100)
        await reader.fetch(10)
        await watch.poll("s")
        assert dropped(telemetry) == 300 - stored - 10 - 0
        assert telemetry.registry.get_sample_value(
            "ccpipe_consumer_pending_messages", {"consumer": "b"}
        )


@pytest.mark.parametrize("reads", [False, True])
async def test_dropped_messages_are_counted_once_across_two_bridges(
    site: Site, *, reads: bool
) -> None:
    """The first one counts at its end what it passed, since its position hides that afterwards."""
    telemetry = Telemetry()
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await small_stream(jetstream)
        first = UnreadWatch(bus, "b", telemetry)
        await first.poll("s")
        await fill(jetstream, 200)
        stored = (await jetstream.stream_info("s")).state.messages
        if reads:
            reader = await jetstream.pull_subscribe_bind("b", "s")
            await reader.fetch(10)
        await first.poll_last("s")
        assert dropped(telemetry) == (200 - stored if reads else 0)
        await UnreadWatch(bus, "b", telemetry).poll("s")
        assert dropped(telemetry) == 200 - stored > 100


async def test_source_counts_dropped_messages_when_it_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[str, bool]] = []

    async def note(watch: UnreadWatch, name: str) -> None:
        ends.append((name, watch._bus.is_connected))

    monkeypatch.setattr(UnreadWatch, "poll_last", note)
    async with NatsSource(site=site, telemetry=Telemetry(), durable="b") as source:
        await source.start()
        await eventually(lambda: bool(source.stream))
        name = source.stream
    assert ends == [(name, True)]


async def test_polls_are_frequent_while_messages_are_about_to_be_deleted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages deleted after the last poll of a killed process are never counted."""
    telemetry, times = Telemetry(), list[float]()
    monkeypatch.setattr(module, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(module, "NEAR_SECONDS", 0.01)
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await small_stream(jetstream)
        await fill(jetstream, 42)
        watch = UnreadWatch(bus, "b", telemetry)
        await watch.poll("s")

        def name() -> str:
            times.append(time.monotonic())
            return "s"

        running = asyncio.create_task(watch.run(name))
        await eventually(lambda: len(times) > 2)
        await fill(jetstream, 100)
        await eventually(lambda: dropped(telemetry) > 0)
        running.cancel()


async def test_deleted_messages_are_not_counted_if_they_were_read(site: Site) -> None:
    """A stream may delete what every bridge has read."""
    telemetry = Telemetry()
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await small_stream(jetstream)
        watch = UnreadWatch(bus, "b", telemetry)
        reader = await jetstream.pull_subscribe_bind("b", "s")
        for _ in range(6):
            await fill(jetstream, 20)
            for message in await reader.fetch(20):
                await message.ack_sync()
            await watch.poll("s")
        await watch.poll("none")
        assert dropped(telemetry) == 0


async def test_source_warns_before_messages_are_dropped(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for a bridge that is not running; half a stream is not enough to warn."""
    caplog.set_level(logging.WARNING)
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await small_stream(jetstream)
        other = api.ConsumerConfig(durable_name="absent", ack_policy=api.AckPolicy.EXPLICIT)
        await jetstream.add_consumer("s", other)
        watch = UnreadWatch(bus, "b", Telemetry())
        await fill(jetstream, 20)
        await watch.poll("s")
        assert not caplog.messages
        await fill(jetstream, 22)
        for _ in range(2):
            await watch.poll("s")
    mine, absent = caplog.messages
    assert mine.startswith("b has 42 unread messages")
    assert absent.startswith("absent has 42 unread messages")
    assert "no bridge of that name is running" in absent


def test_source_warns_before_age_limit() -> None:
    """The oldest unread message is nearly as old as the stream allows."""
    then = datetime(2026, 1, 1, tzinfo=UTC)
    now = then + timedelta(seconds=90)
    state = StreamState(
        messages=90, bytes=900, first_seq=1, last_seq=90, first_ts=then, last_ts=now
    )
    stream = Stream(config={"name": "s", "max_age": 100 * 10**9}, state=state, ts=now)
    consumer = Consumer(
        stream_name="s", name="b", config={}, created=then, delivered=Position(0, 0),
        ack_floor=Position(0, 0), num_pending=90,
    )  # fmt: skip
    assert forecast(stream, consumer) == (0.9, 10)
