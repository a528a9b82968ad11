"""End to end: from the sink through a real broker to the source."""

import asyncio
import json
import os
import signal

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.streams.stream import stream_name
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import encode, to_lines
from ccpipe.message import Message, event, log
from tests.bus.nats.reader import NOW, TAGS, metrics, source
from tests.conftest import eventually
from tests.reading import Reader
from tests.servers.nats.proxy import Proxy


async def test_bridge_receives_messages_published_before_it_started(
    site: Site, sink: NatsSink
) -> None:
    """The stream keeps them, in order."""
    await sink.write(to_lines(metrics(1200)))
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 1200)
    assert reader.values == [float(i) for i in range(1200)]
    assert reader.origins == {"fox%2Etest.metrics"}


async def test_events_metrics_and_logs_share_stream(site: Site, sink: NatsSink) -> None:
    """One durable consumer reads all categories, each from its own subject."""
    records = [
        *metrics(1),
        event("job", "start_job", '{"jobId": 1}', time=NOW, tags=TAGS),
        log("ccb", "info", 'wrote "x"\n', time=NOW + 1, tags=TAGS),
    ]
    await sink.write(to_lines(records))
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == len(records))
    read = [record for batch in reader.batches for record in batch.records]
    assert sorted(encode(read, precision="ns").splitlines()) == sorted(
        encode(records, precision="ns").splitlines()
    )
    assert len(reader.origins) == 3


async def test_killed_server_loses_nothing(
    nats_server: NatsServer, site: Site, sink: NatsSink
) -> None:
    """The sink is unavailable until the server is running again; both parts then continue."""
    async with Reader(source(site)) as reader:
        await sink.write(to_lines(metrics(3)))
        await eventually(lambda: len(reader.values) == 3)
        assert nats_server.pid is not None
        os.kill(nats_server.pid, signal.SIGKILL)
        await _retry(sink, metrics(3, start=1_750_000_000))
        await eventually(lambda: len(reader.values) >= 6)
    assert set(reader.values) == {0.0, 1.0, 2.0}
    assert len(reader.values) == 6


async def _retry(sink: NatsSink, records: list[Message]) -> None:
    for _ in range(100):
        try:
            await sink.write(to_lines(records))
        except UnavailableError:
            await asyncio.sleep(0.1)
        else:
            return
    pytest.fail("the sink never became available again")


async def pulled_by_other(
    server: NatsServer, site: Site, sink: NatsSink
) -> tuple[Client, list[Msg]]:
    """Read message 0 as a bridge does, then send 1 and 2 to a client whose request stays open.

    Returns the client and the list of what it receives, already with one message.
    """
    async with Reader(source(site, ack_wait=3.0)) as reader:
        await sink.write(to_lines(metrics(1)))
        await eventually(lambda: len(reader.values) == 1)
    client = await nats.connect(server.url)
    received: list[Msg] = []

    async def receive(message: Msg) -> None:
        received.append(message)

    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=receive)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream_name(Subjects.of(site))}.test"
    request = json.dumps({"batch": 10, "expires": 1_500_000_000}).encode()
    await client.publish(subject, request, reply=inbox)
    await sink.write(to_lines(metrics(3)[1:]))
    await eventually(lambda: len(received) == 1)
    return client, received


async def test_messages_of_killed_bridge_are_redelivered_before_newer_ones(
    site: Site, sink: NatsSink
) -> None:
    """A job's stop must not overtake its start, which waits for the broker's ack_wait."""
    await sink.write(to_lines(metrics(3)))
    async with Reader(source(site, ack_wait=1.0), acknowledge=False) as killed:
        await eventually(lambda: len(killed.values) == 3)
    await sink.write(to_lines(metrics(6)[3:]))
    async with Reader(source(site, ack_wait=1.0)) as reader:
        await eventually(lambda: len(reader.values) == 6)
    assert reader.values == [float(i) for i in range(6)]


async def test_messages_of_lost_connection_are_redelivered_before_newer_ones(
    nats_server: NatsServer, sink: NatsSink
) -> None:
    """In flight when the connection broke."""
    async with Proxy(nats_server) as proxy:
        site = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        async with Reader(source(site, ack_wait=4.0)) as reader:
            await sink.write(to_lines(metrics(2)))
            await eventually(lambda: len(reader.values) == 2)
            proxy.speaks.clear()
            await sink.write(to_lines(metrics(5)[2:]))
            await asyncio.sleep(0.2)  # the server has sent them, and no task reads
            proxy.cut()
            await sink.write(to_lines(metrics(8)[5:]))
            await eventually(lambda: len(reader.values) >= 8)
    assert reader.values == [float(i) for i in range(8)]


async def test_messages_are_redelivered_in_order_when_older_ones_were_in_progress(
    nats_server: NatsServer, site: Site, sink: NatsSink
) -> None:
    """Their time to acknowledge ends later, so that the broker redelivers the newer ones first."""
    client, received = await pulled_by_other(nats_server, site, sink)
    await sink.write(to_lines(metrics(5)[3:]))
    await eventually(lambda: len(received) == 2)
    await client.publish(received[0].reply, b"+WPI")
    await client.close()
    await sink.write(to_lines(metrics(7)[5:]))
    async with Reader(source(site, ack_wait=3.0)) as reader:
        await eventually(lambda: len(reader.values) == 6)
    assert reader.values == [float(i) for i in range(1, 7)]


async def test_request_of_dead_bridge_does_not_let_newer_messages_overtake(
    nats_server: NatsServer, site: Site, sink: NatsSink
) -> None:
    """The broker keeps it open until it notices, as if another bridge shared the work."""
    client, received = await pulled_by_other(nats_server, site, sink)
    async with Reader(source(site, ack_wait=3.0)) as reader:
        await eventually(lambda: len(received) == 2)  # the request has expired
        await sink.write(to_lines(metrics(5)[3:]))
        await eventually(lambda: len(reader.values) == 4)
    assert reader.values == [1.0, 2.0, 3.0, 4.0]
    await client.close()
