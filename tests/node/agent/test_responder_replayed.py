"""Recorded, old or repeated requests, and requests delivered by a stream, change nothing."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.control_requests import control_request
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.node.agent.responder import MAX_OFFSET_SECONDS, read
from tests.conftest import eventually
from tests.node.agent.test_responder import Node, connected, site_of
from tests.responding import responding

PUT = "fox%2Etest.control.put"
SECOND = 10**9


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def bus(nats_server: Any, node: Node) -> AsyncIterator[Connection]:
    site = site_of(nats_server)
    async with (
        connected(site) as own,
        responding(own, site, node.controls()),
        connected(site) as asking,
    ):
        yield asking


def line(value: str, *, method: str = "PUT", sent: int | None = None) -> bytes:
    sent = time.time_ns() if sent is None else sent
    return f'interval,hostname=nuc,method={method},type=node control="{value}" {sent}\n'.encode()


async def answer_to(bus: Connection, payload: bytes) -> tuple[str, str]:
    received: list[Delivery] = []
    inbox = bus.new_inbox()
    await bus.subscribe(inbox, received.append)
    await bus.publish(PUT, payload, reply=inbox)
    await eventually(lambda: bool(received))
    (answer,) = decode(received[0].payload, precision="ns")
    return answer.tags["level"], str(answer.value)


async def test_put_is_executed_once(bus: Connection, node: Node) -> None:
    """A replay of the same bytes is refused; the same value with a new timestamp is accepted."""
    recorded = line("7s")
    assert (await answer_to(bus, recorded))[0] == "INFO"
    assert (await answer_to(bus, line("9s")))[0] == "INFO"
    level, text = await answer_to(bus, recorded)
    assert (level, node.interval) == ("ERROR", "9s")
    assert "received before" in text
    assert (await answer_to(bus, line("7s")))[0] == "INFO"
    assert node.interval == "7s"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (line("7s", sent=1_740_027_951_123_456_789), "s before this node's time"),
        (line("7s", sent=1_740_027_951), "s before this node's time"),
        (line("7s", sent=4_000_000_000 * SECOND), "s after this node's time"),
        (b'interval,hostname=nuc,method=PUT,type=node control="7s"\n', "must have a timestamp"),
        (line("7s", sent=1, method="put"), "one of GET, PUT"),
    ],
    ids=["old", "in seconds", "future", "without a timestamp", "lower case"],
)
async def test_put_with_invalid_time_is_refused_with_reason(
    bus: Connection, node: Node, payload: bytes, text: str
) -> None:
    """cc-node-controller's client sends its time and ``PUT``."""
    level, why = await answer_to(bus, payload)
    assert (level, node.interval) == ("ERROR", "10s")
    assert text in why


@given(st.integers(-100, 100))
def test_put_is_accepted_within_documented_offset(seconds: int) -> None:
    now = 1_795_000_000 * SECOND
    for method in ("GET", "PUT"):
        payload = line("7s", method=method, sent=now + seconds * SECOND)
        (request,) = read(payload, cluster="fox", hostname="nuc", now=now)
        is_accepted = method == "GET" or abs(seconds) <= MAX_OFFSET_SECONDS
        assert (not request.problem) == is_accepted


async def test_request_delivered_by_stream_is_ignored(bus: Connection, node: Node) -> None:
    """By a push consumer, by a pull request, and republished, on a broker with a single account."""
    streams: list[dict[str, object]] = [
        {"name": "replayed", "subjects": ["replayed"]},
        {"name": "again", "subjects": ["again"], "republish": {"src": "again", "dest": PUT}},
    ]
    answers: list[Delivery] = []
    inbox = bus.new_inbox()
    await bus.subscribe(inbox, answers.append)

    async def api(request: str, body: dict[str, object], reply: str = inbox) -> None:
        await bus.publish(f"$JS.API.{request}", json.dumps(body).encode(), reply=reply)

    delivered: list[Delivery] = []
    await bus.subscribe(PUT, delivered.append)
    for stream in streams:
        await api(f"STREAM.CREATE.{stream['name']}", stream)
    await eventually(lambda: len(answers) == 2)
    try:
        for subject in ("replayed", "again"):
            await bus.publish(subject, line("7s"))
        push = {"deliver_subject": PUT, "durable_name": "push"}
        await api("CONSUMER.CREATE.replayed.push", {"stream_name": "replayed", "config": push})
        pull = {"durable_name": "pull"}
        await api("CONSUMER.CREATE.replayed.pull", {"stream_name": "replayed", "config": pull})
        await eventually(lambda: len(answers) == 4)
        await api("CONSUMER.MSG.NEXT.replayed.pull", {"batch": 1}, reply=PUT)
        await eventually(lambda: len(delivered) == 3)
        request = control_request("interval", node="nuc", value="8s")
        assert (await answer_to(bus, encode([request], precision="ns")))[0] == "INFO"
    finally:
        for stream in streams:
            await api(f"STREAM.DELETE.{stream['name']}", {})
        await bus.flush()
    assert all(b'"7s"' in each.payload for each in delivered[:3])
    assert node.interval == "8s"
