"""What JetStream has stored, read in order without a durable consumer."""

import asyncio

import pytest

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.bus.nats.publisher import Publisher
from ccpipe.bus.nats.streams.history import StreamHistory, overlap, streams_of
from ccpipe.bus.nats.streams.jetstream import consumers_of
from ccpipe.bus.nats.streams.reconcile import survey
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.process.background import failing
from ccpipe.telemetry import Telemetry


async def test_all_that_is_stored_comes_in_order_however_much_it_is(site: Site) -> None:
    """Beyond what the server sends before it asks how far we have come."""
    count, subjects = 3000, Subjects.of(site)
    payloads = [b"%08d" % number + b"x" * 4096 for number in range(count)]
    received: list[Delivery] = []
    async with Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus:
        publisher = Publisher(bus, site.bus, subjects)
        subject = "fox%2Etest.metrics"
        await publisher.publish([Outgoing.of(subject, payload) for payload in payloads])
        [stream] = await streams_of(bus.jetstream(), [subject])
        history = StreamHistory(bus, stream, [subject], received.append, since=None)
        async with asyncio.timeout(60):
            await history.run(follow=False)
    assert [delivery.payload for delivery in received] == payloads


async def test_a_header_of_the_publisher_is_not_the_servers_word(site: Site) -> None:
    """A message with a header ``Status`` is a message."""
    received: list[Delivery] = []
    subject = "fox%2Etest.metrics"
    async with Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing(subject, b"x", "1", {"Status": "100"})])
        [stream] = await streams_of(bus.jetstream(), [subject])
        async with asyncio.timeout(60):
            await StreamHistory(bus, stream, [subject], received.append, since=0).run(follow=False)
    assert [delivery.payload for delivery in received] == [b"x"]


async def test_it_leaves_no_consumer_behind(site: Site) -> None:
    """Of a reader that ended nothing comes any more, and no check takes it for a bridge."""
    received: list[Delivery] = []
    subject = "fox%2Etest.metrics"
    async with Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing.of(subject, b"x 1")])
        [stream] = await streams_of(bus.jetstream(), [subject])
        following = asyncio.create_task(
            StreamHistory(bus, stream, [subject], received.append, since=0).run()
        )
        async with asyncio.timeout(60):
            while not received:
                await asyncio.sleep(0.01)
            assert (await survey(bus, site)).consumers == []
            assert [each async for each in consumers_of(bus.jetstream(), stream)]
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        assert [each async for each in consumers_of(bus.jetstream(), stream)] == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.*", "*.b", True),
        ("a.>", "a.b.c", True),
        ("a.b", "a.c", False),
        ("a", "a.b", False),
    ],
)
def test_patterns_overlap_where_a_subject_falls_under_both(
    one: str, other: str, expected: bool
) -> None:
    """Whichever comes first."""
    assert overlap(one, other) is overlap(other, one) is expected


async def test_history_ends_what_reads_it_when_flow_control_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for the answer: without it the rest would never come."""

    async def fail(*_: object, **__: object) -> None:
        raise KeyError("unexpected")

    async def read(bus: Connection, stop: asyncio.Event) -> None:
        with failing(stop.set):
            history = StreamHistory(bus, "s", ["a"], lambda _: None, since=None)
            history._take(history._inbox, Delivery("a", b"", b"", "$JS.FC.s"))
            await asyncio.wait_for(stop.wait(), 60)

    async with Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus:
        monkeypatch.setattr(bus, "publish", fail)
        with pytest.raises(KeyError, match="unexpected"):
            await read(bus, asyncio.Event())
