"""Durable consumers: what they hand over, hold, share and ask for."""

import asyncio
import logging
import re
import time
from pathlib import Path

import pytest

from ccpipe.bus.nats import consumer as module
from ccpipe.bus.nats import reader as reader_module
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams.stream import ensure_consumer
from ccpipe.config import Bus, Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.pipeline import Scope
from ccpipe.telemetry import Telemetry
from tests.bus.nats.reader import Reader, metrics, source
from tests.conftest import eventually
from tests.servers.nats.daemon import nats_daemon


async def test_what_was_not_acknowledged_is_handed_over_again(site: Site, sink: NatsSink) -> None:
    """A bridge that dies with work in hand leaves it to the next one of its name."""
    await sink.write(to_lines(metrics(10)))
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as first:
        await eventually(lambda: len(first.values) == 10)
    async with Reader(source(site, ack_wait=Duration(1))) as second:
        await eventually(lambda: len(second.values) == 10)
    async with Reader(source(site, ack_wait=Duration(1), drain=Duration(2))) as third:
        pass
    assert third.values == []


async def test_a_living_bridge_keeps_what_it_holds(site: Site, sink: NatsSink) -> None:
    """Held longer than `ack_wait`, a message is not handed over twice: the bridge says it lives."""
    await sink.write(to_lines(metrics(10)))
    async with Reader(source(site, ack_wait=Duration(1)), acknowledge=False) as reader:
        await eventually(lambda: len(reader.values) == 10)
        await asyncio.sleep(2.5)  # the rule speaks of time: two and a half times ack_wait
        await sink.write(to_lines(metrics(1, start=1_750_000_000)))
        await eventually(lambda: len(reader.values) > 10)
    assert len(reader.values) == 11


@pytest.mark.parametrize("moment", ["held", "acknowledged"])
async def test_messages_delivered_again_to_the_process_that_has_them_are_dropped(
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
    async with Reader(source(site, drain=Duration(2))) as second:
        pass
    assert (len(reader.values), second.values) == (10, [])


async def test_two_bridges_of_one_name_share_the_work(site: Site, sink: NatsSink) -> None:
    """Every message goes to one of them."""
    async with Reader(source(site)) as one, Reader(source(site)) as other:
        for i in range(40):
            await sink.write(to_lines(metrics(1, start=1_740_000_000 + i)))
        await eventually(lambda: len(one.values) + len(other.values) == 40)
        await asyncio.sleep(0.1)
    assert len(one.values) + len(other.values) == 40


async def test_told_to_stop_it_empties_the_stream_first(site: Site, sink: NatsSink) -> None:
    """With `drain` a bridge that ends has written everything that was published before."""
    await sink.write(to_lines(metrics(5000)))
    async with Reader(source(site, drain=Duration(5))) as reader:
        pass  # stopped at once
    assert len(reader.values) == 5000


async def test_a_second_exclusive_reader_is_refused(site: Site, sink: NatsSink) -> None:
    """A stateful translator must see all messages; the reader that was there goes on."""
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


async def test_an_exclusive_reader_that_was_replaced_ends(site: Site, sink: NatsSink) -> None:
    """Where it did not read when the other one came: never do both go on."""
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


async def drained(read: NatsSource) -> None:
    """Read to the end."""
    async for _ in read.batches():
        pass


async def test_what_waits_undecoded_is_bounded(
    site: Site, sink: NatsSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large messages no more are asked for than a request may bring, however few they are."""
    monkeypatch.setattr(module, "PULL_BYTES", 2**18)
    for start in range(40):
        await sink.write(to_lines(metrics(2000, start=1_740_000_000 + 2000 * start)))
    async with source(site) as read:
        reader = await read.start()
        assert isinstance(reader, ConsumerReader)
        await eventually(lambda: reader._is_full)
        await asyncio.sleep(0.2)  # for requests that must not come
        assert 2**18 <= reader._waiting_bytes < 2**19


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
    monkeypatch.setattr(reader_module, "STUCK_SECONDS", 1.0)
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
            await eventually(lambda: telemetry.stuck() != [], 60)
            version = reader.source.bus.server_version
        pauses = re.findall(
            r"\(nats-server (.*)\) refuses .*: 503; trying again in (.*) s", caplog.text
        )
    assert version
    assert pauses[:3] == [(version, "0.5"), (version, "1"), (version, "2")]
