"""The source: streams, plain subscriptions without one, and records of any type."""

import nats
import pytest

from ccpipe.bus.nats import consumer as module
from ccpipe.bus.nats import source as source_module
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.message import metric
from ccpipe.telemetry import Telemetry
from tests.bus.codecs.readings import SUBJECT, Readings, ReadingsCodec
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import NOW, metrics, source
from tests.conftest import eventually
from tests.reading import Reader
from tests.servers.nats.proxy import Proxy


async def test_source_subscribes_without_jetstream(site: Site, nats_server: NatsServer) -> None:
    """Sites without JetStream are supported: messages published meanwhile are received."""
    core = Site(cluster="c", bus=Bus(servers=[nats_server.url], jetstream=False))
    listening = source(core, durable="")
    async with NatsSink(site=core, telemetry=Telemetry()) as sink, Reader(listening) as reader:
        await listening.bus.flush()
        await sink.write(to_lines(metrics(3, start=1_760_000_000)))
        # It is published by its tag, fox.test: our own cluster receives nothing.
        await sink.write(
            to_lines([metric("m", 9.0, time=NOW, tags={"hostname": "n1", "type": "node"})])
        )
        await eventually(lambda: len(reader.values) == 1)
    assert reader.values == [9.0]


async def test_source_waits_briefly_to_decode_messages_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch costs as much as many lines, and a broker may send each message in a packet."""
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.5)
    async with connected(site.bus) as bus, Reader(source(site, durable="")) as reader:
        await reader.source.bus.flush()
        for number in range(3):
            line = b"m,hostname=n1,type=node value=%d 1750000000" % number
            await bus.publish("fox%2Etest.metrics", line)
            await bus.flush()
            await reader.source.bus.flush()  # it has arrived
        await eventually(lambda: len(reader.values) == 3)
    assert len(reader.batches) == 1


async def test_source_reads_new_type_of_records_from_given_subjects(site: Site) -> None:
    """A third-party codec needs nothing in ccpipe but its subjects."""
    codec = ReadingsCodec()
    reader = source(site, codec=codec, subjects=[SUBJECT])
    async with (
        Reader(reader) as read,
        NatsSink(site=site, telemetry=Telemetry(), codec=codec) as to,
    ):
        await eventually(lambda: bool(reader.stream))
        await to.write(Readings([1, 2, 3]))
        await eventually(
            lambda: sorted(each for b in read.batches for each in b.records) == [1, 2, 3]
        )


def test_source_refuses_new_type_of_records_without_subjects(site: Site) -> None:
    """Only the records that ccpipe knows have default subjects, and an identity by subject."""
    with pytest.raises(ConfigError, match="subjects: missing; readings have no default subjects"):
        source(site, codec=ReadingsCodec())
    with pytest.raises(ConfigError, match="identity: .* not for readings"):
        source(site, codec=ReadingsCodec(), subjects=[SUBJECT], identity="subject")


async def test_line_without_time_gets_time_it_was_stored(
    nats_server: NatsServer, site: Site, sink: NatsSink
) -> None:
    """Redelivered it keeps that time, so that a store sees one line, not two."""
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


async def test_bad_lines_are_rejected_with_their_batch(
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
async def test_silent_broker_is_reported_as_no_progress(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, durable: str
) -> None:
    """By ``/ready``, although the connection is open, until the broker answers again."""
    monkeypatch.setattr(module, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(source_module, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(source_module, "PROBE_SECONDS", 0.1)
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


async def test_source_acknowledges_to_jetstream_only(site: Site, sink: NatsSink) -> None:
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
