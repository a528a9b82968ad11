"""Batches are stored whole and once, whoever else writes to the tables or replaces them."""

import asyncio
from collections import Counter

import pytest

from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import Message
from ccpipe.sinks.postgres import PostgresSink
from tests.conftest import eventually
from tests.deliveries import delivered
from tests.servers.postgres import Server, sent
from tests.sinks.postgres.deliveries import LINES, delivery, stored


async def test_nothing_is_sent_of_nothing(server: Server) -> None:
    """An empty batch is safe at once."""
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


async def test_truncation(server: Server) -> None:
    """A bridge whose tables are emptied goes on, with series that are numbered anew."""
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
async def test_a_table_that_is_renamed_for_a_moment(server: Server, table: str) -> None:
    """Writes fail until it is back, no other table is made, and then everything arrives."""
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


async def test_a_table_that_is_another_one(server: Server) -> None:
    """Series of a table that took the name of ours get their numbers from it."""
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
