"""nats-py's client where it is made safe: it ends when it is told to."""

import ast
import asyncio
import inspect
import re
from importlib.metadata import version
from typing import Any

import nats.aio.client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.js import JetStreamContext

from ccpipe.bus.nats.client import PING_SECONDS, PRIVATE, UNANSWERED_PINGS, Client
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from tests.conftest import eventually
from tests.paths import ROOT

MISSING = object()
SIGNS = r"SLF001|nats\.aio\.client"


async def report(error: Exception) -> None:
    """Fail: the server here breaks no rule."""
    raise AssertionError(error)


def test_a_connection_without_answers_is_given_up_within_30_seconds() -> None:
    """The ping after the unanswered ones ends it; a broker's own default is six minutes."""
    assert PING_SECONDS * (UNANSWERED_PINGS + 1) <= 30


async def test_it_leaves_with_or_without_what_is_pending(
    nats_server: NatsServer, site: Site
) -> None:
    """Flushed, all of it arrives; else it goes at once, and nothing of the client stays."""
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


async def test_a_cut_connection_comes_back(nats_server: NatsServer) -> None:
    """``abort`` is what a lost network looks like."""
    client = Client(report)
    await client.connect(nats_server.url, reconnect_time_wait=0)
    client.abort()
    await eventually(lambda: client.stats["reconnects"] == 1 and client.is_connected)
    await client.leave(flushed=True)


def nats_py() -> list[Any]:
    connection = nats.aio.client.Client()
    transport = TcpTransport()  # type: ignore[no-untyped-call]
    return [connection, transport, Subscription(connection), JetStreamContext(connection)]


def test_nats_py_has_the_private_names_that_we_use() -> None:
    """Who updates nats-py learns here which of our lines to look at, not from a lost message."""
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


def test_private_names_of_nats_py_stand_in_one_file_and_are_listed() -> None:
    """Elsewhere ruff forbids them, and nothing else derives from the client."""
    folder = ROOT / "ccpipe" / "bus" / "nats"
    theirs = [each for each in folder.rglob("*.py") if re.search(SIGNS, each.read_text())]
    assert theirs == [folder / "client.py"]
    tree = list(ast.walk(ast.parse(theirs[0].read_text())))
    used = {each.attr for each in tree if isinstance(each, ast.Attribute)}
    used |= {each.name for each in tree if isinstance(each, ast.AsyncFunctionDef)}
    known = {name for each in nats_py() for name in dir(each) if re.match("_[a-z]", name)}
    assert used & known == {re.split("[.(]", entry)[1] for entry in PRIVATE}
