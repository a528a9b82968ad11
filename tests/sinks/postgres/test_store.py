"""Batches are stored completely and each message once, even if others write to the tables."""

import asyncio
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.bus.nats.server import NatsServer
from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import Message
from ccpipe.records import Provenance
from ccpipe.sinks.postgres import PostgresSink
from ccpipe.sinks.postgres.store import _LOCK
from tests.conftest import eventually
from tests.deliveries import delivered, provenance_of
from tests.servers.postgres import PASSWORD, Server, sent
from tests.sinks.conftest import metric
from tests.sinks.kills import LINES as LINES_OF_KILLS
from tests.sinks.kills import KilledBridges

LINES = 3
"""Of each message."""


def delivery(*numbers: int, consumer: str = "c") -> tuple[list[Message], Provenance]:
    records = [metric(float(n), row=str(row)) for n in numbers for row in range(LINES)]
    ends = array("q", range(LINES, LINES * len(numbers) + 1, LINES))
    times = array("q", [1000 + n for n in numbers])
    return records, provenance_of([consumer] * len(numbers), array("q", numbers), times, ends)


async def stored(server: Server, database: str) -> Counter[int]:
    rows = await server.ask(database, "SELECT value FROM messages")
    return Counter(int(value) for (value,) in rows)


async def test_empty_batch_is_written_without_query(server: Server) -> None:
    async with server.sink() as sink:
        await sink.write(to_lines([]))
        await sink.write(Lines())


async def kept(sink: PostgresSink, number: int) -> None:
    """Write one message, as a pipe does: again until it is stored."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await sink.write(to_lines(delivered(*delivery(number))))
            except UnavailableError:
                await asyncio.sleep(0.02)


async def test_sink_continues_after_truncation(server: Server) -> None:
    """Its series get new numbers."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines(delivered(*delivery(1))))
        await server.ask(database, "TRUNCATE series, samples RESTART IDENTITY")
        other = Message("other", {"hostname": "n9"}, 7.0, 1)
        async with server.sink(database) as second:
            await second.write(
                to_lines([other])
            )  # takes the number that the first bridge remembers
        await sink.write(to_lines(delivered(*delivery(2))))
    expected = Counter(map(sent, [*delivery(2)[0], other]))
    assert await server.messages(database) == expected


@pytest.mark.parametrize("table", ["series", "samples", "delivered"])
async def test_writes_fail_while_table_is_renamed(server: Server, table: str) -> None:
    """No other table is created, and everything is written once it has its name again."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines(delivered(*delivery(1))))
        await server.ask(database, f"ALTER TABLE {table} RENAME TO elsewhere")
        for _ in range(3):
            with pytest.raises(UnavailableError, match=f'"{table}" does not exist'):
                await sink.write(to_lines(delivered(*delivery(2))))
        writing = asyncio.create_task(kept(sink, 2))
        await server.ask(database, f"ALTER TABLE elsewhere RENAME TO {table}")
        await eventually(writing.done)
        await writing
        await sink.write(to_lines(delivered(*delivery(1, 2, 3))))
    assert await stored(server, database) == dict.fromkeys((1, 2, 3), LINES)


async def test_series_are_numbered_again_in_replaced_table(server: Server) -> None:
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines(delivered(*delivery(1))))
        for change in (
            "ALTER TABLE series RENAME TO series_old",
            "CREATE TABLE series (LIKE series_old INCLUDING ALL)",
            "ALTER TABLE series ALTER id RESTART WITH 1000",
        ):
            await server.ask(database, change)
        await sink.write(to_lines(delivered(*delivery(2))))
    rows = await server.ask(database, "SELECT DISTINCT series >= 1000 FROM samples WHERE value = 2")
    assert rows == [(True,)]


@settings(max_examples=10)
@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12, unique=True), max_size=6))
def test_messages_are_stored_once_in_any_batches(
    server: Server, batches: Sequence[Sequence[int]]
) -> None:
    """Halved, joined or in another order: each message is stored once, completely."""

    async def run() -> Counter[int]:
        database = await server.database()
        async with server.sink(database) as sink:
            for numbers in batches:
                await sink.write(delivered(*delivery(*numbers)))
        return await stored(server, database)

    assert asyncio.run(run()) == dict.fromkeys({n for batch in batches for n in batch}, LINES)


async def test_messages_of_other_consumers_are_distinct(server: Server) -> None:
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


async def test_records_without_message_are_written_each_time(server: Server) -> None:
    """Nothing redelivers them; they are added to the stored ones."""
    database = await server.database()
    records, ids = delivery(1)
    both = Provenance.concat([(None, 1), (ids, len(records))])
    async with server.sink(database) as sink:
        for _ in range(2):
            await sink.write(delivered([metric(9.0), *records], both))
    assert await stored(server, database) == {9: 2, 1: LINES}


async def test_bad_records_are_rejected_each_time(server: Server) -> None:
    """Also if their message is stored, as the dead letter may not have been written."""
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


async def test_stalled_bridge_skips_messages_stored_by_another(server: Server) -> None:
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


async def test_table_of_delivered_messages_is_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the latest runs are kept."""
    monkeypatch.setattr("ccpipe.sinks.postgres.store.MAX_RUNS", 100)
    database = await server.database()
    async with server.sink(database) as sink:
        for start in range(0, 1000, 20):
            await sink.write(delivered(*delivery(*range(start, start + 20, 2))))
        await sink.write(delivered(*delivery(*range(900, 999, 2))))
    ((runs,),) = await server.ask(database, "SELECT count(*) FROM delivered")
    assert 100 <= runs <= 120
    assert set((await stored(server, database)).values()) == {LINES}


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
async def test_killed_bridges_store_each_line_once(
    server: Server, nats_server: NatsServer, tmp_path: Path, kills: int
) -> None:
    """However often bridges are killed, each published line is stored exactly once."""
    database = await server.database()
    bridges = KilledBridges(
        "postgres",
        nats_server,
        tmp_path,
        CCPIPE_SINK__URL=server.url(database),
        CCPIPE_SINK__PASSWORD_FILE=str(server.secret),
    )

    async def stored() -> Counter[int]:
        if (await server.ask(database, "SELECT to_regclass('delivered') IS NULL")) == [(True,)]:
            return Counter()
        rows = await server.ask(database, "SELECT value, count(*) FROM messages GROUP BY 1")
        return Counter({int(value): count for value, count in rows})

    found = await bridges.run(kills, stored)
    assert found == dict.fromkeys(range(bridges.published), LINES_OF_KILLS)
    assert bridges.published > 100
