"""TimescaleDB: what is asked of it, of stand-ins for its functions, which no package here has."""

import pytest

from ccpipe.config import Duration
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message
from tests.servers.postgres import Server
from tests.sinks.conftest import metric

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


async def test_where_it_is_there(server: Server) -> None:
    """An empty plain table is handed to it once; the view reads that, and nobody partitions it."""
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


async def test_retention(server: Server) -> None:
    """It drops its chunks itself; where it cannot, lines are written all the same."""
    database = await prepared(server)
    async with server.sink(database, retention=Duration(7200)) as sink:
        await sink.write(to_lines([metric(1.0)]))
    dropped = await server.ask(database, "SELECT argument FROM called WHERE what = 'drop_chunks'")
    assert dropped == [("samples 7200",)]
    await server.ask(database, "DROP FUNCTION drop_chunks")
    async with server.sink(database, retention=Duration(7200)) as sink:
        await sink.write(to_lines([metric(2.0)]))
    assert await server.ask(database, "SELECT count(*) FROM messages") == [(2,)]


async def test_lines_without_a_time(server: Server) -> None:
    """They are named, and their neighbours kept: a hypertable refuses a whole COPY for them."""
    database = await prepared(server)
    async with server.sink(database) as sink:
        with pytest.raises(RejectedError, match="without a time") as caught:
            await sink.write(to_lines([metric(1.0), Message("m", {}, 1.0), metric(2.0)]))
    assert caught.value.indices == [1]


async def test_a_table_that_became_one_meanwhile(server: Server) -> None:
    """What it says of a time condemns the rows: the same write would never succeed."""
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


async def test_a_database_of_before(server: Server) -> None:
    """One that has the tables keeps its partitions when the extension comes."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(1.0)]))
    await server.run(database, STAND_INS)
    async with server.sink(database) as sink:
        await sink.write(to_lines([metric(2.0), Message("m", {}, 1.0)]))
    assert await server.ask(database, "SELECT * FROM called") == []
    assert await server.ask(database, "SELECT count(*) FROM messages") == [(3,)]
