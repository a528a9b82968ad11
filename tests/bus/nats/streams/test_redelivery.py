"""Messages that a broker delivers again after it was killed."""

import asyncio
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.streams.jetstream import consumer_of
from ccpipe.bus.nats.streams.redelivery import Redelivery
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.telemetry import Telemetry
from tests.bus.nats.reader import Reader, metrics, source
from tests.conftest import eventually, free_port


def delivery(number: int, stored: int = 7, *, times: int = 1) -> Delivery:
    """Make a message as a consumer delivers it."""
    return Delivery("fox.metrics", b"", reply=f"$JS.ACK.s.c.{times}.{number}.1.{stored}.0")


def nothing_held() -> list[str]:
    """Return the reply subjects of no message."""
    return []


@given(st.sets(st.integers(1, 20)), st.lists(st.integers(1, 25)))
def test_each_message_is_new_or_expected(received: set[int], delivered: list[int]) -> None:
    """Until the first message beyond those expected, those of the same number and time."""
    redelivery = Redelivery(nothing_held)
    redelivery.expect(delivery(number).reply for number in received)
    new, repeated = redelivery.split([delivery(number) for number in delivered])
    end = next(
        (n for n, number in enumerate(delivered) if number > max(received, default=0)),
        len(delivered),
    )
    known = [number for number in delivered[:end] if number in received]
    assert repeated == [delivery(number) for number in known]
    assert len(new) + len(repeated) == len(delivered)


def test_numbers_of_another_stream_are_new() -> None:
    """A stream that lost its end gives the same numbers to other messages, stored later."""
    redelivery = Redelivery(nothing_held)
    redelivery.expect([delivery(1).reply, delivery(2).reply])
    assert redelivery.split([delivery(1, stored=8)]) == ([delivery(1, stored=8)], [])
    redelivery.clear()
    assert redelivery.split([delivery(1)]) == ([delivery(1)], [])


@given(st.sets(st.integers(1, 9)), st.lists(st.integers(1, 9)), st.integers(1, 3))
def test_messages_that_are_held_are_repeated_when_delivered_again(
    held: set[int], delivered: list[int], times: int
) -> None:
    """What is delivered for the first time cannot be held, so it is not looked for."""
    redelivery = Redelivery(lambda: [delivery(number).reply for number in held])
    messages = [delivery(number, times=times) for number in delivered]
    known = [number for number in delivered if times > 1 and number in held]
    new, repeated = redelivery.split(messages)
    assert repeated == [delivery(number, times=times) for number in known]
    assert len(new) + len(repeated) == len(delivered)


async def test_a_broker_that_has_forgotten_acknowledgements(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Started again from an old position, it delivers messages twice; a bridge takes them once."""
    caplog.set_level(logging.INFO)
    port = free_port()
    server = NatsServer(tmp_path, port=port)
    async with server:
        site = Site(cluster="fox.test", hostname="n1", bus=Bus(servers=[server.url]))
        sink = NatsSink(site=site, telemetry=Telemetry(), lines=1)
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
    """Wait until the broker has as many acknowledgements, with none missing in between."""
    await eventually(lambda: len(reading.values) >= count)
    async with asyncio.timeout(60):
        while True:
            consumer = await consumer_of(
                reading.source.bus.jetstream(), "ccpipe-fox%2Etest", "test"
            )
            if consumer is not None and consumer.ack_floor.stream_seq >= count:
                return
            await asyncio.sleep(0.02)
