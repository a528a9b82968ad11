"""Numbers of series in a real PostgreSQL: one for each, whoever meets it first."""

import asyncio
from collections import Counter

import asyncpg
import pytest

from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.sinks.postgres import lines
from ccpipe.sinks.postgres.migrations import LOCK
from tests.servers.postgres import PASSWORD, Server, sent
from tests.sinks.conftest import metric


async def test_a_series_is_stored_once(server: Server) -> None:
    """However it is spelled, in whichever payload, by whichever bridge; fields keep it apart."""
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


async def test_several_bridges_at_once(server: Server) -> None:
    """Bridges that start together make the tables once, and one id for each series."""
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
        await server.waiting(database, 4)  # so that all find no tables at one moment
    finally:
        await other.close()
    await bridges
    assert await server.ask(database, "SELECT count(*) FROM series") == [(900,)]
    expected = Counter(sent(message) for batch in batches for message in batch * 4)
    assert await server.messages(database) == expected


async def test_many_new_series(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made some at a time, each once, also where bridges meet the same ones."""
    monkeypatch.setattr(lines, "MAX_ASKED", 7)
    database = await server.database()
    batch = [metric(float(n), n=str(n)) for n in range(100)]

    async def bridge(order: int) -> None:
        async with server.sink(database) as sink:
            await sink.write(to_lines(batch[::order]))

    await asyncio.gather(*(bridge(order) for order in (1, -1, 1)))
    assert await server.ask(database, "SELECT count(*) FROM series") == [(100,)]
    assert await server.messages(database) == Counter(sent(message) for message in batch * 3)
