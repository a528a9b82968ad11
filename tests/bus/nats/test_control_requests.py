"""Control requests over a real broker, and when waiting for answers ends."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.control_requests import control_request, send_requests
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.subjects import REQUESTED_BY
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import log
from ccpipe.telemetry import Telemetry

GET = "fox%2Etest.control.get"


@pytest.fixture
async def bus(site: Site) -> AsyncIterator[Connection]:
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as opened:
        yield opened


class Nodes:
    """Nodes that answer a GET with their name, after a log line that is not a response."""

    def __init__(self, bus: Connection, *names: str) -> None:
        self.bus = bus
        self.names = names
        self.received: list[Delivery] = []
        self.tasks: list[asyncio.Task[None]] = []

    def receive(self, delivery: Delivery) -> None:
        self.received.append(delivery)
        (asked,) = decode(delivery.payload)
        for name in self.names:
            if asked.hostname in (name, None, ""):
                tags = {"hostname": name, "type": "node"}
                payload = encode([log(asked.name, "info", name, time=1, tags=tags)])
                noise = b'{"stream": "kept", "seq": 1}'
                for answer in (noise, payload):
                    sent = self.bus.publish(delivery.reply, answer)
                    self.tasks.append(asyncio.ensure_future(sent))


async def test_request_ends_when_every_named_node_has_replied(site: Site, bus: Connection) -> None:
    """Long before the timeout; other replies, such as a stream's, do not count."""
    nodes = Nodes(bus, "n1", "n2")
    await bus.subscribe(GET, nodes.receive)
    start = time.monotonic()
    requests = [control_request("interval", node="n1"), control_request("interval", node="n2")]
    answers = await send_requests(bus, site, requests, seconds=20)
    assert time.monotonic() - start < 30
    assert sorted(str(answer.value) for answer in answers) == ["n1", "n2"]
    assert "@" in nodes.received[0].headers[REQUESTED_BY]


async def test_request_omits_silent_node(site: Site, bus: Connection) -> None:
    await bus.subscribe(GET, Nodes(bus, "n1").receive)
    requests = [control_request("interval", node="n1"), control_request("interval", node="n2")]
    answers = await send_requests(bus, site, requests, seconds=2)
    assert [answer.hostname for answer in answers] == ["n1"]


async def test_request_to_all_nodes_waits_until_timeout(site: Site, bus: Connection) -> None:
    """The number of nodes is unknown."""
    await bus.subscribe(GET, Nodes(bus, "n1", "n2", "n3").receive)
    start = time.monotonic()
    answers = await send_requests(bus, site, [control_request("interval")], seconds=2)
    assert time.monotonic() - start >= 2
    assert sorted(str(answer.value) for answer in answers) == ["n1", "n2", "n3"]


async def test_request_ends_at_once_without_subscriber(site: Site, bus: Connection) -> None:
    start = time.monotonic()
    assert (
        await send_requests(bus, site, [control_request("interval", node="n1")], seconds=20) == []
    )
    assert time.monotonic() - start < 30


def test_request_with_value_is_put() -> None:
    """Without a value it is a GET; without a node it has no hostname."""
    before = time.time_ns()
    put = control_request("freq", node="n1", value="2000", tags={"type": "socket", "type-id": "0"})
    assert put.tags == {"hostname": "n1", "type": "socket", "type-id": "0", "method": "PUT"}
    assert (put.name, put.value, put.field) == ("freq", "2000", "control")
    assert before <= (put.time or 0) <= time.time_ns()
    get = control_request("freq")
    assert (get.tags, get.value) == ({"type": "node", "method": "GET"}, "")


async def test_request_fails_while_disconnected(site: Site) -> None:
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        pass
    with pytest.raises(UnavailableError, match="not connected"):
        await send_requests(bus, site, [control_request("interval")], seconds=1)
