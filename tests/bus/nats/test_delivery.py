"""Records through a real broker: sink, stream, source, cemetery."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Self

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.codecs.line import pack
from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import Server
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.store import MESSAGE_ID, digest
from ccpipe.bus.nats.stream import ensure_consumer
from ccpipe.config import Bus, Duration, Site, Size
from ccpipe.errors import ConfigError, DeniedError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import Message, event, log, metric
from ccpipe.pipeline import Batch, DeadLetter
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually

TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
SECOND = 10**9
NOW = 1_740_000_000 * SECOND


def metrics(count: int, start: int = 1_740_000_000) -> list[Message]:
    """Make metrics one second apart."""
    return [metric("m", float(i), time=(start + i) * SECOND, tags=TAGS) for i in range(count)]


class Reader:
    """Reads a source in the background and keeps what came."""

    def __init__(self, source: NatsSource, *, acknowledge: bool = True) -> None:
        self.source = source
        self.acknowledge = acknowledge
        self.batches: list[Batch] = []

    @property
    def values(self) -> list[object]:
        """The values of all records so far."""
        return [record.value for batch in self.batches for record in batch.records]

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.read())
        await eventually(lambda: self.source.bus.is_connected or self.task.done())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.source.stop()
        await asyncio.wait_for(self.task, 10)

    async def read(self) -> None:
        """Keep what comes until the source ends."""
        async with self.source:
            async for batch in self.source:
                self.batches.append(batch)
                if self.acknowledge:
                    await batch.ack()


@pytest.fixture
async def sink(site: Site) -> AsyncIterator[NatsSink]:
    """Open a sink on the real server."""
    async with NatsSink(site=site, telemetry=Telemetry()) as opened:
        yield opened


def source(site: Site, **options: object) -> NatsSource:
    """Make a source that is durable unless told otherwise."""
    return NatsSource(
        site=site,
        telemetry=Telemetry(),
        **{"durable": "test", **options},  # type: ignore[arg-type]
    )


async def test_what_is_written_before_a_bridge_exists_reaches_it(
    site: Site, sink: NatsSink
) -> None:
    """The stream keeps messages for bridges that come later, in order."""
    await sink.write(metrics(1200))
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 1200)
    assert reader.values == [float(i) for i in range(1200)]
    assert {batch.origin for batch in reader.batches} == {"fox%2Etest.metrics"}


async def test_events_metrics_and_logs_share_the_stream(site: Site, sink: NatsSink) -> None:
    """One durable consumer reads all categories, each from its own subject."""
    records = [
        *metrics(1),
        event("job", "start_job", '{"jobId": 1}', time=NOW, tags=TAGS),
        log("ccb", "info", 'said "x"\n', time=NOW + 1, tags=TAGS),
    ]
    await sink.write(records)
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == len(records))
    read = [record for batch in reader.batches for record in batch.records]
    assert sorted(encode(read, precision="ns").splitlines()) == sorted(
        encode(records, precision="ns").splitlines()
    )
    assert len({batch.origin for batch in reader.batches}) == 3


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


async def test_a_killed_server_costs_nothing(
    nats_server: Server, site: Site, sink: NatsSink
) -> None:
    """The sink says it is unavailable until the server is back; source and sink then go on."""
    async with Reader(source(site)) as reader:
        await sink.write(metrics(3))
        await eventually(lambda: len(reader.values) == 3)
        assert nats_server.pid is not None
        os.kill(nats_server.pid, signal.SIGKILL)
        await _insist(sink, metrics(3, start=1_750_000_000))
        await eventually(lambda: len(reader.values) >= 6)
    assert set(reader.values) == {0.0, 1.0, 2.0}
    assert len(reader.values) == 6


async def _insist(sink: NatsSink, records: list[Message]) -> None:
    for _ in range(100):
        try:
            await sink.write(records)
        except UnavailableError:
            await asyncio.sleep(0.1)
        else:
            return
    pytest.fail("the sink never became available again")


async def test_written_twice_it_is_stored_once(site: Site, sink: NatsSink) -> None:
    """A write that is tried again after a lost acknowledgement makes no duplicates."""
    await sink.write(metrics(700))
    await sink.write(metrics(700))
    async with Reader(source(site, drain=Duration(3))) as reader:
        await eventually(lambda: len(reader.values) >= 700)
    assert len(reader.values) == 700


async def test_a_line_without_time_gets_the_moment_it_was_stored(
    nats_server: Server, site: Site, sink: NatsSink
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
    site: Site, nats_server: Server
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


async def test_a_line_beyond_the_servers_limit_is_rejected(sink: NatsSink) -> None:
    """The broker would refuse it for ever, so trying again is pointless."""
    huge = event("job", "f", "x" * 2**20, time=NOW, tags=TAGS)
    with pytest.raises(RejectedError, match="max_payload"):
        await sink.write([huge])


async def test_payloads_stay_below_the_servers_limit(nats_server: Server, site: Site) -> None:
    """Asked for larger payloads than the server takes, the sink makes smaller ones."""
    async with NatsSink(site=site, telemetry=Telemetry(), lines=10**6, bytes=Size(2**30)) as sink:
        await sink.write(
            [log("c", "info", "x" * 1000, time=NOW + i, tags=TAGS) for i in range(3000)]
        )
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 3000)
    assert len(reader.batches) > 1


async def test_dead_letters_keep_their_bytes_reason_and_origin(
    site: Site, nats_server: Server
) -> None:
    """What nothing would take lies on <cluster>.dead, once however often it is buried."""
    letters = [
        DeadLetter(b"m f=\xff", "the bytes are not\nvalid UTF-8 \u00fc", "fox.metrics", 3, 17),
        DeadLetter(b"m v=1", "refused", "s"),
    ]
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(letters)
        await NatsDeadLetterSink(bus, site).write(letters)
        stream = bus.jetstream()
        name = await stream.find_stream_name_by_subject("fox%2Etest.dead")
        assert (await stream.stream_info(name)).state.messages == 2
        first = await stream.get_msg(name, 1)
    assert first.data == b"m f=\xff"
    assert first.headers is not None
    assert {k: v for k, v in first.headers.items() if k != MESSAGE_ID} == {
        "Ccpipe-Reason": "the bytes are not valid UTF-8 \\xfc",
        "Ccpipe-Origin": "fox.metrics",
        "Ccpipe-Line": "3",
        "Ccpipe-Offset": "17",
    }


async def test_wrong_credentials_end_it_at_once(nats_server: Server) -> None:
    """A password that is refused will not get better: the error says so instead of waiting."""
    bus = Bus(servers=[f"nats://ccpipe:wrong@127.0.0.1:{nats_server.port}"])
    with pytest.raises(DeniedError, match="127.0.0.1") as caught:
        async with Connection(bus, name="t", telemetry=Telemetry()):
            pass
    assert "wrong" not in str(caught.value)


async def test_no_server_is_said_when_nobody_waits(unused_port: int) -> None:
    """Commands that cannot wait for ever name the address that does not answer."""
    bus = Bus(servers=[f"nats://127.0.0.1:{unused_port}"])
    with pytest.raises(UnavailableError, match=str(unused_port)):
        async with Connection(bus, name="t", telemetry=Telemetry(), forever=False):
            pass


async def test_missing_permissions_surface(site: Site, nats_server: Server) -> None:
    """A forbidden subscription is counted; the broker itself only drops a hint."""
    telemetry = Telemetry()
    received: list[Delivery] = []
    async with Connection(site.bus, name="t", telemetry=telemetry) as bus:
        await bus.subscribe("$SYS.>", received.append)  # an ordinary account may not
        await bus.subscribe("ok", received.append)
        await bus.flush()
        await bus.publish("ok", b"1")
        await eventually(lambda: len(received) == 1)
    assert received[0].payload == b"1"


@given(st.lists(st.binary(min_size=1, max_size=30)), st.integers(1, 5), st.integers(1, 60))
def test_packing_keeps_every_line_in_order_and_within_bounds(
    lines: list[bytes], maximum: int, size: int
) -> None:
    """Payloads joined again are the lines; only a line that is itself too long goes beyond."""
    payloads = list(pack(lines, maximum, size))
    assert b"".join(payloads) == b"".join(lines)
    assert all(len(payload) <= size or payload in lines for payload in payloads)
    assert len(payloads) >= -(-len(lines) // maximum)


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_ids_are_equal_only_for_equal_content(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    """An id stands for subject and payload together, without confusing where one ends."""
    if b"\0" not in a + c:
        assert (digest(a, b) == digest(c, d)) == ((a, b) == (c, d))


async def test_bad_lines_are_rejected_with_the_batch_they_came_in(
    site: Site, sink: NatsSink, nats_server: Server
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
            await asyncio.wait_for(Reader(second).read(), 10)
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
        await asyncio.wait_for(drained(first), 10)
    await first.__aexit__()


async def drained(read: NatsSource) -> None:
    """Read to the end."""
    async for _ in read:
        pass
