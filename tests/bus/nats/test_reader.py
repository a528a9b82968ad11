"""Messages of the bus as batches, however they arrive."""

import nats
import pytest

from ccpipe.bus.nats import consumer as module
from ccpipe.bus.nats import reader as reader_module
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Duration, Site
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import metrics, source
from tests.conftest import eventually
from tests.reading import Reader
from tests.servers.nats.proxy import Proxy


async def test_a_line_without_time_gets_the_moment_it_was_stored(
    nats_server: NatsServer, site: Site, sink: NatsSink
) -> None:
    """Handed over again it keeps that moment, so that a store sees one line, not two."""
    await sink.write(to_lines(metrics(1)))
    client = await nats.connect(nats_server.url)
    await client.jetstream().publish("fox%2Etest.metrics", b"m,hostname=n1,type=node value=7")
    await client.close()
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as first:
        await eventually(lambda: 7.0 in first.values)
    async with Reader(source(site, ack_wait=Duration(1))) as second:
        await eventually(lambda: 7.0 in second.values)
    moments = {
        record.time
        for batch in [*first.batches, *second.batches]
        for record in batch.records
        if record.value == 7.0
    }
    assert len(moments) == 1
    assert None not in moments


async def test_bad_lines_are_rejected_with_the_batch_they_came_in(
    site: Site, sink: NatsSink, nats_server: NatsServer
) -> None:
    """The source hands over good and bad lines of a payload together."""
    await sink.write(to_lines(metrics(1)))
    client = await nats.connect(nats_server.url)
    payload = encode(metrics(2, start=1_750_000_000)) + b"broken\n" + encode(metrics(1))
    await client.jetstream().publish("fox%2Etest.metrics", payload)
    await client.close()
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 4)
    rejected = reader.batches[-1].records.rejected
    assert [(bad.line, bad.original) for bad in rejected] == [(3, b"broken")]
    assert decode(payload).rejected == rejected


@pytest.mark.parametrize("durable", ["d", ""])
async def test_a_broker_that_says_nothing_is_no_progress(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, durable: str
) -> None:
    """``/ready`` says so although the connection stands, until the broker answers again."""
    monkeypatch.setattr(module, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(reader_module, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(reader_module, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(module, "PULL_SECONDS", 0.1)
    telemetry = Telemetry()
    async with Proxy(nats_server) as proxy:
        silent = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        async with Reader(NatsSource(site=silent, telemetry=telemetry, durable=durable)):
            await eventually(lambda: not telemetry.stuck())
            proxy.speaks.clear()
            await eventually(lambda: telemetry.stuck() != [])
            proxy.speaks.set()
            await eventually(lambda: not telemetry.stuck())


async def test_a_source_answers_jetstream_only(site: Site, sink: NatsSink) -> None:
    """No acknowledgement is published on a reply subject that another program chose."""
    telemetry = Telemetry()
    heard: list[Delivery] = []
    await sink.write(to_lines(metrics(1)))
    reading = NatsSource(site=site, telemetry=telemetry, durable="b", ack_wait=Duration(1))
    async with Reader(reading) as reader, connected(site.bus) as other:
        await eventually(lambda: len(reader.values) == 1)
        await other.subscribe("chosen", heard.append)
        assert isinstance(reading.reader, ConsumerReader)
        await other.publish(reading.reader._inbox, encode(metrics(3)), reply="chosen")
        await eventually(lambda: telemetry.bus_errors.values.get("malformed", 0) == 1)
        await sink.write(to_lines(metrics(1, start=1_750_000_000)))
        await eventually(lambda: len(reader.values) == 2)
        await reading.bus.flush()
        await other.flush()
    assert heard == []
