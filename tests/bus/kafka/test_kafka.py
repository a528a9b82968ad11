"""Kafka: topics and options; envelopes and lines into a real one, and out of it."""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, errors
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.kafka.broker import KafkaBroker, explain, keyed_subjects, topic_and_key
from ccpipe.bus.kafka.sink import KafkaSink
from ccpipe.bus.kafka.source import KafkaSource, Offsets
from ccpipe.bus.subjects import escape
from ccpipe.config import Duration, Site, Size
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DeniedError,
    EncodeError,
    RejectedError,
    UnavailableError,
)
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.sonar import encode
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import log, metric
from ccpipe.pipeline import Scope
from ccpipe.telemetry import Telemetry
from tests.bus.envelopes import JOBS, META, SAMPLE
from tests.bus.kafka.conftest import NOON, SECOND, lines_to, read
from tests.conftest import free_port
from tests.servers.kafka import Kafka


def test_topics_are_sonars_and_keys_are_nodes() -> None:
    """Dots of a cluster's name are kept in the topic; the key is the node."""
    subjects = keyed_subjects(Site(cluster="fox.no", hostname="master"), {})
    sample = subjects.templates["sonar"].format(
        cluster=escape("fox.no"), name="sample", hostname="c1-6", method=""
    )
    assert topic_and_key(sample) == ("fox.no.sample", b"c1-6")
    assert topic_and_key(sample, "hpc") == ("hpc.fox.no.sample", b"c1-6")
    load = metric("cpu_load", 1.0, time=1, tags={"hostname": "n 1"})
    assert topic_and_key(subjects.of_message(load)) == ("fox.no.metrics", b"n 1")


def test_topics_follow_configured_subjects() -> None:
    site = Site(cluster="fox", hostname="n1")
    subjects = keyed_subjects(site, {"metrics": "all-{cluster}"})
    assert topic_and_key(subjects.of_message(metric("m", 1.0, time=1, tags={})))[0] == "all-fox"
    with pytest.raises(ConfigError, match="metric"):
        keyed_subjects(site, {"metric": "x"})


@given(st.text(min_size=1), st.text())
def test_topic_is_valid_or_refused(cluster: str, node: str) -> None:
    """Names that Kafka does not allow are errors; keys are node names without restriction."""
    try:
        topic, key = topic_and_key(f"{escape(cluster)}.sample {escape(node)}")
    except (EncodeError, UnicodeEncodeError):
        return
    assert topic == f"{cluster}.sample"
    assert key.decode() == (node or "%")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"servers": []}, "at least one"),
        ({"user": "me"}, "user and password_file go together"),
        ({"ca_file": "x"}, "need tls"),
        ({"mechanism": "GSSAPI"}, "mechanism"),
    ],
)
def test_sink_refuses_invalid_options(options: dict[str, object], reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert(options, KafkaBroker)


def test_client_options_include_tls_and_sasl(tmp_path: Path) -> None:
    """TLS and SASL, alone and together; the password is read from its file."""
    secret = tmp_path / "secret"
    secret.write_text("pass\n")
    assert KafkaBroker().options()["security_protocol"] == "PLAINTEXT"
    tls = KafkaBroker(tls=True).options()
    assert tls["security_protocol"] == "SSL"
    assert tls["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    mine = {"user": "fox", "password_file": str(secret), "mechanism": "SCRAM-SHA-512"}
    options = msgspec.convert({**mine, "tls": True}, KafkaBroker).options()
    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("fox", "pass")
    assert msgspec.convert(mine, KafkaBroker).options()["security_protocol"] == "SASL_PLAINTEXT"
    with pytest.raises(ConfigError, match=r"broker\.ca_file"):
        KafkaBroker(tls=True, ca_file="/none").options()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.MessageSizeTooLargeError(), RejectedError),
        (errors.TopicAuthorizationFailedError(), DeniedError),
        (errors.InvalidTopicError(), EncodeError),
        (errors.KafkaTimeoutError(), UnavailableError),
        (errors.UnknownTopicOrPartitionError(), UnavailableError),
    ],
)
def test_error_is_classified_by_its_type(error: Exception, expected: type[CcpipeError]) -> None:
    """Only an error about the message itself rejects the message."""
    assert type(explain(error, KafkaBroker())) is expected


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


async def test_sink_sends_envelopes_as_sonar_does(kafka: Kafka) -> None:
    """One envelope and a newline on the topic of its type, with its node as key; no headers."""
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
async def test_source_reads_what_sink_wrote(kafka: Kafka, compression: Any) -> None:
    """Metrics, complete and in each node's order, with every compression."""
    site = Site(cluster=f"lines-{compression}", hostname="n1")
    tags = {"cluster": site.cluster, "hostname": "n1", "type": "node"}
    sent = [metric("m", float(i), time=NOON + i * SECOND, tags=tags) for i in range(1500)]
    async with lines_to(kafka, site, compression=compression) as sink:
        await sink.write(to_lines(sent))
    topics = [f"{site.cluster}.metrics"]
    got = await read(kafka, site, 1500, group="g", topics=topics, codec=LineCodec())
    assert got == sent


async def test_sink_rejects_messages_that_are_too_large(kafka: Kafka) -> None:
    site = Site(cluster="large", hostname="n1")
    huge = log("c", "info", "x" * 2**20, time=NOON, tags={"hostname": "n1"})
    async with lines_to(kafka, site) as sink:
        with pytest.raises(RejectedError, match="exceeds"):
            await sink.write(to_lines([huge]))
        await sink.write(to_lines([metric("m", 1.0, time=NOON, tags={"hostname": "n1"})]))
    async with lines_to(kafka, site, max_message_bytes=Size(2**23), compression="none") as sink:
        with pytest.raises(RejectedError, match="MessageSizeTooLarge"):
            await sink.write(
                to_lines([log("c", "info", "x" * 2**22, time=NOON, tags={"hostname": "n1"})])
            )


async def test_unreachable_broker_is_unavailable() -> None:
    """The write may be retried; `check()` reports it."""
    nobody = KafkaBroker(servers=(f"127.0.0.1:{free_port()}",), timeout=Duration(1))
    site = Site(cluster="none", hostname="n1")
    async with KafkaSink(site=site, broker=nobody) as sink:
        with pytest.raises(UnavailableError, match="127"):
            await sink.write(Envelopes([SAMPLE]))
        with pytest.raises(UnavailableError):
            await sink.check()
    with pytest.raises(UnavailableError):
        await KafkaSource(site=site, telemetry=Telemetry(), broker=nobody).check()


async def test_checks_pass(kafka: Kafka) -> None:
    site = Site(cluster="checks", hostname="n1")
    await KafkaSink(site=site, broker=kafka.broker).check()
    await KafkaSource(site=site, telemetry=Telemetry(), broker=kafka.broker).check()


async def test_source_redelivers_messages_not_written(kafka: Kafka) -> None:
    """A bridge killed before its store has the messages leaves them to the next one."""
    site = Site(cluster="again", hostname="n1")
    tags = {"cluster": "again", "hostname": "n1"}
    batches = [[metric("m", float(i), time=NOON, tags=tags)] for i in range(5)]
    async with lines_to(kafka, site) as sink:
        for batch in batches[:2]:
            await sink.write(to_lines(batch))
    reading: dict[str, Any] = {"group": "g", "topics": ["again.metrics"]}
    assert [m.value for m in await read(kafka, site, 2, codec=LineCodec(), **reading)] == [0, 1]
    async with lines_to(kafka, site) as sink:
        for batch in batches[2:]:
            await sink.write(to_lines(batch))
    with pytest.raises(RuntimeError, match="killed"):
        await read(kafka, site, 3, dies=True, codec=LineCodec(), **reading)
    again = await read(kafka, site, 3, codec=LineCodec(), **reading)
    assert [m.value for m in again] == [2, 3, 4]


async def test_sources_of_one_group_share_partitions(kafka: Kafka) -> None:
    """For a stateful translator, which must see all of them, a second process is refused."""
    site = Site(cluster="shared", hostname="n1")
    async with KafkaSink(site=site, broker=kafka.broker, codec=LineCodec()) as sink:
        await sink.write(to_lines([metric("m", 1.0, time=NOON, tags={"hostname": "n1"})]))

    def source() -> KafkaSource:
        return KafkaSource(
            site=site,
            telemetry=Telemetry(),
            broker=kafka.broker,
            group="shared",
            codec=LineCodec(),
            topics=["shared.metrics"],
        )

    async with source() as first:
        await anext(first.batches(Scope.CLUSTER))
        async with source() as second:
            with pytest.raises(ConfigError, match="another process is a member of 'shared'"):
                await anext(second.batches(Scope.CLUSTER))
    async with source() as third:
        await anext(third.batches(Scope.CLUSTER))


async def test_source_reads_all_clusters_by_pattern(kafka: Kafka) -> None:
    for cluster in ("many-1", "many-2"):
        site = Site(cluster=cluster, hostname="n1")
        async with lines_to(kafka, site) as sink:
            await sink.write(to_lines([metric("m", 1.0, time=NOON, tags={"cluster": cluster})]))
    options: dict[str, Any] = {"pattern": r"many-.*\.metrics", "codec": LineCodec()}
    got = await read(kafka, Site(cluster="x", hostname="n1"), 2, group="many", **options)
    assert {m.tags["cluster"] for m in got} == {"many-1", "many-2"}


def test_source_refuses_invalid_options() -> None:
    site, telemetry = Site(cluster="fox", hostname="n1"), Telemetry()
    with pytest.raises(ConfigError, match="only one of them"):
        KafkaSource(site=site, telemetry=telemetry, topics=["a"], pattern="b")
    with pytest.raises(ConfigError, match="pattern: '\\['"):
        KafkaSource(site=site, telemetry=telemetry, pattern="[")
    with pytest.raises(ConfigError, match="topics: missing; lines have no default topics"):
        KafkaSource(site=site, telemetry=telemetry, codec=LineCodec())


@given(st.permutations(range(10)), st.integers(0, 10))
def test_offsets_are_committed_in_order(order: list[int], count: int) -> None:
    """Whatever the order in which messages become safe."""
    offsets = Offsets()
    for each in range(10):
        offsets.hand_over("p", each)
    assert offsets.positions() == {}
    for each in order[:count]:
        offsets.acknowledge("p", each)
    unsafe = set(order[count:])
    expected = min(unsafe, default=10)
    assert offsets.positions() == ({"p": expected} if expected else {})


def test_offsets_are_committed_only_if_changed() -> None:
    """Idle partitions are not committed, nor are revoked ones."""
    offsets = Offsets()
    for partition in ("p", "q"):
        offsets.hand_over(partition, 5)
        offsets.acknowledge(partition, 5)
    offsets.commit(offsets.positions())
    assert offsets.positions() == {}
    offsets.hand_over("p", 9)  # offsets have gaps
    offsets.acknowledge("p", 9)
    assert offsets.positions() == {"p": 10}
    offsets.forget(["p"])
    offsets.acknowledge("p", 9)
    assert offsets.positions() == {}
