"""The sink: its connection, the stream it finds or creates, the sizes of its messages."""

import asyncio
import os
import signal
from array import array
from collections.abc import Sequence
from itertools import accumulate, cycle

import nats
import pytest
from msgspec.structs import replace
from nats.aio.transport import TcpTransport
from nats.js import JetStreamContext

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats import publisher as module
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.streams import jetstream
from ccpipe.config import Bus, Duration, Site, Size
from ccpipe.errors import DeniedError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.sonar import Envelope, ErrorObject, MetadataObject
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import log, metric
from ccpipe.pipeline import DeadLetter, Limits, run
from ccpipe.records import Provenance
from ccpipe.telemetry import Telemetry
from tests.bus.nats.reader import NOW, TAGS, metrics, source
from tests.conftest import eventually
from tests.deliveries import delivered, provenance_of
from tests.reading import Reader
from tests.servers.nats.proxy import Proxy
from tests.servers.nats.stored import stored, stored_lines
from tests.sinks.conftest import Given

METRIC = metric("m", 1.0, time=NOW, tags=TAGS)
LINE = log("ccpipe", "info", "it goes", time=NOW, tags=TAGS)
ENVELOPE = Envelope(
    MetadataObject(producer="ccpipe", version="1"),
    errors=(ErrorObject(time="2025-02-20T06:05:51Z", detail="x", cluster="fox.test", node="n1"),),
)


async def test_sinks_share_connection_that_stays_open(site: Site, nats_server: NatsServer) -> None:
    """It is closed where it was opened: closed sinks leave it open."""
    telemetry = Telemetry()
    bus = await Connection(site.bus, name="test", telemetry=telemetry).connect_in_background()
    lines = NatsSink(site=site, telemetry=telemetry).using(bus)
    sonar = SonarCodec()
    envelopes = NatsSink(site=site, telemetry=telemetry, codec=sonar).using(bus)
    async with lines, envelopes:
        await lines.write(to_lines([METRIC]))
        await envelopes.write(Envelopes([ENVELOPE]))
    await lines.write(to_lines([LINE]))
    client = await nats.connect(nats_server.url)
    state = (await client.jetstream().stream_info("ccpipe-fox%2Etest")).state
    await client.close()
    await bus.__aexit__(None, None, None)
    assert state.messages == 3
    with pytest.raises(UnavailableError):
        await lines.write(to_lines([METRIC]))


async def test_every_sink_reports_refused_credentials(nats_server: NatsServer) -> None:
    site = Site(cluster="fox.test", bus=Bus(servers=[f"nats://x:y@127.0.0.1:{nats_server.port}"]))
    telemetry = Telemetry()
    bus = await Connection(site.bus, name="test", telemetry=telemetry).connect_in_background()
    for _ in range(2):
        with pytest.raises(DeniedError):
            await NatsSink(site=site, telemetry=telemetry).using(bus).write(to_lines([METRIC]))
    await bus.__aexit__(None, None, None)


@pytest.mark.parametrize("sees_streams", [True, False])
async def test_sink_creates_stream_although_subscriber_exists(
    site: Site, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, *, sees_streams: bool
) -> None:
    """With a running `ccpipe tail` the broker does not report that no stream stores a message.

    The subscriber receives each message once, except the first one of a publisher that cannot see
    beforehand that no stream exists.
    """
    monkeypatch.setattr(module, "STORE_SECONDS", 2.0)
    if not sees_streams:
        names_of, is_away = (
            jetstream.names_of,
            cycle([True, False, False]),
        )  # before the first message

        async def seldom(context: JetStreamContext, subject: str) -> list[str]:
            if next(is_away):
                raise UnavailableError("away")
            return await names_of(context, subject)

        monkeypatch.setattr(jetstream, "names_of", seldom)
    client = await nats.connect(nats_server.url)
    heard = await client.subscribe("fox%2Etest.>")
    await client.flush()
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        await sink.write(to_lines([LINE, METRIC]))
        await NatsDeadLetterSink(sink.bus, site).write([DeadLetter(b"m", "no luck")])
    await client.flush()
    payloads = [(await heard.next_msg()).data for _ in range(heard.pending_msgs)]
    assert len(payloads) == (3 if sees_streams else 5)
    assert len(set(payloads)) == 3
    names = {info.config.name for info in await client.jetstream().streams_info()}
    stored = (await client.jetstream().stream_info("ccpipe-fox%2Etest")).state.messages
    await client.close()
    assert names == {"ccpipe-fox%2Etest", "ccpipe-fox%2Etest-dead"}
    assert stored == 2


async def test_record_written_twice_is_stored_once(site: Site, sink: NatsSink) -> None:
    """A retry after a lost acknowledgement makes no duplicates."""
    await sink.write(to_lines(metrics(700)))
    await sink.write(to_lines(metrics(700)))
    async with Reader(source(site, drain_timeout=Duration(3))) as reader:
        await eventually(lambda: len(reader.values) >= 700)
    assert len(reader.values) == 700


async def stored_values(server: NatsServer) -> list[object]:
    return [line.value for line in await stored_lines(server)]


def from_messages(sizes: Sequence[int], first: int = 1) -> Provenance:
    numbers = array("q", range(first, first + len(sizes)))
    return provenance_of(
        ["a consumer"] * len(sizes), numbers, numbers, array("q", accumulate(sizes))
    )


async def test_records_of_stream_are_stored_once_in_any_batches(
    sink: NatsSink, nats_server: NatsServer
) -> None:
    """As after a kill: the same messages again, batched with others."""
    records = to_lines(metrics(1000))
    sizes = [100, 300, 50, 550]
    await sink.write(delivered(records[:400], from_messages(sizes[:2])))
    await sink.write(delivered(records[100:], from_messages(sizes[1:], first=2)))
    await sink.write(delivered(records, from_messages(sizes)))
    assert await stored_values(nats_server) == [float(i) for i in range(1000)]


async def test_sink_joins_small_messages_in_order(sink: NatsSink, nats_server: NatsServer) -> None:
    """One message for each line would be more expensive than storing a line twice."""
    await sink.write(
        delivered(to_lines(metrics(400)), from_messages([10] * 10 + [100] + [20] * 10))
    )
    assert await stored_values(nats_server) == [float(i) for i in range(400)]
    assert len(await stored(nats_server)) == 3


async def test_bad_record_is_identified_by_its_index_among_all(site: Site) -> None:
    huge = replace(ENVELOPE, errors=(replace(ENVELOPE.errors[0], detail="x" * 2**20),))
    async with NatsSink(site=site, telemetry=Telemetry(), codec=SonarCodec(), min_batch=0) as sink:
        for provenance in (from_messages([1, 1, 1]), None):
            with pytest.raises(RejectedError, match="exceeds the server's max_payload") as caught:
                await sink.write(Envelopes([ENVELOPE, ENVELOPE, huge], provenance=provenance))
            assert caught.value.indices == [2]


@pytest.mark.parametrize("fault", ["silent", "cut", "killed"])
@pytest.mark.parametrize(("answer", "last"), [(b'"type":"ack"', 1), (b'"seq":', 25)])
async def test_failed_write_does_not_repeat_stored_messages(
    nats_server: NatsServer, fault: str, answer: bytes, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it failed, in a batch or between messages: the retry continues with the same ones."""
    if last > 1:
        monkeypatch.setattr("ccpipe.bus.nats.connection.takes_batches", lambda _: False)
    answers = 0
    async with Proxy(nats_server) as proxy:

        def change(data: bytes) -> bytes:
            nonlocal answers
            before = answers
            answers += data.count(answer)
            if before < last <= answers:
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
        sink = NatsSink(site=site, telemetry=Telemetry(), max_lines=100)
        given = Given(to_lines(metrics(3050)))
        await run(given, sink, limits=Limits(max_wait=0, write_timeout=1.0, max_backoff=0.1))
    assert answers >= last
    assert await stored_values(nats_server) == [float(i) for i in range(3050)]


async def test_payloads_stay_below_servers_limit(nats_server: NatsServer, site: Site) -> None:
    """If configured for larger payloads than the server accepts, the sink makes smaller ones."""
    async with NatsSink(
        site=site, telemetry=Telemetry(), max_lines=10**6, max_bytes=Size(2**30)
    ) as sink:
        await sink.write(
            to_lines([log("c", "info", "x" * 1000, time=NOW + i, tags=TAGS) for i in range(3000)])
        )
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 3000)
    assert len(reader.batches) > 1


async def test_sink_sends_write_without_stream_in_one_piece(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the ping whose answer shows that the server has received all messages."""
    sent: list[bytes] = []
    write = TcpTransport.writelines

    def recorded(transport: TcpTransport, payload: list[bytes]) -> None:
        sent.append(b"".join(payload))
        write(transport, payload)  # type: ignore[no-untyped-call]

    core = replace(site, bus=replace(site.bus, jetstream=False))
    async with NatsSink(site=core, telemetry=Telemetry()) as sink:
        await eventually(lambda: sink.bus.is_connected)
        monkeypatch.setattr(TcpTransport, "writelines", recorded)
        await sink.write(to_lines([METRIC, LINE]))
        monkeypatch.undo()
    [piece] = sent
    assert piece.count(b"PUB fox%2Etest.") == 2
    assert piece.endswith(b"\r\nPING\r\n")
