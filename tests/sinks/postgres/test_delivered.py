"""``PostgresSink``: messages that are delivered again are stored once."""

import asyncio
from array import array
from collections import Counter
from collections.abc import Sequence

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.errors import RejectedError
from ccpipe.records import Provenance
from ccpipe.sinks.postgres.store import _LOCK
from tests.deliveries import delivered, provenance_of
from tests.servers.postgres import PASSWORD, Server
from tests.sinks.conftest import metric
from tests.sinks.postgres.deliveries import LINES, delivery, stored


@settings(max_examples=10)
@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12, unique=True), max_size=6))
def test_whatever_the_batches(server: Server, batches: Sequence[Sequence[int]]) -> None:
    """Halved, joined or in another order: each message is stored once, whole."""

    async def run() -> Counter[int]:
        database = await server.database()
        async with server.sink(database) as sink:
            for numbers in batches:
                await sink.write(delivered(*delivery(*numbers)))
        return await stored(server, database)

    assert asyncio.run(run()) == dict.fromkeys({n for batch in batches for n in batch}, LINES)


async def test_consumers_and_streams_apart(server: Server) -> None:
    """Equal numbers of another consumer, or of a later time, are other messages."""
    database = await server.database()
    records, ids = delivery(1, 2)
    later = provenance_of(ids.consumers, ids.numbers, array("q", [5000, 5001]), ids.ends)
    async with server.sink(database) as sink:
        await sink.write(delivered(records, ids))
        await sink.write(delivered(*delivery(1, 2, consumer="other")))
        await sink.write(delivered(records, later))
        await sink.write(delivered(records, later))
    assert await stored(server, database) == {1: 3 * LINES, 2: 3 * LINES}


async def test_records_without_a_message(server: Server) -> None:
    """What nobody delivers again is written each time, beside what is stored already."""
    database = await server.database()
    records, ids = delivery(1)
    both = Provenance.concat([(None, 1), (ids, len(records))])
    async with server.sink(database) as sink:
        for _ in range(2):
            await sink.write(delivered([metric(9.0), *records], both))
    assert await stored(server, database) == {9: 2, 1: LINES}


async def test_bad_records_are_named_each_time(server: Server) -> None:
    """A record that cannot be stored is rejected again, though its message is stored.

    Its dead letter may not have been written.
    """
    records, ids = delivery(1)
    records[1] = metric("a\0b")
    database = await server.database()
    async with server.sink(database) as sink:
        for _ in range(2):
            with pytest.raises(RejectedError) as caught:
                await sink.write(delivered(records, ids))
            assert caught.value.indices == [1]
            await sink.write(delivered([records[0], records[2]], ids.take(b"\1\0\1")))
    assert await stored(server, database) == {1: 2}


async def test_two_bridges_with_the_same_message(server: Server) -> None:
    """A bridge that stood still while another wrote its messages finds them stored."""
    database = await server.database()
    async with server.sink(database) as first, server.sink(database) as second:
        other = await asyncpg.connect(server.url(database), password=PASSWORD)
        try:
            await other.execute(f"SELECT pg_advisory_lock({_LOCK})")
            writes = [
                asyncio.create_task(first.write(delivered(*delivery(1, 2, 3)))),
                asyncio.create_task(second.write(delivered(*delivery(2, 3, 4)))),
            ]
            await server.waiting(database, 2)  # both have copied, and neither has committed
        finally:
            await other.close()
        await asyncio.gather(*writes)
    assert await stored(server, database) == dict.fromkeys((1, 2, 3, 4), LINES)


async def test_the_table_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the latest runs are remembered."""
    monkeypatch.setattr("ccpipe.sinks.postgres.store.MAX_RUNS", 100)
    database = await server.database()
    async with server.sink(database) as sink:
        for start in range(0, 1000, 20):
            await sink.write(delivered(*delivery(*range(start, start + 20, 2))))
        await sink.write(delivered(*delivery(*range(900, 999, 2))))
    ((runs,),) = await server.ask(database, "SELECT count(*) FROM delivered")
    assert 100 <= runs <= 120
    assert set((await stored(server, database)).values()) == {LINES}
