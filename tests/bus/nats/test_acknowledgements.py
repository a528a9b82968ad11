"""Answers of streams, beside what else comes to a reply subject."""

import asyncio
import contextlib

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from ccpipe.bus.nats.connection import Acknowledgements, Answer, Connection, Waiting
from ccpipe.bus.nats.protocol.frames import Delivery, Receive
from ccpipe.bus.nats.publisher import Outgoing, store
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.servers.nats.proxy import Proxy

NOISE = (b"", b"ok", b"{", b"[1]", b"{}", b'{"stream": ""}', b'{"stream": 1}', b'{"error": null}')


async def test_a_subscriber_that_replies_is_no_stream(site: Site, nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)

    async def reply(message: Msg) -> None:
        for noise in NOISE:
            await client.publish(message.reply, noise)

    async with connected(site.bus) as bus:
        stored: set[str] = set()
        messages = [Outgoing("a", b"%d" % number, f"{number}") for number in range(20)]
        await bus.jetstream().add_stream(name="s", subjects=["a"])
        await client.subscribe("a", cb=reply)
        await client.flush()
        await store(bus, messages, stored)
        assert stored == {message.id for message in messages}
        assert (await bus.jetstream().stream_info("s")).state.messages == 20
    await client.close()


async def test_who_waits_learns_that_the_connection_was_lost(nats_server: NatsServer) -> None:
    async with Proxy(nats_server) as proxy:
        bus = Connection(proxy.bus, name="t", telemetry=Telemetry(), forever=False)
        async with bus:
            await bus.jetstream().add_stream(name="s", subjects=["a"])
            proxy.speaks.clear()
            waiting = asyncio.create_task(store(bus, [Outgoing("a", b"x", "1")], set()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), 0.3)
            assert not waiting.done()
            proxy.cut()
            with pytest.raises(UnavailableError, match="was lost"):
                await waiting


class _Kept(Waiting):
    """Keeps its answers."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def answered(self, reply: str, answer: Answer) -> None:
        self.answers.append(answer)

    def proceed(self) -> None:
        pass

    def lost(self) -> None:
        pass


@given(st.lists(st.binary() | st.sampled_from(NOISE)), st.binary())
async def test_any_bytes_are_an_answer_or_noise(payloads: list[bytes], header: bytes) -> None:
    """After them the stream's own answer is still waited for, unless one of them looks like it."""
    receivers: list[Receive] = []

    async def subscribe(_: str, receive: Receive) -> None:
        receivers.append(receive)

    acknowledgements = Acknowledgements(lambda: "inbox", subscribe)
    await acknowledgements.open()
    kept = _Kept()
    reply = acknowledgements.expect(kept)
    receivers[0]([Delivery(reply, payload, header) for payload in payloads])
    seen = len(kept.answers)
    receivers[0]([Delivery(reply, b'{"stream": "s", "seq": 7}')] * 2)
    assert len(kept.answers) == max(seen, 1) == 1


async def test_nobody_waits_after_a_cancellation(site: Site) -> None:
    """An answer that comes later is dropped, and the next call is not confused by it."""
    async with connected(site.bus) as bus:
        await bus.subscribe("a", lambda delivery: None)  # so that nobody says that none is there
        waiting = asyncio.create_task(store(bus, [Outgoing("a", b"x", "1")], set()))
        while not bus.acknowledgements._waiting:
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert not bus.acknowledgements._waiting
