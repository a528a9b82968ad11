"""A partition for each day: made when its first row comes, dropped when it is old."""

import time
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.sinks.postgres.migrations import migrate
from ccpipe.sinks.postgres.partitions import DAYS_AHEAD, DAYS_BACK, Partitions
from ccpipe.sinks.postgres.rows import DAY, days
from tests.servers.postgres import PASSWORD, Server
from tests.sinks.conftest import times

NAMES = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'samples'::regclass"


def today() -> int:
    return int(time.time() // 86_400)


def name_of(day: int) -> str:
    return f"samples_{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(day):%Y%m%d}"


async def opened(server: Server) -> tuple[asyncpg.Connection, str]:
    database = await server.database()
    connection = await asyncpg.connect(server.url(database), password=PASSWORD)
    await migrate(connection)
    return connection, database


async def partitions(connection: asyncpg.Connection) -> set[str]:
    return {name for (name,) in await connection.fetch(NAMES)}


async def test_only_days_near_today_get_one(server: Server) -> None:
    """A clock that is wrong makes no table for each day of a millennium; twice makes one."""
    connection, _ = await opened(server)
    try:
        before = await partitions(connection)
        now = today()
        near = [now - DAYS_BACK + 1, now - 1, now, now + DAYS_AHEAD - 1]
        days = [*near, now - DAYS_BACK - 2, now + DAYS_AHEAD + 2, -700_000, 10**6]
        for known in (Partitions(0), Partitions(0)):  # two bridges
            await known.make(connection, days)
            await known.make(connection, days)
        assert await partitions(connection) - before == {name_of(day) for day in near}
    finally:
        await connection.close()


async def test_old_days_are_dropped_and_others_stay(server: Server) -> None:
    """A table with another name stays, however old; without a retention everything does."""
    connection, _ = await opened(server)
    try:
        now = today()
        old, young = now - 30, now - 3
        await Partitions(0).make(connection, [old, young])
        await Partitions(0).drop_old(connection)
        assert {name_of(old), name_of(young)} <= await partitions(connection)
        await Partitions(7 * 86_400).drop_old(connection)
        left = await partitions(connection)
        assert name_of(old) not in left
        assert name_of(young) in left
        assert "samples_other" in left
    finally:
        await connection.close()


async def test_a_day_that_is_read_stays_until_the_next_time(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A long query holds it: that is told, and no write waits for it."""
    connection, database = await opened(server)
    reader = await asyncpg.connect(server.url(database), password=PASSWORD)
    try:
        old = today() - 30
        await Partitions(0).make(connection, [old])
        async with reader.transaction():
            await reader.fetch(f"SELECT * FROM {name_of(old)}")  # noqa: S608
            await Partitions(86_400).drop_old(connection)
        assert name_of(old) in await partitions(connection)
        assert f"{name_of(old)} is older than the retention, but stays" in caplog.text
    finally:
        await reader.close()
        await connection.close()


@given(st.lists(times | st.none(), max_size=20))
def test_days_are_those_of_the_times(chosen: list[int | None]) -> None:
    """Also before the epoch; a line without time has none."""
    lines = to_lines([Message("m", {}, 1.0, time) for time in chosen])
    assert days(lines) == {time // DAY for time in chosen if time is not None}
