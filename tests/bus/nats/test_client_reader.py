"""The reader behind nats-py: what the server itself sends, and the end of a connection."""

import asyncio

import pytest

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Site
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.servers.nats.proxy import Proxy


async def test_bytes_that_no_server_sends_cost_the_connection_only(nats_server: NatsServer) -> None:
    """Where the next frame begins is unknown then: the client connects anew and hears again."""
    telemetry, heard = Telemetry(), list[bytes]()
    async with (
        Proxy(nats_server) as proxy,
        Connection(proxy.bus, name="t", telemetry=telemetry) as bus,
        Connection(Bus(servers=[nats_server.url]), name="o", telemetry=Telemetry()) as other,
    ):
        await bus.subscribe("a", lambda delivery: heard.append(delivery.payload))
        await bus.flush()
        for garbage in (b"MSG a 1 x\r\n", b"HELLO\r\n", b"MSG a 1 3\r\n12345\r\n"):
            before = len(proxy.clients)
            heard.clear()
            proxy.clients[-1].write(garbage)
            await eventually(lambda: len(proxy.clients) > before)  # noqa: B023 - awaited here
            while not heard:
                await other.publish("a", b"again")
                await asyncio.sleep(0.05)
            assert set(heard) == {b"again"}


async def test_pieces_of_one_byte_and_lines_of_the_server_are_read(nats_server: NatsServer) -> None:
    """A PING is answered, INFO and +OK are taken, in between messages in pieces."""
    heard: list[Delivery] = []

    def with_lines(data: bytes) -> bytes:
        return b"+OK\r\nPING\r\n\r\n" + data if data.startswith((b"MSG", b"HMSG")) else data

    async with (
        Proxy(nats_server) as proxy,
        Connection(proxy.bus, name="t", telemetry=Telemetry()) as bus,
    ):
        await bus.subscribe("a", heard.append)
        await bus.flush()
        proxy.change = with_lines
        for number in range(20):
            await bus.publish("a", b"%d" % number, reply="r", headers={"N": f"{number}"})
            await bus.flush()
        await eventually(lambda: len(heard) == 20)
    assert [(d.payload, d.reply, d.headers) for d in heard] == [
        (b"%d" % number, "r", {"N": f"{number}"}) for number in range(20)
    ]


async def test_messages_larger_than_a_read_come_whole_and_in_order(site: Site) -> None:
    """Many at once, some of hundreds of kilobytes."""
    heard: list[bytes] = []
    sent = [bytes([n % 256]) * (n * n * 37 % 900_000) for n in range(60)]
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await bus.subscribe("a", lambda delivery: heard.append(delivery.payload))
        for payload in sent:
            await bus.publish("a", payload)
        await eventually(lambda: len(heard) == len(sent))
    assert heard == sent


async def test_one_write_publishes_to_many_subjects(site: Site) -> None:
    """In their order, before what is published later."""
    heard: list[str] = []
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await bus.subscribe("x.>", lambda delivery: heard.append(delivery.subject))
        subjects = [f"x.{n}" for n in range(12_000)]
        await bus.publish_each(subjects, b"+ACK")
        await bus.publish_each([], b"+ACK")
        await bus.publish("x.last", b"")
        await eventually(lambda: len(heard) == len(subjects) + 1)
    assert heard == [*subjects, "x.last"]


async def test_an_answer_that_comes_too_late_is_taken(nats_server: NatsServer) -> None:
    """Who asked whether the server is there has given up; later questions are answered."""
    telemetry = Telemetry()
    async with (
        Proxy(nats_server) as proxy,
        Connection(proxy.bus, name="t", telemetry=telemetry) as bus,
    ):
        proxy.speaks.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bus.flush(), 0.2)
        proxy.speaks.set()
        await bus.flush()
        await bus.flush()
    assert telemetry.total(telemetry.bus_errors) == 0
