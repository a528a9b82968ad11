"""Recent messages of a stream, read once without leaving a trace."""

import time

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.bus.nats.publisher import Publisher
from ccpipe.bus.nats.streams.jetstream import consumers_of
from ccpipe.bus.nats.streams.replay import FETCH, replay
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from tests.bus.nats.conftest import connected

SUBJECT = "fox%2Etest.metrics"


async def publish(bus: Connection, site: Site, count: int) -> None:
    """Store numbered messages."""
    publisher = Publisher(bus, site.bus, Subjects.of(site))
    await publisher.publish([Outgoing.of(SUBJECT, b"%d" % number) for number in range(count)])


async def read(bus: Connection, pattern: str, *, since: float = 0, maximum: int) -> list[Delivery]:
    """Replay to the end."""
    return [
        delivery
        async for found in replay(bus, pattern, since=since, maximum=maximum)
        for delivery in found
    ]


async def test_what_is_stored_comes_once_in_order_and_no_more_than_asked(site: Site) -> None:
    """The oldest first, over more than one fetch; afterwards no consumer is there."""
    async with connected(site.bus) as bus:
        await publish(bus, site, FETCH + 7)
        found = await read(bus, SUBJECT, maximum=10**6)
        assert [each.payload for each in found] == [b"%d" % n for n in range(FETCH + 7)]
        assert {each.subject for each in found} == {SUBJECT}
        assert len(await read(bus, SUBJECT, maximum=5)) == 5
        [stream] = await bus.jetstream().streams_info()
        assert not [each async for each in consumers_of(bus.jetstream(), str(stream.config.name))]


async def test_it_begins_at_a_time(site: Site) -> None:
    """Of the future there is nothing."""
    async with connected(site.bus) as bus:
        await publish(bus, site, 3)
        assert len(await read(bus, SUBJECT, since=time.time() - 3600, maximum=9)) == 3
        assert await read(bus, SUBJECT, since=time.time() + 3600, maximum=9) == []


async def test_a_subject_that_no_stream_stores_has_no_messages(site: Site) -> None:
    """That is no error: a site may do without JetStream for it."""
    async with connected(site.bus) as bus:
        assert await read(bus, "nowhere.>", maximum=9) == []


async def test_partitions_do_not_show_in_subjects(site: Site) -> None:
    """A message has the subject that it was published on, in whichever part it is stored."""
    parts = Bus(servers=site.bus.servers, stream_partitions=4)
    site = Site(cluster=site.cluster, bus=parts)
    async with connected(parts) as bus:
        publisher = Publisher(bus, parts, Subjects.of(site))
        nodes = [f"{SUBJECT}.n{number}" for number in range(8)]
        await publisher.publish([Outgoing.of(node, node.encode()) for node in nodes])
        found = await read(bus, f"{SUBJECT}.*", maximum=99)
    assert sorted(each.subject for each in found) == nodes
    assert all(each.subject.encode() == each.payload for each in found)
