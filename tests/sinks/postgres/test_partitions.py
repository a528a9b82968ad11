"""Partitions of ``samples``: one for each day, or TimescaleDB's."""

import time
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from ccpipe.sinks.postgres.lines import DAY, days
from ccpipe.sinks.postgres.migrations import migrate
from ccpipe.sinks.postgres.partitions import DAYS_AHEAD, DAYS_BACK, Partitions
from tests.servers.postgres import PASSWORD, Server
from tests.sinks.conftest import metric, times

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


async def test_partitions_are_created_for_days_near_today_only(server: Server) -> None:
    """A wrong clock creates no table for each day of a millennium; each is created once."""
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


async def test_partitions_of_old_days_are_dropped(server: Server) -> None:
    """A table with another name stays, however old; without a retention all stay."""
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


async def test_partition_in_use_is_dropped_later(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A long query locks it: that is logged, and no write waits for it."""
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
def test_partition_is_chosen_by_day_of_time(chosen: list[int | None]) -> None:
    """Also before the epoch; a line without time has none."""
    lines = to_lines([Message("m", {}, 1.0, time) for time in chosen])
    assert days(lines) == {time // DAY for time in chosen if time is not None}


# TimescaleDB: its functions are faked, as the extension is not available here

STAND_INS = """
    CREATE TABLE called (what text, argument text);
    CREATE FUNCTION create_hypertable(
        relation regclass, time_column_name name,
        chunk_time_interval interval, create_default_indexes boolean
    ) RETURNS void AS $$
        INSERT INTO called VALUES ('create_hypertable', relation::text || ' ' || time_column_name
            || ' ' || chunk_time_interval::text || ' ' || create_default_indexes::text)
    $$ LANGUAGE sql;
    CREATE FUNCTION drop_chunks(relation regclass, older_than timestamptz) RETURNS SETOF text AS $$
        INSERT INTO called VALUES ('drop_chunks', relation::text || ' '
            || round(extract(epoch FROM now() - older_than))::text) RETURNING 'a_chunk'
    $$ LANGUAGE sql;
    CREATE SCHEMA timescaledb_information;
    CREATE VIEW timescaledb_information.hypertables AS
        SELECT 'public'::name AS hypertable_schema, split_part(argument, ' ', 1)::name
            AS hypertable_name FROM called WHERE what = 'create_hypertable';
"""


async def prepared(server: Server) -> str:
    database = await server.database()
    await server.run(database, STAND_INS)
    return database


async def test_empty_table_becomes_hypertable_once(server: Server) -> None:
    """The view reads it, and we create no partitions."""
    database = await prepared(server)
    for _ in range(2):
        async with server.sink(database) as sink:
            await sink.write(to_lines([metric(1.0)]))
    called = await server.ask(database, "SELECT * FROM called")
    assert called == [("create_hypertable", "samples time 1 day false")]
    kind = "SELECT relkind::text FROM pg_class WHERE relname = 'samples'"
    assert await server.ask(database, kind) == [("r",)]
    assert await server.ask(database, "SELECT to_regclass('samples_other')") == [(None,)]
    assert await server.ask(database, "SELECT count(*) FROM messages") == [(2,)]


async def test_hypertable_applies_retention_itself(server: Server) -> None:
    """If that fails, lines are still written."""
    database = await prepared(server)
    async with server.sink(database, retention=Duration(7200)) as sink:
        await sink.write(to_lines([metric(1.0)]))
    dropped = await server.ask(database, "SELECT argument FROM called WHERE what = 'drop_chunks'")
    assert dropped == [("samples 7200",)]
    await server.ask(database, "DROP FUNCTION drop_chunks")
    async with server.sink(database, retention=Duration(7200)) as sink:
        await sink.write(to_lines([metric(2.0)]))
    assert await server.ask(database, "SELECT count(*) FROM messages") == [(2,)]


async def test_hypertable_rejects_lines_without_time(server: Server) -> None:
    """They are named, and the others kept: a hypertable refuses a whole COPY for them."""
    database = await prepared(server)
    async with server.sink(database) as sink:
        with pytest.raises(RejectedError, match="without a time") as caught:
            await sink.write(to_lines([metric(1.0), Message("m", {}, 1.0), metric(2.0)]))
    assert caught.value.indices == [1]


async def test_rows_refused_by_new_hypertable_are_rejected(server: Server) -> None:
    """Its error about a time rejects the rows: the same write would never succeed."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(1.0)]))
        await server.run(
            database,
            """
            CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN
                RAISE 'timestamp out of range' USING ERRCODE = '22008';
            END $$ LANGUAGE plpgsql;
            CREATE TRIGGER refuse BEFORE INSERT ON samples FOR EACH ROW
                WHEN (NOT isfinite(NEW.time)) EXECUTE FUNCTION refuse();
            """,
        )
        with pytest.raises(RejectedError, match="timestamp out of range"):
            await sink.write(to_lines([Message("m", {}, 1.0)]))


async def test_existing_partitions_are_kept_with_timescaledb(server: Server) -> None:
    """A database with tables keeps its partitions after the extension is installed."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(1.0)]))
    await server.run(database, STAND_INS)
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(2.0), Message("m", {}, 1.0)]))
    assert await server.ask(database, "SELECT * FROM called") == []
    assert await server.ask(database, "SELECT count(*) FROM messages") == [(3,)]
