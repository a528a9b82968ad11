"""Partitions: names, and what a real broker makes of them."""

import logging

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.streams.jetstream import stream_of
from ccpipe.bus.nats.streams.partitions import StreamPartition, partitions_of, transform
from ccpipe.bus.nats.streams.reconcile import apply, check_streams, survey
from ccpipe.bus.nats.streams.stream import ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import ConfigError
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import partitioned, read_to_the_end, source
from tests.conftest import eventually
from tests.reading import Reader

METRICS = ["fox%2Etest.metrics", "fox%2Etest.metrics.*"]


@given(st.text("abc-0123456789of", min_size=1), st.integers(2, 256))
def test_consumer_name_contains_its_partition(durable: str, total: int) -> None:
    """Durable name, number and count are parsed from a consumer's name."""
    for number in (0, total - 1):
        partition = StreamPartition(durable, number, total)
        assert StreamPartition.of_consumer(partition.consumer, durable) == partition
        assert StreamPartition.durable_of(partition.consumer) == durable
    assert StreamPartition.of_consumer(durable, durable) == StreamPartition(durable)
    assert StreamPartition.of_consumer(f"other{durable}", durable) is None


def test_transform_contains_number_of_partitions() -> None:
    """It is read from the broker's response, also from the transforms of sources."""
    assert transform(1) is None
    for count in (2, 8, 256):
        wanted = transform(count)
        assert partitions_of({"subject_transform": wanted}) == count
        assert partitions_of({"sources": [{"subject_transforms": [wanted]}]}) == count
        assert partitions_of({"mirror": {"subject_transforms": [wanted]}}) == count
    assert partitions_of({"subject_transform": {"src": "a", "dest": "b"}}) == 1
    assert partitions_of({}) == 1


async def test_source_warns_of_subject_shared_by_all_nodes(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Only of subjects that it reads, and not if the subject contains the node."""
    caplog.set_level(logging.INFO, "ccpipe")
    for number, subjects in enumerate(({}, {"metrics": "{cluster}.metrics.{hostname}"})):
        caplog.clear()
        bus = msgspec.structs.replace(site.bus, stream_partitions=2, subjects=subjects)
        there = msgspec.structs.replace(site, cluster=f"c{number}", bus=bus)
        async with connected(bus) as opened:
            await apply(opened, there, await survey(opened, there), drop=False)
        async with Reader(source(there)):
            await eventually(lambda: "test reads test-" in caplog.text)
        assert ("put {hostname} into bus.subjects.metrics" in caplog.text) == (number == 0)
        assert "bus.subjects.sonar" not in caplog.text


async def test_subject_stays_in_one_partition(site: Site) -> None:
    """Nodes are distributed over the partitions; a node's messages are all in the same one."""
    wanted = partitioned(site, 4)
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        name = await ensure_stream(jetstream, wanted.bus, Subjects.of(wanted), METRICS)
        for count in range(40):
            subject = f"fox%2Etest.metrics.n{count % 20}"
            await jetstream.publish(subject, b"%d" % count)
        stored = [(await jetstream.get_msg(name, n)).subject or "" for n in range(1, 41)]
        assert stored[:20] == stored[20:]
        numbers = {subject.split(".", 2)[1] for subject in stored}
        assert numbers == {"0", "1", "2", "3"}
        for count, subject in enumerate(stored[:20]):
            partition = StreamPartition("d", int(subject.split(".")[1]), 4)
            assert [subject] == partition.stored([f"fox%2Etest.metrics.n{count}"])


async def test_apply_changes_number_of_partitions(site: Site) -> None:
    """The difference is named after its key, applied, and reverted."""
    async with connected(site.bus) as bus:
        for count, before in ((4, None), (8, "4"), (1, "8")):
            wanted = partitioned(site, count)
            found = await survey(bus, wanted)
            if before:
                assert [(d.key, d.now, d.wanted) for d in found.differences] == [
                    ("stream_partitions", before, str(count))
                ]
            await apply(bus, wanted, found, drop=False)
            await check_streams(bus, wanted)
            stream = await stream_of(bus.jetstream(), "ccpipe-fox%2Etest")
            assert stream is not None
            assert partitions_of(stream.config) == count


async def test_unpartitioned_bridge_is_refused_at_partitioned_stream(site: Site) -> None:
    """Its one consumer would never read anything; the error names the key to set."""
    wanted = partitioned(site, 4)
    async with connected(site.bus) as bus:
        await apply(bus, wanted, await survey(bus, wanted), drop=False)
    with pytest.raises(ConfigError, match="set bus.stream_partitions = 4"):
        await read_to_the_end(source(site))
