"""The ``nats.conf`` that the project ships: each role can do its work."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ccpipe.bus.nats.accounts import ensure_keys, users_of
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.control_requests import control_request, send_requests
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Duration, Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import metric
from ccpipe.node.controls.control import Control
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.conftest import eventually
from tests.paths import ROOT
from tests.responding import responding
from tests.servers.nats.daemon import nats_daemon, placed

CONF = ROOT / "nats.conf"
NOW = 1_740_000_000 * 10**9
RECORDS = [metric("m", 1.0, time=NOW, tags={"cluster": "fritz", "hostname": "n1", "type": "node"})]

SiteOf = Callable[[str], Site]


@pytest.fixture
async def site_of(tmp_path: Path) -> AsyncIterator[SiteOf]:
    """Run nats-server with the shipped file; give the site as one of its users sees it."""
    roles = ("NODE", "BRIDGE", "VIEWER", "OPERATOR")
    passwords = {f"CCPIPE_{role}_PASSWORD": f"{role}-pw" for role in roles}
    configuration = placed(CONF.read_text(), tmp_path)
    async with nats_daemon(tmp_path, configuration, None, **passwords) as port:

        def site(role: str) -> Site:
            secret = tmp_path / role
            secret.write_text(f"{role.upper()}-pw\n")
            bus = Bus(servers=[f"nats://127.0.0.1:{port}"], user=role, password_file=str(secret))
            return Site(cluster="fritz", hostname="n1", bus=bus)

        yield site


def denials(telemetry: Telemetry) -> float:
    return telemetry.bus_errors.values.get("permissions", 0)


async def test_node_bridge_and_viewer_work_together(site_of: SiteOf) -> None:
    """A bridge creates the stream, a node publishes into it, the viewer receives the message."""
    telemetry = Telemetry()
    seen: list[Delivery] = []
    source = NatsSource(
        site=site_of("bridge"), telemetry=telemetry, durable="b", drain_timeout=Duration(3)
    )
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


async def test_node_cannot_create_streams(site_of: SiteOf) -> None:
    """Without a stream a node's write is unavailable, to be retried, rather than lost."""
    telemetry = Telemetry()
    async with NatsSink(site=site_of("node"), telemetry=telemetry) as sink:
        with pytest.raises(UnavailableError, match="stream"):
            await sink.write(to_lines(RECORDS))
    assert denials(telemetry) >= 1


async def test_node_replies_to_operator(site_of: SiteOf) -> None:
    """Repeatedly: the broker allows a reply to each request."""
    telemetry, site = Telemetry(), site_of("node")
    controls = {"interval": Control("time", lambda _: "10s")}
    async with (
        Connection(site.bus, name="n", telemetry=telemetry) as node,
        Connection(site_of("operator").bus, name="o", telemetry=telemetry) as operator,
        responding(node, site, controls),
    ):
        for _ in range(3):
            answers = await send_requests(
                operator, site_of("operator"), [control_request("interval", node="n1")], seconds=10
            )
            assert [answer.value for answer in answers] == ["10s"]
    assert denials(telemetry) == 0


async def test_node_may_not_send_control_requests(site_of: SiteOf) -> None:
    """A compromised one cannot throttle the others; the error is immediate."""
    site = site_of("node")
    async with Connection(site.bus, name="node", telemetry=Telemetry()) as bus:
        for value in (None, "1s"):
            request = control_request("interval", node="n1", value=value)
            with pytest.raises(DeniedError, match="not permit this user to send control requests"):
                await send_requests(bus, site, [request], seconds=10)


async def test_key_replaces_password(tmp_path: Path) -> None:
    """With the user's name, replies arrive where the shipped permissions allow them."""
    ensure_keys(tmp_path, "node", ["n1"])
    [user] = users_of(tmp_path)
    configuration = placed(CONF.read_text(), tmp_path)
    login = 'user: "node", password: $CCPIPE_NODE_PASSWORD'
    configuration = configuration.replace(login, f"nkey: {user.key}")
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
