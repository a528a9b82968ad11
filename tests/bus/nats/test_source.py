"""The source: durable consumers on a stream, plain subscriptions without one."""

import asyncio
import logging
import re
import time
from pathlib import Path

import nats
import pytest

from ccpipe.bus.nats import source as module
from ccpipe.bus.nats.connection import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams.stream import ensure_consumer
from ccpipe.config import Bus, Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import metric
from ccpipe.telemetry import Telemetry
from tests.bus.codecs.readings import SUBJECT, Readings, ReadingsCodec
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import NOW, Reader, metrics, source
from tests.conftest import eventually
from tests.servers.nats.daemon import nats_daemon
from tests.servers.nats.proxy import Proxy


async def test_what_was_not_acknowledged_is_handed_over_again(site: Site, sink: NatsSink) -> None:
    """A bridge that dies with work in hand leaves it to the next one of its name."""
    await sink.write(metrics(10))
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as first:
        await eventually(lambda: len(first.values) == 10)
    async with Reader(source(site, ack_wait=Duration(1))) as second:
        await eventually(lambda: len(second.values) == 10)
    async with Reader(source(site, ack_wait=Duration(1), drain=Duration(2))) as third:
        pass
    assert third.values == []


async def test_a_living_bridge_keeps_what_it_holds(site: Site, sink: NatsSink) -> None:
    """Held longer than `ack_wait`, a message is not handed over twice: the bridge says it lives."""
    await sink.write(metrics(10))
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as reader:
        await eventually(lambda: len(reader.values) == 10)
        await asyncio.sleep(2.5)  # the rule speaks of time: two and a half times ack_wait
        await sink.write(metrics(1, start=1_750_000_000))
        await eventually(lambda: len(reader.values) > 10)
    assert len(reader.values) == 11


@pytest.mark.parametrize("moment", ["held", "acknowledged"])
async def test_messages_delivered_again_to_the_process_that_has_them_are_dropped(
    site: Site, sink: NatsSink, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    """A process that was stopped for longer than `ack_wait` does not do its work twice."""
    caplog.set_level(logging.INFO)
    await sink.write(metrics(10))
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as reader:
        await eventually(lambda: len(reader.values) == 10)
        time.sleep(1.5)  # as SIGSTOP does: no task extends the time
        if moment == "held":
            await eventually(lambda: "dropped 1 messages, delivered again" in caplog.text)
        for batch in reader.batches:
            await batch.ack()
        await eventually(lambda: "dropped 1 messages, delivered again" in caplog.text)
    async with Reader(source(site, drain=Duration(2))) as second:
        pass
    assert (len(reader.values), second.values) == (10, [])


async def test_two_bridges_of_one_name_share_the_work(site: Site, sink: NatsSink) -> None:
    """Every message goes to one of them."""
    async with Reader(source(site)) as one, Reader(source(site)) as other:
        for i in range(40):
            await sink.write(metrics(1, start=1_740_000_000 + i))
        await eventually(lambda: len(one.values) + len(other.values) == 40)
        await asyncio.sleep(0.1)
    assert len(one.values) + len(other.values) == 40


async def test_told_to_stop_it_empties_the_stream_first(site: Site, sink: NatsSink) -> None:
    """With `drain` a bridge that ends has written everything that was published before."""
    await sink.write(metrics(5000))
    async with Reader(source(site, drain=Duration(5))) as reader:
        pass  # stopped at once
    assert len(reader.values) == 5000


async def test_a_line_without_time_gets_the_moment_it_was_stored(
    nats_server: NatsServer, site: Site, sink: NatsSink
) -> None:
    """Handed over again it keeps that moment, so that a store sees one line, not two."""
    await sink.write(metrics(1))
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


async def test_a_plain_subscription_hears_without_jetstream(
    site: Site, nats_server: NatsServer
) -> None:
    """Sites without JetStream are served too: what is said while we listen is heard."""
    core = Site(cluster="c", bus=Bus(servers=[nats_server.url], jetstream=False))
    listening = source(core, durable="")
    async with (
        NatsSink(site=core, telemetry=Telemetry()) as sink,
        Reader(listening) as reader,
    ):
        await listening.bus.flush()
        await sink.write(metrics(3, start=1_760_000_000))
        # The tag says fox.test, so that is where it travels: our own cluster hears nothing.
        await sink.write([metric("m", 9.0, time=NOW, tags={"hostname": "n1", "type": "node"})])
        await eventually(lambda: len(reader.values) == 1)
    assert reader.values == [9.0]


async def test_bad_lines_are_rejected_with_the_batch_they_came_in(
    site: Site, sink: NatsSink, nats_server: NatsServer
) -> None:
    """The source hands over good and bad lines of a payload together."""
    await sink.write(metrics(1))
    client = await nats.connect(nats_server.url)
    payload = encode(metrics(2, start=1_750_000_000)) + b"broken\n" + encode(metrics(1))
    await client.jetstream().publish("fox%2Etest.metrics", payload)
    await client.close()
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 4)
    rejected = reader.batches[-1].records.rejected
    assert [(bad.line, bad.original) for bad in rejected] == [(3, b"broken")]
    assert decode(payload).rejected == rejected


async def test_a_second_exclusive_reader_is_refused(site: Site, sink: NatsSink) -> None:
    """A stateful translator must see all messages; the reader that was there goes on."""
    await sink.write(metrics(1))
    first, second = source(site), source(site)
    first.exclusive = second.exclusive = True
    async with Reader(first) as reader:
        await eventually(lambda: reader.values == [0.0])
        with pytest.raises(ConfigError, match="the durable name 'test' is in use by"):
            await asyncio.wait_for(Reader(second).read(), 60)
        await sink.write(metrics(3))
        await eventually(lambda: len(reader.values) > 1)
    async with Reader(source(site)) as successor:
        await sink.write(metrics(2, start=1_760_000_000))
        await eventually(lambda: successor.values != [])


async def test_an_exclusive_reader_that_was_replaced_ends(site: Site, sink: NatsSink) -> None:
    """Where it did not read when the other one came: never do both go on."""
    await sink.write(metrics(1))
    first = source(site, ack_wait=Duration(0.6))
    first.exclusive = True
    await first.__aenter__()
    await eventually(lambda: bool(first._stream))
    jetstream = first.bus.jetstream()
    stream = first._stream
    await ensure_consumer(jetstream, stream, "test", first.patterns, 0.6, owner="other pid 1")
    with pytest.raises(ConfigError, match="in use by other pid 1"):
        await asyncio.wait_for(drained(first), 60)
    await first.__aexit__()


async def drained(read: NatsSource) -> None:
    """Read to the end."""
    async for _ in read:
        pass


@pytest.mark.parametrize("durable", ["d", ""])
async def test_a_broker_that_says_nothing_is_no_progress(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, durable: str
) -> None:
    """``/ready`` says so although the connection stands, until the broker answers again."""
    monkeypatch.setattr(module, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(module, "PULL_SECONDS", 0.1)
    telemetry = Telemetry()
    async with Proxy(nats_server) as proxy:
        silent = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        async with Reader(NatsSource(site=silent, telemetry=telemetry, durable=durable)):
            await eventually(lambda: not telemetry.stuck())
            proxy.speaks.clear()
            await eventually(lambda: telemetry.stuck() == ["NatsSource"])
            proxy.speaks.set()
            await eventually(lambda: not telemetry.stuck())


async def test_what_waits_undecoded_is_bounded(
    site: Site, sink: NatsSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large messages no more are asked for than a request may bring, however few they are."""
    monkeypatch.setattr(module, "PULL_BYTES", 2**18)
    for start in range(40):
        await sink.write(metrics(2000, start=1_740_000_000 + 2000 * start))
    async with source(site) as read:
        await eventually(lambda: read._is_full)
        await asyncio.sleep(0.2)  # for requests that must not come
        assert 2**18 <= read._waiting_bytes < 2**19


async def test_source_reads_a_new_type_of_records_from_given_subjects(site: Site) -> None:
    """A codec of somebody else's needs nothing in ccpipe but its subjects."""
    codec = ReadingsCodec()
    reader = source(site, codec=codec, subjects=[SUBJECT])
    async with (
        Reader(reader) as read,
        NatsSink(site=site, telemetry=Telemetry(), codec=codec) as to,
    ):
        await eventually(lambda: bool(reader._stream))
        await to.write(Readings([1, 2, 3]))
        await eventually(
            lambda: sorted(each for b in read.batches for each in b.records) == [1, 2, 3]
        )


def test_source_refuses_a_new_type_of_records_without_subjects(site: Site) -> None:
    """Only the records that ccpipe knows have default subjects, and an identity by subject."""
    with pytest.raises(ConfigError, match="subjects: missing; readings have no default subjects"):
        source(site, codec=ReadingsCodec())
    with pytest.raises(ConfigError, match="identity: .* not for readings"):
        source(site, codec=ReadingsCodec(), subjects=[SUBJECT], identity="subject")


async def test_a_source_answers_jetstream_only(site: Site, sink: NatsSink) -> None:
    """No acknowledgement is published on a reply subject that another program chose."""
    telemetry = Telemetry()
    heard: list[Delivery] = []
    await sink.write(metrics(1))
    reading = NatsSource(site=site, telemetry=telemetry, durable="b", ack_wait=Duration(1))
    async with Reader(reading) as reader, connected(site.bus) as other:
        await eventually(lambda: len(reader.values) == 1)
        await other.subscribe("chosen", heard.append)
        await other.publish(reading._inbox, encode(metrics(3)), reply="chosen")
        await eventually(lambda: telemetry.bus_errors.values.get("malformed", 0) == 1)
        await sink.write(metrics(1, start=1_750_000_000))
        await eventually(lambda: len(reader.values) == 2)
        await reading.bus.flush()
        await other.flush()
    assert heard == []


WITHOUT_NEXT = """
jetstream {{ store_dir: "{folder}" }}
accounts {{
  data {{ jetstream: enabled, exports: [{{ service: "$JS.API.>" }}] }}
  bridges {{ users: [{{ user: b, password: b }}], imports: [{imports}] }}
}}
"""
"""A server that has stream and consumer, and refuses requests for messages like one without."""


async def test_requests_that_the_broker_refuses_are_repeated_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the reason and the server's version, and ``/ready`` reports no progress."""
    monkeypatch.setattr(module, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(module, "REFUSED_SECONDS", (0.5, 60.0))
    api = ["INFO", "STREAM.>", "CONSUMER.CREATE.>", "CONSUMER.INFO.>", "CONSUMER.DURABLE.>"]
    service = '{{ service: {{ account: data, subject: "$JS.API.{}" }} }}'
    imports = ", ".join(map(service.format, api))
    configuration = WITHOUT_NEXT.format(folder=tmp_path / "js", imports=imports)
    telemetry = Telemetry()
    async with nats_daemon(tmp_path, configuration) as port:
        bus = Bus(servers=[f"nats://b:b@127.0.0.1:{port}"])
        site = Site(cluster="fox.test", hostname="n1", bus=bus)
        async with Reader(NatsSource(site=site, telemetry=telemetry, durable="d")) as reader:
            await eventually(lambda: "trying again in 2 s" in caplog.text, 60)
            await eventually(lambda: telemetry.stuck() == ["NatsSource"], 60)
            version = reader.source.bus.server_version
        pauses = re.findall(
            r"\(nats-server (.*)\) refuses .*: 503; trying again in (.*) s", caplog.text
        )
    assert version
    assert pauses[:3] == [(version, "0.5"), (version, "1"), (version, "2")]
