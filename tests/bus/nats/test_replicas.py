"""Sources that share the partitions of a stream, on a real broker."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence

import pytest

from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams.reconcile import apply, survey
from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.pipeline import Scope
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import (
    NODES,
    partitioned,
    publish,
    read_to_the_end,
    source,
)
from tests.conftest import eventually
from tests.reading import Reader

LEASE = Duration(2)


def by_node(readers: Sequence[Reader]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for reader in readers:
        for batch in reader.batches:
            for record in batch.records:
                found[record.hostname].append(float(record.value))
    return found


def nodes_of(reader: Reader, value: float) -> set[str]:
    return {r.hostname for batch in reader.batches for r in batch.records if r.value == value}


def shared(site: Site, **options: object) -> NatsSource:
    return source(site, ack_wait=LEASE, **options)


async def until_all(readers: Sequence[Reader], value: int) -> None:
    await eventually(lambda: sum(len(nodes_of(each, value)) for each in readers) >= NODES)


async def test_one_process_reads_all_partitions_in_order(site: Site) -> None:
    """Each node's values arrive once, in order, with the subject on which they were published."""
    wanted = partitioned(site, 4)
    await publish(wanted, 0, 20)
    async with Reader(shared(wanted)) as reader:
        await until_all([reader], 19)
    assert by_node([reader]) == {f"n{n}": [float(v) for v in range(20)] for n in range(NODES)}
    assert "fox%2Etest.metrics.n0" in reader.origins


async def test_second_process_gets_half_without_repetition(site: Site) -> None:
    """It gets partitions once everything the first one read of them is acknowledged."""
    wanted = partitioned(site, 4)
    await publish(wanted, 0)
    async with Reader(shared(wanted)) as first:
        await until_all([first], 0)
        async with Reader(shared(wanted)) as second:
            number = 0
            while not nodes_of(second, number):
                number += 1
                await publish(wanted, number)
                await until_all([first, second], number)
            assert nodes_of(first, number)
        await publish(wanted, number + 1)
        await until_all([first], number + 1)
    values = [float(value) for value in range(number + 2)]
    assert all(sorted(found) == values for found in by_node([first, second]).values())
    for reader in (first, second):
        assert all(found == sorted(found) for found in by_node([reader]).values())


async def test_next_process_begins_with_unacknowledged_messages(site: Site) -> None:
    """An ending process releases what it read; the next one reads that before new messages."""
    wanted = partitioned(site, 4)
    await publish(wanted, 0, 5)
    async with Reader(shared(wanted), acknowledge=False) as first:
        await until_all([first], 4)
    await publish(wanted, 5, 5)
    async with Reader(shared(wanted)) as second:
        await until_all([second], 9)
    assert by_node([second]) == {f"n{n}": [float(v) for v in range(10)] for n in range(NODES)}


async def test_changed_number_of_partitions_keeps_order(site: Site) -> None:
    """Older messages are read to the end first; a running bridge picks up the number."""
    before = site
    await publish(partitioned(site, 1), 0, 3)
    for count, number in ((4, 3), (8, 6)):
        before = partitioned(site, count)
        async with connected(site.bus) as bus:
            await apply(bus, before, await survey(bus, before), drop=False)
        await publish(before, number, 3)
    async with Reader(shared(before)) as reader:
        await until_all([reader], 8)
        less = partitioned(site, 2)
        async with connected(site.bus) as bus:
            await apply(bus, less, await survey(bus, less), drop=False)
        await publish(less, 9, 3)
        await until_all([reader], 11)
    assert by_node([reader]) == {f"n{n}": [float(v) for v in range(12)] for n in range(NODES)}


async def test_translator_of_whole_cluster_reads_alone(site: Site) -> None:
    wanted = partitioned(site, 4)
    await publish(wanted, 0)
    first, second = shared(wanted), shared(wanted)
    async with Reader(first, scope=Scope.CLUSTER) as reader:
        await until_all([reader], 0)
        with pytest.raises(ConfigError, match="in use by n1 pid"):
            await read_to_the_end(second, Scope.CLUSTER)
        await publish(wanted, 1)
        await until_all([reader], 1)


async def test_process_with_state_keeps_its_nodes(site: Site) -> None:
    """Two that start together get half each; a later one gets none of theirs."""
    wanted = partitioned(site, 4)
    sources = [shared(wanted) for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(Reader(each, scope=Scope.NODE)) for each in sources[:2]
        ]
        await publish(wanted, 0)
        await until_all([first, second], 0)
        own = nodes_of(first, 0)
        assert own
        assert nodes_of(second, 0)
        async with Reader(sources[2], scope=Scope.NODE) as third:
            await asyncio.sleep(1.5 * float(LEASE))  # it would have claimed something by now
            await publish(wanted, 1)
            await until_all([first, second, third], 1)
            assert nodes_of(first, 1) == own
            assert not third.batches
