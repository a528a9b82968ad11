"""Stored messages of JetStream, read in order without a durable consumer."""

import asyncio
import time

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.publisher import Outgoing, Publisher
from ccpipe.bus.nats.streams import stored as module
from ccpipe.bus.nats.streams.jetstream import consumers_of
from ccpipe.bus.nats.streams.reconcile import survey
from ccpipe.bus.nats.streams.stored import overlap, read_stored, stored_patterns
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.process.background import failing
from tests.bus.nats.conftest import connected

SUBJECT = "fox%2Etest.metrics"


async def publish(bus: Connection, site: Site, *payloads: bytes) -> None:
    publisher = Publisher(bus, site.bus, Subjects.of(site))
    await publisher.publish([Outgoing.of(SUBJECT, payload) for payload in payloads])


async def read(
    bus: Connection, *patterns: str, since: int | None = None, maximum: int | None = None
) -> list[Delivery]:
    received: list[Delivery] = []
    async with asyncio.timeout(60):
        await read_stored(bus, patterns, received.append, since=since, maximum=maximum)
    return received


async def consumers(bus: Connection) -> list[str]:
    return [
        each.name
        for stream in await bus.jetstream().streams_info()
        async for each in consumers_of(bus.jetstream(), str(stream.config.name))
    ]


async def test_reader_receives_all_stored_messages_in_order(site: Site) -> None:
    """Also beyond the amount that the server sends before it requests flow control."""
    payloads = [b"%08d" % number + b"x" * 4096 for number in range(3000)]
    async with connected(site.bus) as bus:
        await publish(bus, site, *payloads)
        found = await read(bus, SUBJECT)
        assert [delivery.payload for delivery in found] == payloads
        assert {delivery.subject for delivery in found} == {SUBJECT}


async def test_reader_stops_at_maximum_and_leaves_no_consumer(site: Site) -> None:
    async with connected(site.bus) as bus:
        await publish(bus, site, *(b"%d" % number for number in range(1000)))
        found = await read(bus, SUBJECT, maximum=5)
        assert [delivery.payload for delivery in found] == [b"0", b"1", b"2", b"3", b"4"]
        assert await consumers(bus) == []


async def test_reader_begins_at_given_time(site: Site) -> None:
    async with connected(site.bus) as bus:
        await publish(bus, site, b"0", b"1", b"2")
        assert len(await read(bus, SUBJECT, since=time.time_ns() - 3600 * 10**9)) == 3
        assert await read(bus, SUBJECT, since=time.time_ns() + 3600 * 10**9) == []


async def test_reader_receives_nothing_for_subject_without_stream(site: Site) -> None:
    """Not an error: a site may publish it without JetStream."""
    async with connected(site.bus) as bus:
        await publish(bus, site, b"0")
        assert await stored_patterns(bus, [SUBJECT, "nowhere.>"]) == {SUBJECT}
        assert await read(bus, "nowhere.>") == []
        assert len(await read(bus, "nowhere.>", SUBJECT)) == 1


async def test_reader_hides_partitions_from_subjects(site: Site) -> None:
    """A message has the subject on which it was published, whatever its partition."""
    parts = Bus(servers=site.bus.servers, stream_partitions=4)
    site = Site(cluster=site.cluster, bus=parts)
    async with connected(parts) as bus:
        publisher = Publisher(bus, parts, Subjects.of(site))
        nodes = [f"{SUBJECT}.n{number}" for number in range(8)]
        await publisher.publish([Outgoing.of(node, node.encode()) for node in nodes])
        found = await read(bus, f"{SUBJECT}.*", maximum=99)
    assert sorted(each.subject for each in found) == nodes
    assert all(each.subject.encode() == each.payload for each in found)


async def test_reader_ignores_status_headers_of_publishers(site: Site) -> None:
    async with connected(site.bus) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing(SUBJECT, b"x", "1", {"Status": "100"})])
        assert [delivery.payload for delivery in await read(bus, SUBJECT, since=0)] == [b"x"]


async def test_ended_reader_leaves_no_consumer(site: Site) -> None:
    """It receives nothing more, and no check mistakes it for a bridge."""
    received: list[Delivery] = []
    async with connected(site.bus) as bus:
        await publish(bus, site, b"x 1")
        following = asyncio.create_task(
            read_stored(bus, [SUBJECT], received.append, since=0, follow=True)
        )
        async with asyncio.timeout(60):
            while not received:
                await asyncio.sleep(0.01)
            assert (await survey(bus, site)).consumers == []
            assert await consumers(bus)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        assert await consumers(bus) == []


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
def test_patterns_overlap_if_subject_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


async def test_reader_ends_when_flow_control_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for the response: without it the rest would never arrive."""

    async def fail(*_: object, **__: object) -> None:
        raise KeyError("unexpected")

    async def read(bus: Connection, stop: asyncio.Event) -> None:
        with failing(stop.set):
            reader = module._StreamReader(bus, "s", ["a"], lambda _: None, None, None)
            reader._take(reader._inbox, Delivery("a", b"", b"", "$JS.FC.s"))
            await asyncio.wait_for(stop.wait(), 60)

    async with connected(site.bus) as bus:
        monkeypatch.setattr(bus, "publish", fail)
        with pytest.raises(KeyError, match="unexpected"):
            await read(bus, asyncio.Event())
