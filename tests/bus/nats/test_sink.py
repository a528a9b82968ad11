"""The sink: its connection, the stream it finds or creates, the sizes of its messages."""

import asyncio
import os
import signal

import nats
import pytest

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats import store as module
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Bus, Duration, Site, Size
from ccpipe.errors import DeniedError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.sonar import Envelope, ErrorObject, MetadataObject
from ccpipe.message import event, log, metric
from ccpipe.pipeline import DeadLetter, Limits, run
from ccpipe.telemetry import Telemetry
from tests.bus.nats.reader import NOW, TAGS, Reader, metrics, source
from tests.cli.dead.test_command import stored
from tests.conftest import eventually
from tests.servers.nats.proxy import Proxy
from tests.sinks.conftest import Given

METRIC = metric("m", 1.0, time=NOW, tags=TAGS)
LINE = log("ccpipe", "info", "it goes", time=NOW, tags=TAGS)
ENVELOPE = Envelope(
    MetadataObject(producer="ccpipe", version="1"),
    errors=(ErrorObject(time="2025-02-20T06:05:51Z", detail="x", cluster="fox.test", node="n1"),),
)


async def test_sinks_share_a_connection_that_stays_open(
    site: Site, nats_server: NatsServer
) -> None:
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


async def test_credentials_that_are_refused_are_told_by_every_sink(nats_server: NatsServer) -> None:
    """Not only by the one that happened to write first."""
    site = Site(cluster="fox.test", bus=Bus(servers=[f"nats://x:y@127.0.0.1:{nats_server.port}"]))
    telemetry = Telemetry()
    bus = await Connection(site.bus, name="test", telemetry=telemetry).connect_in_background()
    for _ in range(2):
        with pytest.raises(DeniedError):
            await NatsSink(site=site, telemetry=telemetry).using(bus).write([METRIC])
    await bus.__aexit__(None, None, None)


async def test_the_stream_is_made_although_somebody_listens(
    site: Site, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
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


async def test_written_twice_it_is_stored_once(site: Site, sink: NatsSink) -> None:
    """A write that is tried again after a lost acknowledgement makes no duplicates."""
    await sink.write(metrics(700))
    await sink.write(metrics(700))
    async with Reader(source(site, drain=Duration(3))) as reader:
        await eventually(lambda: len(reader.values) >= 700)
    assert len(reader.values) == 700


@pytest.mark.parametrize("fault", ["silent", "cut", "killed"])
async def test_what_was_stored_of_a_write_that_failed_is_not_stored_again(
    nats_server: NatsServer, fault: str
) -> None:
    """However it failed: the next try goes on where it was, with the same messages."""
    acknowledged = 0
    async with Proxy(nats_server) as proxy:

        def change(data: bytes) -> bytes:
            nonlocal acknowledged
            before = acknowledged
            acknowledged += data.count(b'"seq":')
            if before < 25 <= acknowledged:
                if fault == "killed" and nats_server.pid:
                    os.kill(nats_server.pid, signal.SIGKILL)
                elif fault == "cut":
                    proxy.cut()
                else:  # for longer than a write may take, below
                    proxy.speaks.clear()
                    asyncio.get_running_loop().call_later(1.5, proxy.speaks.set)
            return data

        proxy.change = change
        site = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        sink = NatsSink(site=site, telemetry=Telemetry(), lines=100)
        given = Given(Messages.of(metrics(3050)))
        await run(given, sink, limits=Limits(age=0, timeout=1.0, backoff=0.1))
    assert acknowledged > 25
    text = b"".join(payload for _, payload in await stored(nats_server))
    values = [line.value for line in decode(text)]
    assert values == [float(i) for i in range(3050)]


async def test_a_line_beyond_the_servers_limit_is_rejected(sink: NatsSink) -> None:
    """The broker would refuse it for ever, so trying again is pointless."""
    huge = event("job", "f", "x" * 2**20, time=NOW, tags=TAGS)
    with pytest.raises(RejectedError, match="max_payload"):
        await sink.write([huge])


async def test_payloads_stay_below_the_servers_limit(nats_server: NatsServer, site: Site) -> None:
    """Asked for larger payloads than the server takes, the sink makes smaller ones."""
    async with NatsSink(site=site, telemetry=Telemetry(), lines=10**6, bytes=Size(2**30)) as sink:
        await sink.write(
            [log("c", "info", "x" * 1000, time=NOW + i, tags=TAGS) for i in range(3000)]
        )
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 3000)
    assert len(reader.batches) > 1
