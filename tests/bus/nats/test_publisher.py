"""Encoded messages onto the bus: each once, in order, also through retries."""

import contextlib

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.permissions import ForbiddenError
from ccpipe.bus.nats.publisher import NoStreamError, Outgoing, Publisher
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.telemetry import Telemetry
from tests.servers.nats.proxy import Proxy
from tests.servers.nats.stored import stored

SUBJECT = "fox%2Etest.metrics"


async def test_messages_are_stored_in_order_and_once(site: Site, nats_server: NatsServer) -> None:
    """The stream is made where there is none; the same id is stored once."""
    messages = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(100)]
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        for _ in range(2):
            await publisher.publish(messages)
    assert await stored(nats_server) == [(SUBJECT, b"%d" % i) for i in range(100)]


async def test_publisher_tries_again_when_the_stream_has_no_leader(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of servers refuses messages until it has elected one; the stream is there."""
    attempts = 0

    async def refuse(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise NoStreamError(SUBJECT, "no stream stores it")

    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing(SUBJECT, b"1", "id-1")])
        monkeypatch.setattr("ccpipe.bus.nats.publisher.store", refuse)
        with pytest.raises(UnavailableError, match="has no leader") as caught:
            await publisher.publish([Outgoing(SUBJECT, b"2", "id-2")])
    assert not isinstance(caught.value, NoStreamError)
    assert attempts == 2


async def test_publisher_tries_again_when_nobody_answers_whether_there_is_a_stream(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers without a leader do not know; a node, which may not make one, asks again."""

    async def no_stream(*_: object) -> None:
        raise NoStreamError(SUBJECT, "no stream stores it")

    async def no_answer(*_: object) -> list[str]:
        raise UnavailableError("looking for a stream: no answer")

    async def refuse(*_: object) -> None:
        raise ForbiddenError(["$JS.API.STREAM.INFO.s"])

    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing(SUBJECT, b"1", "id-1")])
        monkeypatch.setattr("ccpipe.bus.nats.publisher.store", no_stream)
        monkeypatch.setattr("ccpipe.bus.nats.streams.jetstream.names_of", no_answer)
        monkeypatch.setattr("ccpipe.bus.nats.streams.stream.ensure_stream", refuse)
        with pytest.raises(UnavailableError, match="no answer") as caught:
            await publisher.publish([Outgoing(SUBJECT, b"2", "id-2")])
    assert not isinstance(caught.value, NoStreamError)


async def test_a_failure_in_the_middle_costs_no_order(site: Site, nats_server: NatsServer) -> None:
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        good = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(40)]
        huge = Outgoing(SUBJECT, b"x" * (bus.max_payload + 1), "huge")
        with pytest.raises(RejectedError):
            await publisher.publish([*good, huge])
        await publisher.publish(good)
    assert await stored(nats_server) == [(SUBJECT, b"%d" % i) for i in range(40)]


async def test_a_refused_message_costs_no_order(nats_server: NatsServer) -> None:
    """What follows it on its subject waits for its retry; other subjects need not."""
    messages = [Outgoing(f"fox%2Etest.events.{i % 2}", b"%d" % i, f"id-{i}") for i in range(40)]
    async with Proxy(nats_server) as proxy:
        site = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
            publisher = Publisher(bus, site.bus, Subjects.of(site))
            await publisher.publish(messages[:2])  # there is a stream
            proxy.refuses = {b"4", b"21"}
            with pytest.raises(UnavailableError, match="refused by the proxy"):
                await publisher.publish(messages)
            with contextlib.suppress(UnavailableError):
                await publisher.publish(messages)
            await publisher.publish(messages)
    assert not proxy.refuses
    found = await stored(nats_server)
    for subject in ("fox%2Etest.events.0", "fox%2Etest.events.1"):
        expected = [message.payload for message in messages if message.subject == subject]
        assert [payload for where, payload in found if where == subject] == expected
