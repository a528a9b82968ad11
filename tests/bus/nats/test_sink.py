"""The sink's connection, and the stream that it finds or makes."""

import nats
import pytest

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats import store as module
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import Server
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Bus, Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.sonar import Envelope, ErrorObject, MetadataObject
from ccpipe.message import log, metric
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry

TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
METRIC = metric("m", 1.0, time=1_740_000_000 * 10**9, tags=TAGS)
LINE = log("ccpipe", "info", "it goes", time=1_740_000_000 * 10**9, tags=TAGS)
ENVELOPE = Envelope(
    MetadataObject(producer="ccpipe", version="1"),
    errors=(ErrorObject(time="2025-02-20T06:05:51Z", detail="x", cluster="fox.test", node="n1"),),
)


async def test_sinks_share_a_connection_that_stays_open(site: Site, nats_server: Server) -> None:
    """Who opened it closes it: sinks that are left leave it as it is."""
    telemetry = Telemetry()
    bus = await Connection(site.bus, name="test", telemetry=telemetry).connect_in_background()
    lines = NatsSink(site=site, telemetry=telemetry).using(bus)
    sonar = SonarCodec()
    envelopes = NatsSink(site=site, telemetry=telemetry, codec=sonar).using(bus)
    async with lines, envelopes:
        await lines.write([METRIC])
        await envelopes.write([ENVELOPE])
    await lines.write([LINE])
    client = await nats.connect(nats_server.url)
    state = (await client.jetstream().stream_info("ccpipe-fox%2Etest")).state
    await client.close()
    await bus.__aexit__(None, None, None)
    assert state.messages == 3
    with pytest.raises(UnavailableError):
        await lines.write([METRIC])


async def test_credentials_that_are_refused_are_told_by_every_sink(nats_server: Server) -> None:
    """Not only by the one that happened to write first."""
    site = Site(cluster="fox.test", bus=Bus(servers=[f"nats://x:y@127.0.0.1:{nats_server.port}"]))
    telemetry = Telemetry()
    bus = await Connection(site.bus, name="test", telemetry=telemetry).connect_in_background()
    for _ in range(2):
        with pytest.raises(DeniedError):
            await NatsSink(site=site, telemetry=telemetry).using(bus).write([METRIC])
    await bus.__aexit__(None, None, None)


async def test_the_stream_is_made_although_somebody_listens(
    site: Site, nats_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ccpipe tail` that was there first: the broker then does not say that no stream stores it."""
    monkeypatch.setattr(module, "STORE_SECONDS", 0.2)
    client = await nats.connect(nats_server.url)
    await client.subscribe(">")
    await client.flush()
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        await sink.write([LINE, METRIC])
        await NatsDeadLetterSink(sink.bus, site).write([DeadLetter(b"m", "no luck")])
    names = {info.config.name for info in await client.jetstream().streams_info()}
    stored = (await client.jetstream().stream_info("ccpipe-fox%2Etest")).state.messages
    await client.close()
    assert names == {"ccpipe-fox%2Etest", "ccpipe-fox%2Etest-dead"}
    assert stored == 2
