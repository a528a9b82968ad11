"""Durable consumers: delivery, acknowledgement, sharing and requests."""

import asyncio
import logging
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats import consumer as module
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.protocol.frames import Delivery, Redelivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams.jetstream import consumer_of
from ccpipe.bus.nats.streams.stream import ensure_consumer
from ccpipe.config import Bus, Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.pipeline import Scope
from ccpipe.process.background import end_tasks
from ccpipe.telemetry import Telemetry
from tests.bus.nats.reader import metrics, source
from tests.conftest import eventually, free_port
from tests.reading import Reader
from tests.servers.nats.daemon import nats_daemon


async def test_consumer_keeps_unacknowledged_messages_while_alive(
    site: Site, sink: NatsSink
) -> None:
    """A message unacknowledged for longer than `ack_wait` is not delivered twice."""
    await sink.write(to_lines(metrics(10)))
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as reader:
        await eventually(lambda: len(reader.values) == 10)
        await asyncio.sleep(2.5)  # the rule speaks of time: two and a half times ack_wait
        await sink.write(to_lines(metrics(1, start=1_750_000_000)))
        await eventually(lambda: len(reader.values) > 10)
    assert len(reader.values) == 11


@pytest.mark.parametrize("moment", ["held", "acknowledged"])
async def test_consumer_drops_redelivery_of_messages_it_has(
    site: Site, sink: NatsSink, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    """A process that was stopped for longer than `ack_wait` does not do its work twice."""
    caplog.set_level(logging.INFO)
    await sink.write(to_lines(metrics(10)))
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as reader:
        await eventually(lambda: len(reader.values) == 10)
        time.sleep(1.5)  # as SIGSTOP does: no task extends the time
        if moment == "held":
            await eventually(lambda: "dropped 1 messages, delivered again" in caplog.text)
        for batch in reader.batches:
            assert batch.ack
            await batch.ack()
        await eventually(lambda: "dropped 1 messages, delivered again" in caplog.text)
    async with Reader(source(site, drain_timeout=Duration(2))) as second:
        pass
    assert (len(reader.values), second.values) == (10, [])


async def test_consumers_of_one_name_share_work(site: Site, sink: NatsSink) -> None:
    async with Reader(source(site)) as one, Reader(source(site)) as other:
        for i in range(40):
            await sink.write(to_lines(metrics(1, start=1_740_000_000 + i)))
        await eventually(lambda: len(one.values) + len(other.values) == 40)
        await asyncio.sleep(0.1)
    assert len(one.values) + len(other.values) == 40


async def test_consumer_drains_stream_when_stopped(site: Site, sink: NatsSink) -> None:
    """With `drain_timeout` a bridge that ends has written everything that was published before."""
    await sink.write(to_lines(metrics(5000)))
    async with Reader(source(site, drain_timeout=Duration(5))) as reader:
        pass  # stopped at once
    assert len(reader.values) == 5000


async def test_second_exclusive_reader_is_refused(site: Site, sink: NatsSink) -> None:
    """A stateful translator must see all messages; the first reader continues."""
    await sink.write(to_lines(metrics(1)))
    first, second = source(site), source(site)
    async with Reader(first, scope=Scope.CLUSTER) as reader:
        await eventually(lambda: reader.values == [0.0])
        with pytest.raises(ConfigError, match="the durable name 'test' is in use by"):
            await asyncio.wait_for(Reader(second, scope=Scope.CLUSTER).read(), 60)
        await sink.write(to_lines(metrics(3)))
        await eventually(lambda: len(reader.values) > 1)
    async with Reader(source(site)) as successor:
        await sink.write(to_lines(metrics(2, start=1_760_000_000)))
        await eventually(lambda: successor.values != [])


async def test_replaced_exclusive_reader_ends(site: Site, sink: NatsSink) -> None:
    """It was stalled when the other one started: never do both continue."""
    await sink.write(to_lines(metrics(1)))
    first = source(site, ack_wait=Duration(0.6))
    await first.__aenter__()
    await first.start(Scope.CLUSTER)
    await eventually(lambda: bool(first.stream))
    jetstream = first.bus.jetstream()
    stream = first.stream
    await ensure_consumer(jetstream, stream, "test", first.patterns, 0.6, owner="other pid 1")
    with pytest.raises(ConfigError, match="in use by other pid 1"):
        await asyncio.wait_for(drained(first), 60)
    await first.__aexit__()


async def test_exclusive_readers_of_one_process_exclude_each_other(
    site: Site, sink: NatsSink
) -> None:
    """As those of two processes do: a process may run several recipes that start at once."""
    await sink.write(to_lines(metrics(1)))
    wait = Duration(0.6)
    async with source(site, ack_wait=wait) as first, source(site, ack_wait=wait) as second:
        await asyncio.gather(first.start(Scope.CLUSTER), second.start(Scope.CLUSTER))
        reading = [asyncio.create_task(drained(each)) for each in (first, second)]
        done, rest = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        await end_tasks(rest)
    assert len(done) == 1
    with pytest.raises(ConfigError, match="in use by"):
        done.pop().result()


async def drained(read: NatsSource) -> None:
    async for _ in read.batches():
        pass


async def test_consumer_bounds_undecoded_bytes(
    site: Site, sink: NatsSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is made that could exceed the limit, however few messages are large."""
    monkeypatch.setattr(module, "PULL_BYTES", 2**18)
    for start in range(40):
        await sink.write(to_lines(metrics(2000, start=1_740_000_000 + 2000 * start)))
    async with source(site) as read:
        reader = await read.start()
        assert isinstance(reader, ConsumerReader)
        await eventually(lambda: reader._is_full)
        await asyncio.sleep(0.2)  # for requests that must not be sent
        assert 2**18 <= reader._waiting_bytes < 2**19


WITHOUT_NEXT = """
jetstream {{ store_dir: "{directory}" }}
accounts {{
  data {{ jetstream: enabled, exports: [{{ service: "$JS.API.>" }}] }}
  bridges {{ users: [{{ user: b, password: b }}], imports: [{imports}] }}
}}
"""
"""A server that has stream and consumer, and refuses requests for messages like one without."""


async def test_consumer_repeats_refused_requests_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the reason and the server's version, and ``/ready`` reports no progress."""
    monkeypatch.setattr(module, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(module, "REFUSED_SECONDS", (0.5, 60.0))
    api = ["INFO", "STREAM.>", "CONSUMER.CREATE.>", "CONSUMER.INFO.>", "CONSUMER.DURABLE.>"]
    service = '{{ service: {{ account: data, subject: "$JS.API.{}" }} }}'
    imports = ", ".join(map(service.format, api))
    configuration = WITHOUT_NEXT.format(directory=tmp_path / "js", imports=imports)
    telemetry = Telemetry()
    async with nats_daemon(tmp_path, configuration) as port:
        bus = Bus(servers=[f"nats://b:b@127.0.0.1:{port}"])
        site = Site(cluster="fox.test", hostname="n1", bus=bus)
        async with Reader(NatsSource(site=site, telemetry=telemetry, durable="d")) as reader:
            await eventually(lambda: "trying again in 2 s" in caplog.text, 60)
            await eventually(lambda: telemetry.stuck() != [], 60)
            version = reader.source.bus.server_version
        pauses = re.findall(
            r"\(nats-server (.*)\) refuses .*: 503; trying again in (.*) s", caplog.text
        )
    assert version
    assert pauses[:3] == [(version, "0.5"), (version, "1"), (version, "2")]


def delivery(number: int, stored: int = 7, *, times: int = 1) -> Delivery:
    return Delivery("fox.metrics", b"", reply=f"$JS.ACK.s.c.{times}.{number}.1.{stored}.0")


def nothing_held() -> list[bytes]:
    return []


@given(st.sets(st.integers(1, 20)), st.lists(st.integers(1, 25)))
def test_redelivery_sorts_messages_into_new_and_expected(
    received: set[int], delivered: list[int]
) -> None:
    """Until the first message beyond those expected, number and time identify them."""
    redelivery = Redelivery(nothing_held)
    redelivery.expect([delivery(number).reply.encode() for number in received])
    new, repeated = redelivery.split([delivery(number) for number in delivered])
    end = next(
        (n for n, number in enumerate(delivered) if number > max(received, default=0)),
        len(delivered),
    )
    known = [number for number in delivered[:end] if number in received]
    assert repeated == [delivery(number) for number in known]
    assert len(new) + len(repeated) == len(delivered)


def test_redelivery_treats_numbers_of_another_stream_as_new() -> None:
    """A stream that lost its end gives the same numbers to other messages, stored later."""
    redelivery = Redelivery(nothing_held)
    redelivery.expect([f"{delivery(1).reply} {delivery(2).reply}".encode()])
    assert redelivery.split([delivery(1, stored=8)]) == ([delivery(1, stored=8)], [])
    redelivery.clear()
    assert redelivery.split([delivery(1)]) == ([delivery(1)], [])


@given(st.sets(st.integers(1, 9)), st.lists(st.integers(1, 9)), st.integers(1, 3))
def test_consumer_recognizes_redelivery_of_unacknowledged_messages(
    held: set[int], delivered: list[int], times: int
) -> None:
    """A first delivery cannot be a repetition, so it is not looked up."""
    redelivery = Redelivery(lambda: [delivery(number).reply.encode() for number in held])
    messages = [delivery(number, times=times) for number in delivered]
    known = [number for number in delivered if times > 1 and number in held]
    new, repeated = redelivery.split(messages)
    assert repeated == [delivery(number, times=times) for number in known]
    assert len(new) + len(repeated) == len(delivered)


async def test_consumer_processes_messages_once_if_broker_lost_acknowledgements(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Restarted from an old position it redelivers messages; a bridge processes them once."""
    caplog.set_level(logging.INFO)
    port = free_port()
    server = NatsServer(tmp_path, port=port)
    async with server:
        site = Site(cluster="fox.test", hostname="n1", bus=Bus(servers=[server.url]))
        sink = NatsSink(site=site, telemetry=Telemetry(), max_lines=1)
        reading = Reader(source(site))
        await sink.__aenter__()
        await reading.__aenter__()
        await sink.write(to_lines(metrics(5)))
        await _acknowledged(reading, 5)
        await eventually(lambda: any(tmp_path.rglob("obs/test/o.dat")))
        [position] = tmp_path.rglob("obs/test/o.dat")
        old = position.read_bytes()
        await sink.write(to_lines(metrics(15, start=1_750_000_000)))
        await _acknowledged(reading, 20)
    position.write_bytes(old)
    async with NatsServer(tmp_path, port=port):
        await eventually(lambda: sink.bus.is_connected)
        await sink.write(to_lines(metrics(1, start=1_760_000_000)))
        await _acknowledged(reading, 21)
        await reading.__aexit__()
        await sink.__aexit__(None, None, None)
    assert len(reading.values) == 21
    assert re.search(r"dropped \d+ messages", caplog.text)


async def _acknowledged(reading: Reader, count: int) -> None:
    await eventually(lambda: len(reading.values) >= count)
    async with asyncio.timeout(60):
        while True:
            consumer = await consumer_of(
                reading.source.bus.jetstream(), "ccpipe-fox%2Etest", "test"
            )
            if consumer is not None and consumer.ack_floor.stream_seq >= count:
                return
            await asyncio.sleep(0.02)
