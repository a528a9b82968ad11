"""A site's keys on a real broker: each node publishes under its own name only."""

import asyncio
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from ccpipe.bus.nats.accounts import domains_of, ensure_domains, ensure_keys, users_of, write_site
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.control_requests import control_request, send_requests
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.protocol.frames import Delivery, stored_as
from ccpipe.bus.nats.publisher import Outgoing, Publisher
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams.stored import read_stored
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Duration, Site, to_struct
from ccpipe.errors import ConfigError, DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.live.feed import LiveFeed
from ccpipe.message import Message, event, metric
from ccpipe.node.controls.control import Control
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.conftest import eventually, free_port
from tests.reading import Reader
from tests.responding import responding
from tests.servers.nats.daemon import nats_daemon

SiteOf = Callable[..., Site]
NOW = 1_740_000_000 * 10**9


def sample(node: str, cluster: str = "fox.no") -> Message:
    tags = {"cluster": cluster, "hostname": node, "type": "node"}
    return metric("m", 1.0, time=NOW, tags=tags)


def configuration(keys: Path, directory: Path, jetstream: str = "") -> str:
    """Return what was written for the server, with its data below a directory, and no ports."""
    text = (keys / "nats.conf").read_text()
    for port in ('listen: "0.0.0.0:4222"', 'http: "127.0.0.1:8222"'):
        text = text.replace(port, "")
    return text.replace('"/var/lib/nats"', f'"{directory / "js"}"\n  {jetstream}')


@pytest.fixture
async def site_of(tmp_path: Path) -> AsyncIterator[SiteOf]:
    keys = tmp_path / "keys"
    for role, names in (("node", ["n1", "n2"]), ("bridge", ["b"]), ("operator", ["o"])):
        ensure_keys(keys, role, names)
    ensure_keys(keys, "viewer", ["v"])
    write_site(keys, "fox.no")
    async with nats_daemon(tmp_path, configuration(keys, tmp_path)) as port:

        def site(role: str, name: str) -> Site:
            tree = tomllib.loads((keys / "ccpipe.toml").read_text())
            tree["hostname"] = name
            tree["bus"]["servers"] = [f"nats://127.0.0.1:{port}"]
            tree["bus"]["nkey_file"] = str(keys / "nkeys" / role / f"{name}.nk")
            return to_struct(tree, Site, "test")

        yield site


def denials(telemetry: Telemetry) -> float:
    labels = {"kind": "permissions"}
    return telemetry.registry.get_sample_value("ccpipe_bus_errors_total", labels) or 0


async def test_role_permits_its_work(site_of: SiteOf) -> None:
    """A node's metrics, events and log reach a bridge that checks them against their subjects."""
    telemetry = Telemetry()
    bridge = site_of("bridge", "b")
    source = NatsSource(
        site=bridge, telemetry=telemetry, durable="b", drain_timeout=Duration(5), identity="subject"
    )
    tags = {"cluster": "fox.no", "hostname": "n1", "type": "node"}
    records = [sample("n1"), event("nodestate", "up", "{}", time=NOW, tags=tags)]
    async with source, NatsSink(site=site_of("node", "n1"), telemetry=telemetry) as sink:
        await source.start()
        await eventually(lambda: bool(source.stream))
        await sink.write(to_lines(records))
        await NatsDeadLetterSink(source.bus, bridge).write([DeadLetter(b"x", "why")])
        source.stop()
        names = [record.name async for batch in source.batches() for record in batch.records]
    assert sorted(names) == ["m", "nodestate"]
    assert denials(telemetry) == 0


@pytest.mark.parametrize(
    "subject", ["fox%2Eno.metrics.n2", "fox%2Eno.metrics", "fritz.metrics.n1", "fox%2Eno.dead",
                "fox%2Eno.events.job", "$JS.API.STREAM.DELETE.x"],
)  # fmt: skip
async def test_node_publishes_under_its_own_name_only(site_of: SiteOf, subject: str) -> None:
    """The broker refuses another node's name, another cluster, jobs and the stream."""
    telemetry = Telemetry()
    async with connected(site_of("node", "n1").bus, telemetry) as bus:
        await bus.publish(subject, b"m value=1")
        await bus.flush()
        await eventually(lambda: denials(telemetry) == 1)


@pytest.mark.parametrize("request_", ["STREAM.PURGE", "STREAM.DELETE", "STREAM.MSG.DELETE"])
async def test_node_cannot_make_broker_delete_messages(site_of: SiteOf, request_: str) -> None:
    """A reply subject cannot be a JetStream request, sent as the acknowledgement.

    ``{"stream": …, "seq": 9}`` purges up to 9 if the server is not strict.
    """
    bridge = site_of("bridge", "b")
    source = NatsSource(site=bridge, telemetry=Telemetry(), durable="b")
    async with source, connected(site_of("node", "n1").bus) as node:
        await source.start()
        await eventually(lambda: bool(source.stream))
        subject = "fox%2Eno.metrics.n1"
        for reply in ("", "", f"$JS.API.{request_}.{source.stream}"):
            await node.publish(subject, b"m value=1", reply=reply)
        await node.flush()
        async for batch in source.batches():  # which stays in the stream, read or not
            assert isinstance(source.reader, ConsumerReader)
            reply = next(iter(source.reader.handed_over.values())).decode().split(" ")[-1]
            if (place := stored_as(reply)) and place[0] == 3:
                break
            assert batch.ack
            await batch.ack()
        stream = await source.bus.jetstream().stream_info(source.stream)
        assert stream.state.messages == 3


async def test_node_publishes_its_first_message_once(site_of: SiteOf) -> None:
    """It may look up the stream; before one exists, plain subscribers receive no message twice."""
    heard: list[Delivery] = []
    async with (
        connected(site_of("viewer", "v").bus) as viewer,
        NatsSink(site=site_of("node", "n1"), telemetry=Telemetry()) as sink,
    ):
        await viewer.subscribe("fox%2Eno.metrics.*", heard.append)
        await viewer.flush()
        with pytest.raises(UnavailableError, match="a bridge does when it starts"):
            await sink.write(to_lines([sample("n1")]))
        source = NatsSource(site=site_of("bridge", "b"), telemetry=Telemetry(), durable="b")
        async with source:
            await source.start()
            await eventually(lambda: bool(source.stream))
            await sink.write(to_lines([sample("n1")]))
            await viewer.flush()
    assert len(heard) == 1


async def test_bridge_reads_large_stream_in_order(site_of: SiteOf) -> None:
    """As ``ccpipe tail`` does: it may reply to the server's flow control, which waits for that."""
    site = site_of("bridge", "b")
    subject, count = "fox%2Eno.metrics.n1", 3000
    received: list[Delivery] = []
    telemetry = Telemetry()
    async with connected(site.bus, telemetry) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish(
            [Outgoing.of(subject, b"%08d" % each + b"x" * 4096) for each in range(count)]
        )
        async with asyncio.timeout(60):
            await read_stored(bus, [subject], received.append)
    assert len(received) == count
    assert denials(telemetry) == 0


async def test_tags_that_differ_from_subject_are_dead_letters(site_of: SiteOf) -> None:
    """The broker checks the subject; the source checks the tags against it."""
    telemetry = Telemetry()
    source = NatsSource(
        site=site_of("bridge", "b"), telemetry=telemetry, durable="b", identity="subject"
    )
    line = b"m,cluster=fox.no,hostname=n2,type=node value=1 1740000000\n"
    async with Reader(source) as reader, connected(site_of("node", "n1").bus) as node:
        await eventually(lambda: bool(source.stream))
        await node.publish("fox%2Eno.metrics.n1", line)
        await eventually(lambda: bool(reader.batches))
    batches = reader.batches
    assert [len(batch.records) for batch in batches] == [0]
    assert "belongs on fox%2Eno.metrics.n2" in batches[0].records.rejected[0].reason


async def test_bridge_and_viewer_receive_what_dashboard_shows(site_of: SiteOf) -> None:
    """A viewer only what is live, a bridge also what is stored and the consumers of streams."""
    telemetry = Telemetry()
    bridge, viewer = site_of("bridge", "b"), site_of("viewer", "v")
    viewer = msgspec.structs.replace(
        viewer, bus=msgspec.structs.replace(viewer.bus, jetstream=False)
    )
    source = NatsSource(site=bridge, telemetry=telemetry, durable="b", drain_timeout=Duration(5))
    async with source, NatsSink(site=site_of("node", "n1"), telemetry=telemetry) as sink:
        await source.start()
        await eventually(lambda: bool(source.stream))
        dead = NatsDeadLetterSink(source.bus, bridge)
        await dead.write([DeadLetter(b"x", "before")])
        async with (
            LiveFeed(bridge, telemetry, name="dashboard") as stored,
            LiveFeed(viewer, telemetry, name="dashboard") as live,
            asyncio.timeout(60),
        ):
            for state in (stored.state, live.state):
                while not state.nodes.series:  # until it has subscribed
                    await sink.write(to_lines([sample("n1")]))
                    await asyncio.sleep(0.1)
            await dead.write([DeadLetter(b"y", "now")])
            await eventually(lambda: stored.state.health.dead_count == 2)
            await eventually(lambda: live.state.health.dead_count == 1)
            await eventually(lambda: bool(stored.state.health.consumers))
        source.stop()
    assert denials(telemetry) == 0


async def test_operator_sends_requests_and_node_replies(site_of: SiteOf) -> None:
    telemetry, site = Telemetry(), site_of("node", "n1")
    controls = {"interval": Control("time", lambda _: "10s")}
    operator = site_of("operator", "o")
    async with (
        connected(site.bus, telemetry) as node,
        connected(operator.bus, telemetry) as asking,
        responding(node, site, controls),
    ):
        answers = await send_requests(
            asking, operator, [control_request("interval", node="n1")], seconds=20
        )
    assert [answer.value for answer in answers] == ["10s"]
    assert denials(telemetry) == 0


async def test_viewer_and_node_send_no_requests(site_of: SiteOf) -> None:
    """Without requests, neither can set anything on another node."""
    for role, name in (("viewer", "v"), ("node", "n2")):
        site = site_of(role, name)
        async with connected(site.bus) as bus:
            with pytest.raises(DeniedError):
                await send_requests(bus, site, [control_request("interval", node="n1")], seconds=20)


def test_keys_are_kept_and_private(tmp_path: Path) -> None:
    """Another run adds keys; no seed is in a configuration or readable by other users."""
    ensure_keys(tmp_path, "node", ["n1"])
    before = write_site(tmp_path, "fritz")
    ensure_keys(tmp_path, "node", ["n1", "n/2"])
    after = write_site(tmp_path, "fritz")
    assert [user.name for user in after] == ["n%2F2", "n1"]
    assert before[0] in after
    seeds = list((tmp_path / "nkeys").rglob("*.nk"))
    assert {path.stat().st_mode & 0o777 for path in seeds} == {0o600}
    conf = (tmp_path / "nats.conf").read_text()
    assert not any(path.read_text().strip() in conf for path in seeds)
    seeds[0].write_text("SUnonsense")
    with pytest.raises(ConfigError, match="not an nkey seed"):
        users_of(tmp_path)


async def test_bridge_uses_named_domains_only(tmp_path: Path) -> None:
    """At the hub a bridge creates and reads a leaf node's stream, but not another leaf's."""
    keys, leaves = tmp_path / "keys", free_port()
    ensure_keys(keys, "bridge", ["b"])
    ensure_domains(keys, ["rack1"])
    write_site(keys, "fox.no")
    hub = configuration(keys, tmp_path, "domain: hub") + (
        f'leafnodes {{ listen: "127.0.0.1:{leaves}"\n'
        '  authorization { user: leaf, password: pw, account: "fox%2Eno" } }\n'
    )
    leaf = (
        f'server_name: rack1\njetstream {{ domain: rack1, store_dir: "{tmp_path}/rack1" }}\n'
        'leafnodes { reconnect: "1s", remotes: '
        f'[{{ url: "nats-leaf://leaf:pw@127.0.0.1:{leaves}" }}] }}\n'
    )
    telemetry = Telemetry()

    def bridge(port: int, domain: str) -> Site:
        return Site(
            cluster="fox.no",
            hostname="b",
            bus=Bus(
                servers=[f"nats://127.0.0.1:{port}"],
                domain=domain,
                nkey_file=str(keys / "nkeys" / "bridge" / "b.nk"),
            ),
        )

    async with nats_daemon(tmp_path, hub) as port, nats_daemon(tmp_path, leaf) as there:
        site = bridge(port, "rack1")
        reading = Reader(NatsSource(site=site, telemetry=telemetry, durable="b"))
        publisher = Site(
            cluster="fox.no", hostname="n1", bus=Bus(servers=[f"nats://127.0.0.1:{there}"])
        )
        async with reading as reader, NatsSink(site=publisher, telemetry=Telemetry()) as sink:
            await sink.write(to_lines([sample("n1")]))
            await eventually(lambda: len(reader.values) == 1, 60)
        assert denials(telemetry) == 0
        async with connected(bridge(port, "rack2").bus, telemetry) as bus:
            await bus.publish("$JS.rack2.API.INFO", b"")
            await bus.flush()
            await eventually(lambda: denials(telemetry) == 1)


def test_domains_are_kept_and_restricted_to_names(tmp_path: Path) -> None:
    """Domains of earlier runs stay; one that would be another subject is refused."""
    ensure_domains(tmp_path, ["rack1"])
    ensure_domains(tmp_path, ["rack2", "rack1"])
    assert domains_of(tmp_path) == ["rack1", "rack2"]
    with pytest.raises(ConfigError, match="domain"):
        ensure_domains(tmp_path, ["rack3.>"])
