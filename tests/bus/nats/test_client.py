"""Our fixes of nats-py's client, such as closing it without delay."""

import ast
import asyncio
import inspect
import re
from importlib.metadata import version
from typing import Any

import nats.aio.client
import pytest
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.js import JetStreamContext

from ccpipe.bus.nats.client import PING_SECONDS, PRIVATE, UNANSWERED_PINGS, Client
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Site
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.paths import ROOT
from tests.servers.nats.proxy import Proxy

MISSING = object()
SIGNS = r"SLF001|nats\.aio\.client"


async def report(error: Exception) -> None:
    """Fail: the server here breaks no rule."""
    raise AssertionError(error)


def test_client_gives_up_silent_connection_within_30_seconds() -> None:
    """The ping after the unanswered ones ends it; a broker's own default is six minutes."""
    assert PING_SECONDS * (UNANSWERED_PINGS + 1) <= 30


async def test_client_closes_with_or_without_flushing(nats_server: NatsServer, site: Site) -> None:
    """Flushed, all of it arrives; else it closes at once, and nothing of the client stays."""
    seen: list[bytes] = []
    listener = Client(report)
    await listener.connect(nats_server.url)

    async def keep(message: object) -> None:
        seen.append(message.data)  # type: ignore[attr-defined]

    await listener.subscribe("a", cb=keep)
    await listener.flush()
    before = asyncio.all_tasks()
    for flushed in (True, False):
        client = Client(report)
        await client.connect(nats_server.url)
        await client.publish("a", b"flushed" if flushed else b"x" * 2**19)
        await client.leave(flushed=flushed)
        assert client.is_closed
        assert asyncio.all_tasks() <= before
    await eventually(lambda: b"flushed" in seen)
    await listener.leave(flushed=True)


async def test_client_reconnects_after_abort(nats_server: NatsServer) -> None:
    """``abort`` resembles a lost network."""
    client = Client(report)
    await client.connect(nats_server.url, reconnect_time_wait=0)
    client.abort()
    await eventually(lambda: client.stats["reconnects"] == 1 and client.is_connected)
    await client.leave(flushed=True)


def nats_py() -> list[Any]:
    connection = nats.aio.client.Client()
    transport = TcpTransport()  # type: ignore[no-untyped-call]
    return [connection, transport, Subscription(connection), JetStreamContext(connection)]


def test_nats_py_has_private_names_that_we_use() -> None:
    """An update of nats-py shows here which of our lines to check, not by a lost message."""
    parts = {type(each).__name__: each for each in nats_py()}
    for entry, reason in PRIVATE.items():
        owner, _, name = entry.partition("(")[0].partition(".")
        value: Any = getattr(parts[owner], name, MISSING)
        actual = "nothing of that name" if value is MISSING else f"{owner}.{name}"
        if inspect.ismethod(value):
            actual += f"({', '.join(inspect.signature(value).parameters)})"
        assert actual == entry, (
            f"nats-py {version('nats-py')} has {actual}, and ccpipe uses {entry} ({reason}): "
            "mend ccpipe/bus/nats/client.py, or bound nats-py in pyproject.toml"
        )


def test_private_names_of_nats_py_are_in_one_file_and_listed() -> None:
    """Elsewhere ruff forbids them, and nothing else derives from the client."""
    directory = ROOT / "ccpipe" / "bus" / "nats"
    theirs = [each for each in directory.rglob("*.py") if re.search(SIGNS, each.read_text())]
    assert theirs == [directory / "client.py"]
    tree = list(ast.walk(ast.parse(theirs[0].read_text())))
    used = {each.attr for each in tree if isinstance(each, ast.Attribute)}
    used |= {each.name for each in tree if isinstance(each, ast.AsyncFunctionDef)}
    known = {name for each in nats_py() for name in dir(each) if re.match("_[a-z]", name)}
    assert used & known == {re.split("[.(]", entry)[1] for entry in PRIVATE}


async def test_client_reconnects_after_bytes_no_server_sends(nats_server: NatsServer) -> None:
    """The start of the next frame is then unknown; subscriptions are renewed."""
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


async def test_client_reads_pieces_of_one_byte_and_control_lines(nats_server: NatsServer) -> None:
    """PING is answered, INFO and +OK are accepted, between messages in pieces."""
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


async def test_one_write_publishes_to_many_subjects(site: Site) -> None:
    heard: list[str] = []
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await bus.subscribe("x.>", lambda delivery: heard.append(delivery.subject))
        subjects = [f"x.{n}" for n in range(12_000)]
        await bus.publish_each([" ".join(subjects).encode()], b"+ACK")
        await bus.publish_each([], b"+ACK")
        await bus.publish("x.last", b"")
        await eventually(lambda: len(heard) == len(subjects) + 1)
    assert heard == [*subjects, "x.last"]


async def test_client_accepts_late_pong(nats_server: NatsServer) -> None:
    """The ping that it belonged to timed out; later pings are answered."""
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
