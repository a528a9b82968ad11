"""Reading a real Kafka: an offset is committed only after the write."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.kafka.sink import KafkaSink
from ccpipe.bus.kafka.source import KafkaSource, Offsets
from ccpipe.config import Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import metric
from ccpipe.pipeline import Scope
from ccpipe.telemetry import Telemetry
from tests.bus.kafka.conftest import NOON, lines_to, read
from tests.servers.kafka import Kafka


async def test_what_was_not_written_comes_again(kafka: Kafka) -> None:
    """A bridge that is killed before its store had them leaves the messages to the next one."""
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


async def test_bridges_of_one_group_share_the_partitions(kafka: Kafka) -> None:
    """A stateful translator must see all of them: the second process is then refused."""
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


async def test_a_pattern_reads_all_clusters(kafka: Kafka) -> None:
    for cluster in ("many-1", "many-2"):
        site = Site(cluster=cluster, hostname="n1")
        async with lines_to(kafka, site) as sink:
            await sink.write(to_lines([metric("m", 1.0, time=NOON, tags={"cluster": cluster})]))
    options: dict[str, Any] = {"pattern": r"many-.*\.metrics", "codec": LineCodec()}
    got = await read(kafka, Site(cluster="x", hostname="n1"), 2, group="many", **options)
    assert {m.tags["cluster"] for m in got} == {"many-1", "many-2"}


def test_options_that_cannot_be() -> None:
    site, telemetry = Site(cluster="fox", hostname="n1"), Telemetry()
    with pytest.raises(ConfigError, match="only one of them"):
        KafkaSource(site=site, telemetry=telemetry, topics=["a"], pattern="b")
    with pytest.raises(ConfigError, match="pattern: '\\['"):
        KafkaSource(site=site, telemetry=telemetry, pattern="[")
    with pytest.raises(ConfigError, match="topics: missing; lines have no default topics"):
        KafkaSource(site=site, telemetry=telemetry, codec=LineCodec())


@given(st.permutations(range(10)), st.integers(0, 10))
def test_no_offset_is_committed_before_those_in_front_of_it(order: list[int], count: int) -> None:
    """In whatever order messages become safe."""
    offsets = Offsets()
    for each in range(10):
        offsets.hand_over("p", each)
    assert offsets.positions() == {}
    for each in order[:count]:
        offsets.acknowledge("p", each)
    unsafe = set(order[count:])
    expected = min(unsafe, default=10)
    assert offsets.positions() == ({"p": expected} if expected else {})


def test_only_what_moved_is_committed_again() -> None:
    """Partitions that stand still cost nothing; those that were taken away mean nothing."""
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
