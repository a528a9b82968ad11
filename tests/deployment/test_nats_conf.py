"""The ``nats.conf`` that the project ships: each role can do its work and nothing else."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ccpipe.bus.nats.accounts import ensure_keys, users_of
from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.control_requests import control_request, send_requests
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import server_program
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Duration, Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import metric
from ccpipe.node.agent.responder import Responder
from ccpipe.node.controls.control import Control
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.conftest import eventually, free_port
from tests.paths import ROOT
from tests.servers.nats.daemon import accepts, nats_daemon

CONF = ROOT / "nats.conf"
NOW = 1_740_000_000 * 10**9
RECORDS = [metric("m", 1.0, time=NOW, tags={"cluster": "fritz", "hostname": "n1", "type": "node"})]

SiteOf = Callable[[str], Site]


@pytest.fixture
async def site_of(tmp_path: Path) -> AsyncIterator[SiteOf]:
    """Run nats-server with the shipped file; give the site as one of its users sees it."""
    port = free_port()
    # Only places differ from what the file says: everything listens on loopback, data in a tmp.
    conf = tmp_path / "nats.conf"
    conf.write_text(
        CONF.read_text()
        .replace('listen: "0.0.0.0:4222"', f'listen: "127.0.0.1:{port}"')
        .replace('http: "127.0.0.1:8222"', "")
        .replace('"/var/lib/nats"', f'"{tmp_path / "js"}"')
    )
    roles = ("NODE", "BRIDGE", "VIEWER", "OPERATOR")
    passwords = {f"CCPIPE_{role}_PASSWORD": f"{role}-pw" for role in roles}
    server = await asyncio.create_subprocess_exec(
        server_program(), "-c", str(conf), env={**os.environ, **passwords},
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    def site(role: str) -> Site:
        secret = tmp_path / role
        secret.write_text(f"{role.upper()}-pw\n")
        bus = Bus(servers=[f"nats://127.0.0.1:{port}"], user=role, password_file=str(secret))
        return Site(cluster="fritz", hostname="n1", bus=bus)

    try:
        await accepts(port)
        yield site
    finally:
        server.terminate()
        await server.wait()


def denials(telemetry: Telemetry) -> float:
    return telemetry.bus_errors.values.get("permissions", 0)


async def test_node_bridge_and_viewer_work_together(site_of: SiteOf) -> None:
    """A bridge makes the stream, a node publishes into it, the viewer sees it pass."""
    telemetry = Telemetry()
    seen: list[Delivery] = []
    source = NatsSource(site=site_of("bridge"), telemetry=telemetry, durable="b", drain=Duration(3))
    async with (
        Connection(site_of("viewer").bus, name="tail", telemetry=telemetry) as viewer,
        NatsSink(site=site_of("node"), telemetry=telemetry) as sink,
        source,
    ):
        await viewer.subscribe("fritz.metrics", seen.append)
        await viewer.flush()
        await source.start()
        await eventually(lambda: bool(source.stream))
        await sink.write(to_lines(RECORDS))
        await NatsDeadLetterSink(source.bus, site_of("bridge")).write([DeadLetter(b"x", "why")])
        source.stop()
        values = [record.value async for batch in source.batches() for record in batch.records]
        await viewer.flush()
    assert values == [1.0]
    assert [delivery.subject for delivery in seen] == ["fritz.metrics"]
    assert denials(telemetry) == 0


async def test_a_node_cannot_listen_to_others(site_of: SiteOf) -> None:
    """What other nodes say is none of a node's business; the refusal is counted."""
    telemetry = Telemetry()
    received: list[Delivery] = []
    async with Connection(site_of("node").bus, name="n", telemetry=telemetry) as node:
        await node.subscribe("fritz.metrics", received.append)
        await node.flush()
        await node.publish("fritz.metrics", b"m value=1")
        await node.flush()
        await eventually(lambda: denials(telemetry) == 1)
    assert not received


async def test_a_viewer_cannot_speak(site_of: SiteOf) -> None:
    """Who only looks cannot forge a metric or start a job."""
    telemetry = Telemetry()
    async with Connection(site_of("viewer").bus, name="v", telemetry=telemetry) as viewer:
        await viewer.publish("fritz.events.job", b"x")
        await viewer.flush()
        await eventually(lambda: denials(telemetry) == 1)


async def test_a_node_cannot_make_streams(site_of: SiteOf) -> None:
    """Without a stream a node's write is unavailable, to be tried again, rather than lost."""
    telemetry = Telemetry()
    async with NatsSink(site=site_of("node"), telemetry=telemetry) as sink:
        with pytest.raises(UnavailableError, match="stream"):
            await sink.write(to_lines(RECORDS))
    assert denials(telemetry) >= 1


async def test_an_operator_asks_and_a_node_answers(site_of: SiteOf) -> None:
    """Over and over: the broker lets a node answer each request."""
    telemetry, site = Telemetry(), site_of("node")
    controls = {"interval": Control("time", lambda _: "10s")}
    async with (
        Connection(site.bus, name="n", telemetry=telemetry) as node,
        Connection(site_of("operator").bus, name="o", telemetry=telemetry) as operator,
        Responder(node, site, controls),
    ):
        await eventually(lambda: len(node._subscriptions) > 0)
        await node.flush()
        for _ in range(3):
            answers = await send_requests(
                operator, site_of("operator"), [control_request("interval", node="n1")], seconds=10
            )
            assert [answer.value for answer in answers] == ["10s"]
    assert denials(telemetry) == 0


@pytest.mark.parametrize("role", ["node", "bridge", "viewer"])
async def test_nobody_else_may_send_control_requests(site_of: SiteOf, role: str) -> None:
    """A node that was taken over cannot throttle the others; the refusal is told at once."""
    site = site_of(role)
    async with Connection(site.bus, name=role, telemetry=Telemetry()) as bus:
        for value in (None, "1s"):
            with pytest.raises(
                DeniedError, match="does not permit this user to send control requests"
            ):
                await send_requests(
                    bus, site, [control_request("interval", node="n1", value=value)], seconds=10
                )


async def test_an_operator_hears_nothing_but_answers(site_of: SiteOf) -> None:
    """Neither metrics nor other people's requests, and it cannot forge a metric."""
    telemetry = Telemetry()
    async with Connection(site_of("operator").bus, name="o", telemetry=telemetry) as operator:
        await operator.subscribe("fritz.metrics", lambda _: None)
        await operator.subscribe("fritz.control.*", lambda _: None)
        await operator.publish("fritz.metrics", b"m value=1")
        await operator.flush()
        await eventually(lambda: denials(telemetry) == 3)


@pytest.mark.parametrize("role", ["node", "bridge", "viewer", "operator"])
async def test_nobody_hears_the_answers_to_others(site_of: SiteOf, role: str) -> None:
    """Each user has inboxes of its own."""
    telemetry = Telemetry()
    async with Connection(site_of(role).bus, name=role, telemetry=telemetry) as bus:
        for subject in ("_INBOX.>", "_INBOX.*.>", "_INBOX.somebody.>"):
            await bus.subscribe(subject, lambda _: None)
        await bus.flush()
        await eventually(lambda: denials(telemetry) == 3)


async def test_a_key_works_in_place_of_a_password(tmp_path: Path) -> None:
    """With the user's name beside it, answers arrive where the shipped permissions allow them."""
    ensure_keys(tmp_path, "node", ["n1"])
    [user] = users_of(tmp_path)
    configuration = (
        CONF.read_text()
        .replace('listen: "0.0.0.0:4222"', "")
        .replace('http: "127.0.0.1:8222"', "")
        .replace('"/var/lib/nats"', f'"{tmp_path / "js"}"')
        .replace('user: "node", password: $CCPIPE_NODE_PASSWORD', f"nkey: {user.key}")
    )
    for role in ("BRIDGE", "VIEWER", "OPERATOR"):
        configuration = configuration.replace(f"$CCPIPE_{role}_PASSWORD", '"x"')
    seed = tmp_path / "nkeys" / "node" / "n1.nk"
    telemetry = Telemetry()
    async with nats_daemon(tmp_path, configuration) as port:
        bus = Bus(servers=[f"nats://127.0.0.1:{port}"], user="node", nkey_file=str(seed))
        async with connected(bus, telemetry) as node:
            await node.subscribe(node.new_inbox(), lambda _: None)
            await node.flush()
    assert denials(telemetry) == 0
