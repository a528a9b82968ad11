"""Envelopes and lines into a real Kafka, as other programs read them there."""

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.kafka.broker import KafkaBroker
from ccpipe.bus.kafka.sink import KafkaSink
from ccpipe.bus.kafka.source import KafkaSource
from ccpipe.config import Duration, Site, Size
from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.sonar import encode
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import log, metric
from ccpipe.telemetry import Telemetry
from tests.bus.envelopes import JOBS, META, SAMPLE
from tests.bus.kafka.conftest import NOON, SECOND, lines_to, read
from tests.conftest import free_port
from tests.servers.kafka import Kafka


async def messages_in(kafka: Kafka, *topics: str) -> Sequence[Any]:
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
        await sink.write(Envelopes([SAMPLE, JOBS]))
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
        await sink.write(to_lines(sent))
    topics = [f"{site.cluster}.metrics"]
    got = await read(kafka, site, 1500, group="g", topics=topics, codec=LineCodec())
    assert got == sent


async def test_messages_that_are_too_large(kafka: Kafka) -> None:
    site = Site(cluster="large", hostname="n1")
    huge = log("c", "info", "x" * 2**20, time=NOON, tags={"hostname": "n1"})
    async with lines_to(kafka, site) as sink:
        with pytest.raises(RejectedError, match="exceeds"):
            await sink.write(to_lines([huge]))
        await sink.write(to_lines([metric("m", 1.0, time=NOON, tags={"hostname": "n1"})]))
    async with lines_to(kafka, site, max_message=Size(2**23), compression="none") as sink:
        with pytest.raises(RejectedError, match="MessageSizeTooLarge"):
            await sink.write(
                to_lines([log("c", "info", "x" * 2**22, time=NOON, tags={"hostname": "n1"})])
            )


async def test_no_broker() -> None:
    """Where nobody listens it may be tried again; `check()` says so."""
    nobody = KafkaBroker(servers=(f"127.0.0.1:{free_port()}",), timeout=Duration(1))
    site = Site(cluster="none", hostname="n1")
    async with KafkaSink(site=site, broker=nobody) as sink:
        with pytest.raises(UnavailableError, match="127"):
            await sink.write(Envelopes([SAMPLE]))
        with pytest.raises(UnavailableError):
            await sink.check()
    with pytest.raises(UnavailableError):
        await KafkaSource(site=site, telemetry=Telemetry(), broker=nobody).check()


async def test_checks_that_pass(kafka: Kafka) -> None:
    site = Site(cluster="checks", hostname="n1")
    await KafkaSink(site=site, broker=kafka.broker).check()
    await KafkaSource(site=site, telemetry=Telemetry(), broker=kafka.broker).check()
