"""Envelopes and lines through a real Kafka: an offset is committed only after the write."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.kafka.broker import Broker
from ccpipe.bus.kafka.sink import KafkaSink
from ccpipe.bus.kafka.source import KafkaSource
from ccpipe.config import Duration, Site, Size
from ccpipe.errors import ConfigError, EncodeError, RejectedError, UnavailableError
from ccpipe.formats.sonar import encode
from ccpipe.message import log, metric
from ccpipe.pipeline import Records, Sink, run
from ccpipe.telemetry import Telemetry
from tests.conftest import free_port
from tests.e2e.nats.test_sonar_delivery import JOBS, META, SAMPLE
from tests.servers.kafka import Kafka

SECOND = 10**9
NOON = 1_740_052_800 * SECOND


class Enough(Sink):
    """Keeps records and stops the pipe when there are enough; may fail at one of the writes."""

    def __init__(self, source: KafkaSource, stop: asyncio.Event, enough: int) -> None:
        self.takes = source.gives
        self.stop, self.enough = stop, enough
        self.records: list[Any] = []
        self.dies = False

    async def write(self, records: Records) -> None:
        """See ``Sink.write``."""
        if self.dies:
            raise RuntimeError("killed")
        self.records += records
        if len(self.records) >= self.enough:
            self.stop.set()


async def read(kafka: Kafka, site: Site, enough: int, *, dies: bool = False, **options: Any) -> Any:
    """Read records through a pipe until there are enough, or until its sink fails."""
    return await read_from(kafka.broker, site, enough, dies=dies, **options)


async def read_from(
    broker: Broker, site: Site, enough: int, *, dies: bool = False, **options: Any
) -> Any:
    """Read records as ``read`` does, with credentials of one's own."""
    stop = asyncio.Event()
    source = KafkaSource(site=site, telemetry=Telemetry(), broker=broker, **options)
    sink = Enough(source, stop, enough)
    sink.dies = dies
    await asyncio.wait_for(run(source, sink, stop=stop), 60)
    return sink.records


def lines_to(kafka: Kafka, site: Site, **options: Any) -> KafkaSink:
    """Make a sink of line protocol."""
    return KafkaSink(site=site, broker=kafka.broker, codec=LineCodec(), **options)


async def messages_in(kafka: Kafka, *topics: str) -> Sequence[Any]:
    """Return what topics hold, as Kafka's own client sees it."""
    consumer = AIOKafkaConsumer(**kafka.broker.options(), auto_offset_reset="earliest")
    await consumer.start()
    try:
        await consumer._client.force_metadata_update()
        partitions = [TopicPartition(t, n) for t in topics for n in (0, 1)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: list[Any] = []
        while len(found) < sum(ends.values()):
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                found += messages
        return found
    finally:
        await consumer.stop()


async def test_envelopes_as_sonar_sends_them(kafka: Kafka) -> None:
    """One envelope and a newline on the topic of its type, under its node's name; no headers."""
    site = Site(cluster="fox.no", hostname="master")
    async with KafkaSink(site=site, broker=kafka.broker) as sink:
        await sink.write([SAMPLE, JOBS])
    found = await messages_in(kafka, "fox.no.sample", "fox.no.job")
    assert sorted((m.topic, m.key, m.value, m.headers) for m in found) == [
        ("fox.no.job", b"master", encode(JOBS), ()),
        ("fox.no.sample", b"c1-6", encode(SAMPLE), ()),
    ]
    assert all(m.value.endswith(b"}\n") for m in found)
    assert sorted(map(str, await read(kafka, site, 2, group="g"))) == sorted(
        map(str, [SAMPLE, JOBS])
    )
    assert META.producer == "sonar"


@pytest.mark.parametrize("compression", ["snappy", "gzip", "lz4", "zstd", "none"])
async def test_what_is_written_is_what_comes(kafka: Kafka, compression: Any) -> None:
    """Metrics, whole and in the order of their node, however batches are compressed."""
    site = Site(cluster=f"lines-{compression}", hostname="n1")
    tags = {"cluster": site.cluster, "hostname": "n1", "type": "node"}
    sent = [metric("m", float(i), time=NOON + i * SECOND, tags=tags) for i in range(1500)]
    async with lines_to(kafka, site, compression=compression) as sink:
        await sink.write(sent)
    topics = [f"{site.cluster}.metrics"]
    got = await read(kafka, site, 1500, group="g", topics=topics, codec=LineCodec())
    assert got == sent


async def test_what_was_not_written_comes_again(kafka: Kafka) -> None:
    """A bridge that is killed before its store had them leaves the messages to the next one."""
    site = Site(cluster="again", hostname="n1")
    tags = {"cluster": "again", "hostname": "n1"}
    batches = [[metric("m", float(i), time=NOON, tags=tags)] for i in range(5)]
    async with lines_to(kafka, site) as sink:
        for batch in batches[:2]:
            await sink.write(batch)
    reading: dict[str, Any] = {"group": "g", "topics": ["again.metrics"]}
    assert [m.value for m in await read(kafka, site, 2, codec=LineCodec(), **reading)] == [0, 1]
    async with lines_to(kafka, site) as sink:
        for batch in batches[2:]:
            await sink.write(batch)
    with pytest.raises(RuntimeError, match="killed"):
        await read(kafka, site, 3, dies=True, codec=LineCodec(), **reading)
    again = await read(kafka, site, 3, codec=LineCodec(), **reading)
    assert [m.value for m in again] == [2, 3, 4]


async def test_bridges_of_one_group_share_the_partitions(kafka: Kafka) -> None:
    """A stateful translator must see all of them: the second process is then refused."""
    site = Site(cluster="shared", hostname="n1")
    async with KafkaSink(site=site, broker=kafka.broker, codec=LineCodec()) as sink:
        await sink.write([metric("m", 1.0, time=NOON, tags={"hostname": "n1"})])

    def source() -> KafkaSource:
        made = KafkaSource(site=site, telemetry=Telemetry(), broker=kafka.broker, group="shared")
        made.exclusive = True
        return made

    async with source():
        with pytest.raises(ConfigError, match="another process is a member of 'shared'"):
            async with source():
                pass
    async with source():
        pass


async def test_a_pattern_reads_all_clusters(kafka: Kafka) -> None:
    """One bridge for a site with many clusters."""
    for cluster in ("many-1", "many-2"):
        site = Site(cluster=cluster, hostname="n1")
        async with lines_to(kafka, site) as sink:
            await sink.write([metric("m", 1.0, time=NOON, tags={"cluster": cluster})])
    options: dict[str, Any] = {"pattern": r"many-.*\.metrics", "codec": LineCodec()}
    got = await read(kafka, Site(cluster="x", hostname="n1"), 2, group="many", **options)
    assert {m.tags["cluster"] for m in got} == {"many-1", "many-2"}


async def test_messages_that_are_too_large(kafka: Kafka) -> None:
    """They are rejected here, and their neighbours are written."""
    site = Site(cluster="large", hostname="n1")
    huge = log("c", "info", "x" * 2**20, time=NOON, tags={"hostname": "n1"})
    async with lines_to(kafka, site) as sink:
        with pytest.raises(RejectedError, match="exceeds"):
            await sink.write([huge])
        await sink.write([metric("m", 1.0, time=NOON, tags={"hostname": "n1"})])
    async with lines_to(kafka, site, max_message=Size(2**23), compression="none") as sink:
        with pytest.raises(RejectedError, match="MessageSizeTooLarge"):
            await sink.write([log("c", "info", "x" * 2**22, time=NOON, tags={"hostname": "n1"})])


async def test_a_name_that_is_no_topic(kafka: Kafka) -> None:
    """It is an error of the record, not of the cluster."""
    async with lines_to(kafka, Site(cluster="ä", hostname="n1")) as sink:
        with pytest.raises(EncodeError, match="is not a topic"):
            await sink.write([metric("m", 1.0, time=NOON, tags={})])


async def test_no_broker() -> None:
    """Where nobody listens it may be tried again; `check()` says so."""
    nobody = Broker(servers=(f"127.0.0.1:{free_port()}",), timeout=Duration(1))
    site = Site(cluster="none", hostname="n1")
    async with KafkaSink(site=site, broker=nobody) as sink:
        with pytest.raises(UnavailableError, match="127"):
            await sink.write([SAMPLE])
        with pytest.raises(UnavailableError):
            await sink.check()
    with pytest.raises(UnavailableError):
        await KafkaSource(site=site, telemetry=Telemetry(), broker=nobody).check()


async def test_checks_that_pass(kafka: Kafka) -> None:
    """For ``ccpipe validate``."""
    site = Site(cluster="checks", hostname="n1")
    await KafkaSink(site=site, broker=kafka.broker).check()
    await KafkaSource(site=site, telemetry=Telemetry(), broker=kafka.broker).check()


def test_options_that_cannot_be() -> None:
    """A wrong option is named before anything starts."""
    site, telemetry = Site(cluster="fox", hostname="n1"), Telemetry()
    with pytest.raises(ConfigError, match="only one of them"):
        KafkaSource(site=site, telemetry=telemetry, topics=["a"], pattern="b")
    with pytest.raises(ConfigError, match="pattern: '\\['"):
        KafkaSource(site=site, telemetry=telemetry, pattern="[")
