"""``PostgresSink`` against a real server, with the stored rows compared."""

import asyncio
import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import MissingExtra, RejectedError
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.formats.lineprotocol.arrow import TAG_COLUMNS
from ccpipe.message import Message, Uint, Value
from ccpipe.sinks.postgres import lines
from ccpipe.sinks.postgres.migrations import LOCK
from tests.servers.postgres import PASSWORD, Server, sent
from tests.sinks.conftest import NOON, Given, carry, messages_with, metric, names


def without_nul(message: Message) -> bool:
    return not (isinstance(message.value, str) and "\0" in message.value)


@given(
    st.lists(
        messages_with(**dict.fromkeys(TAG_COLUMNS, names)).filter(without_nul),
        min_size=1,
        max_size=20,
    )
)
def test_postgres_stores_records_exactly(server: Server, messages: list[Message]) -> None:
    """Every type of value, every name and every nanosecond, and nothing else."""

    async def send() -> Counter[Any]:
        async with server.sink() as sink:
            await sink.database.connection.execute("TRUNCATE samples")
            await sink.write(to_lines(messages))
            return await server.messages("postgres")

    assert asyncio.run(send()) == Counter(map(sent, messages))


async def test_postgres_stores_extreme_values(server: Server) -> None:
    """Integers of 64 bits are exact, a line without time is kept, and long names fit."""
    database = await server.database()
    numbers: Sequence[Value] = [-(2**63), 2**63 - 1, Uint(0), Uint(10**16), Uint(2**64 - 1), -0.0]
    messages = [metric(value, n=str(n)) for n, value in enumerate(numbers)]
    messages += [
        Message("m", {}, "no time", None),
        Message("m", {"t": "x" * 10_000}, "long " * 100_000, NOON + 1),
        metric(1.0, time=-(2**63) + 2),
        metric(1.0, time=2**63 - 2),
    ]
    async with server.sink(database) as sink:
        await sink.write(to_lines(messages))
    assert await server.messages(database) == Counter(map(sent, messages))
    rows = await server.ask(database, "SELECT name FROM messages WHERE time = '-infinity'")
    assert rows == [("m",)]


async def test_write_is_all_or_nothing(server: Server) -> None:
    """If a row is refused no other of its batch stays."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(1.0)]))
        await server.ask(database, "ALTER TABLE samples ADD CHECK (value < 100)")
        with pytest.raises(RejectedError, match="violates check constraint"):
            await sink.write(to_lines([*(metric(2.0) for _ in range(1000)), metric(100.0)]))
        await sink.write(to_lines([metric(3.0)]))
    assert await server.ask(database, "SELECT value FROM samples") == [(1.0,), (3.0,)]


async def test_texts_with_nul_are_rejected(server: Server) -> None:
    """PostgreSQL cannot store them: the record is named, and the others are kept."""
    database = await server.database()
    records = [metric(1.0), metric("a\0b"), metric("text"), metric("\0")]
    async with server.sink(database) as sink:
        with pytest.raises(RejectedError, match="NUL") as caught:
            await sink.write(to_lines(records))
    assert caught.value.indices == [1, 3]
    letters = await carry(Given(to_lines(records)), server.sink(database))
    assert [letter.original.count(b"\0") for letter in letters] == [1, 1]
    assert await server.messages(database) == Counter(map(sent, [records[0], records[2]]))


async def test_names_with_nul_are_rejected(server: Server) -> None:
    """InfluxDB's grammar allows them; the others are stored."""
    database = await server.database()
    body = b"m,t=a value=1 1740052800\nm,t=\0 value=2 1740052800\n\0m value=3 1740052800\n"
    lines = decode(body + b"m,t=b value=4 1740052800\n", dialect="influx")
    assert len(lines) == 4
    letters = await carry(Given(lines), server.sink(database))
    assert len(letters) == 2
    rows = await server.ask(database, "SELECT value FROM samples")
    assert sorted(rows) == [(1.0,), (4.0,)]


@pytest.mark.parametrize("library", ["asyncpg", "numpy"])
def test_sink_names_what_to_install_without_library(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for name in [name for name in sys.modules if name.startswith("ccpipe.sinks.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=rf"{library}.* pip install 'ccpipe\[postgres\]'"):
        importlib.import_module("ccpipe.sinks.postgres")


async def test_series_is_stored_once(server: Server) -> None:
    """For any spelling, payload or bridge; each field is a separate series."""
    database = await server.database()
    payloads = [
        b"m,a=1,hostname=n1 value=1,other=2 1740052800\n",
        b"m,hostname=n1,a=1 value=3 1740052801\n",
        b"m,hostname=n2,a=1 value=4 1740052801\n",
    ]
    for _ in range(2):
        async with server.sink(database) as sink:
            for payload in payloads:
                await sink.write(decode(payload))
    rows = await server.ask(database, "SELECT hostname, field, tags::text FROM series")
    assert Counter(rows) == Counter(
        [
            ("n1", "value", '{"a": "1"}'),
            ("n1", "other", '{"a": "1"}'),
            ("n2", "value", '{"a": "1"}'),
        ]
    )
    assert await server.ask(database, "SELECT count(*) FROM messages") == [(8,)]


async def test_few_new_series_are_found_without_reading_all(server: Server) -> None:
    """However often: PostgreSQL may not keep a plan that was made for any number of them."""
    database = await server.database()

    async def rows_read(sink: Any) -> int:
        await sink.database.connection.execute("SELECT pg_stat_force_next_flush()")
        query = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'series'"
        [(count,)] = await server.ask(database, query)
        return int(count)

    async with server.sink(database) as sink:
        for first in range(0, 10_000, 2000):
            new = range(first, first + 2000)
            await sink.write(to_lines([metric(1.0, n=str(n)) for n in new]))
        before = await rows_read(sink)
        for n in range(10_000, 10_020):
            await sink.write(to_lines([metric(1.0, n=str(n))]))
        assert await rows_read(sink) - before < 10_000


async def test_series_with_and_without_escapes_are_created_together(server: Server) -> None:
    """Names with braces, quotes and backslashes are stored as they are, in one statement."""
    database = await server.database()
    names = ["m", "{m}", "a b", "a,b", '"m"', r"a\b", r"\m", "100%", "ä=ö"]
    batch = [Message(name, {"tag": tag}, 1.0, NOON) for name in names for tag in names]
    async with server.sink(database) as sink:
        await sink.write(to_lines(batch))
    assert await server.messages(database) == Counter(map(sent, batch))


async def test_concurrent_bridges_create_tables_and_series_once(server: Server) -> None:
    database = await server.database()
    batches = [[metric(float(n), n=str(n), round=str(r)) for n in range(300)] for r in range(3)]

    async def bridge(order: int) -> None:
        async with server.sink(database) as sink:
            for batch in batches:
                await sink.write(to_lines(batch[::order]))

    other = await asyncpg.connect(server.url(database), password=PASSWORD)
    try:
        await other.execute(f"SELECT pg_advisory_lock({LOCK})")
        bridges = asyncio.gather(*(bridge(order) for order in (1, -1, 1, -1)))
        await server.waiting(database, 4)  # so that all find no tables at the same time
    finally:
        await other.close()
    await bridges
    assert await server.ask(database, "SELECT count(*) FROM series") == [(900,)]
    expected = Counter(sent(message) for batch in batches for message in batch * 4)
    assert await server.messages(database) == expected


async def test_many_new_series_are_created_in_portions(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, also if bridges create the same ones."""
    monkeypatch.setattr(lines, "MAX_ASKED", 7)
    database = await server.database()
    batch = [metric(float(n), n=str(n)) for n in range(100)]

    async def bridge(order: int) -> None:
        async with server.sink(database) as sink:
            await sink.write(to_lines(batch[::order]))

    await asyncio.gather(*(bridge(order) for order in (1, -1, 1)))
    assert await server.ask(database, "SELECT count(*) FROM series") == [(100,)]
    assert await server.messages(database) == Counter(sent(message) for message in batch * 3)
