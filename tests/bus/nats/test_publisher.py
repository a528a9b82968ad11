"""Encoded messages onto the bus: each once, in order, also through retries."""

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.publisher import Outgoing, Publisher
from ccpipe.bus.nats.server import Server
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import RejectedError
from ccpipe.telemetry import Telemetry
from tests.cli.dead.test_command import stored

SUBJECT = "fox%2Etest.metrics"


async def test_messages_are_stored_in_order_and_once(site: Site, nats_server: Server) -> None:
    """The stream is made where there is none; the same id is stored once."""
    messages = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(100)]
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        for _ in range(2):
            await publisher.publish(messages)
    assert await stored(nats_server) == [(SUBJECT, b"%d" % i) for i in range(100)]


async def test_the_id_says_what_and_where() -> None:
    """The same payload on another subject is another message."""
    first, second = Outgoing.of("a", b"x"), Outgoing.of("b", b"x")
    assert first.id != second.id
    assert first == Outgoing.of("a", b"x")


async def test_a_failure_in_the_middle_costs_no_order(site: Site, nats_server: Server) -> None:
    """What was stored before is not sent again by the next try."""
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        good = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(40)]
        huge = Outgoing(SUBJECT, b"x" * (bus.max_payload + 1), "huge")
        with pytest.raises(RejectedError):
            await publisher.publish([*good, huge])
        await publisher.publish(good)
    assert await stored(nats_server) == [(SUBJECT, b"%d" % i) for i in range(40)]
