"""nats-py's client where it is made safe: it ends when it is told to, and says what TLS refused."""

import asyncio
import contextlib
import ssl

import pytest

from ccpipe.bus.nats.client import (
    PING_SECONDS,
    UNANSWERED_PINGS,
    Client,
    TlsError,
    end_tasks,
    tls_problem,
)
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from tests.conftest import eventually


async def report(error: Exception) -> None:
    """Fail: the server here breaks no rule."""
    raise AssertionError(error)


def test_a_connection_without_answers_is_given_up_within_30_seconds() -> None:
    """The ping after the unanswered ones ends it; a broker's own default is six minutes."""
    assert PING_SECONDS * (UNANSWERED_PINGS + 1) <= 30


async def test_tasks_that_swallow_a_cancellation_are_cancelled_again() -> None:
    """What nats-py now and then does; tasks that have ended and none are no trouble."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end_tasks([task, None, asyncio.current_task()])
    assert (task.done(), swallowed) == (True, 3)


async def test_our_own_cancellation_waits_for_the_tasks() -> None:
    """It is not lost, and nothing is left running behind it."""
    may_end = asyncio.Event()

    async def slow() -> None:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    task = asyncio.create_task(slow())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end_tasks([task]))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.sleep(0.05)
    assert not ending.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(ending, 60)
    assert task.done()


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


def test_what_is_wrong_with_tls_is_said_in_words() -> None:
    """An error of another kind is not TLS's."""
    refused = ssl.SSLCertVerificationError(1, "x")
    refused.verify_message = "self-signed certificate."
    assert tls_problem(refused).startswith(
        "TLS: the server's certificate is refused: self-signed certificate (its authority is"
    )
    handshake = ssl.SSLError(1, "x")
    handshake.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert tls_problem(handshake).endswith("tlsv13 alert certificate required (bus.cert_file)")
    assert tls_problem(TlsError("TLS is required")) == "TLS is required"
    assert tls_problem(ConnectionError("refused")) == ""
