"""The reader behind nats-py: what the server itself sends, and the end of a connection."""

import asyncio
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.server import Server
from ccpipe.config import Bus, Site
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually


class Proxy:
    """Stands between a client and the real server, and may put in bytes of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clients: list[asyncio.StreamWriter] = []
        self.change: Callable[[bytes], bytes] = bytes
        """What becomes of the bytes that the server sends."""

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def bus(self) -> Bus:
        """A configuration that goes through here."""
        address = urlsplit(self.server.url)
        port = self._listening.sockets[0].getsockname()[1]
        user = f"{address.username}:{address.password}"
        return Bus(servers=[f"nats://{user}@127.0.0.1:{port}"])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients.append(writer)
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.server.port)
        for source, sink, is_changed in ((reader, ours, False), (theirs, writer, True)):
            task = asyncio.create_task(self._copy(source, sink, is_changed=is_changed))
            self._tasks.add(task)

    async def _copy(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_changed: bool
    ) -> None:
        try:
            while data := await source.read(2**16):
                sink.write(self.change(data) if is_changed else data)
        finally:
            sink.close()


async def test_bytes_that_no_server_sends_cost_the_connection_only(nats_server: Server) -> None:
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


async def test_pieces_of_one_byte_and_lines_of_the_server_are_read(nats_server: Server) -> None:
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
