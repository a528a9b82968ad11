"""The tables as numbered SQL files: each is applied once, in its order."""

import asyncio

import asyncpg
import pytest

from ccpipe.errors import ConfigError
from ccpipe.sinks.postgres.migrations import migrate, migrations
from tests.servers.postgres import PASSWORD, Server

APPLIED = "SELECT number, name FROM ccpipe_migrations ORDER BY number"


def test_migration_numbers_are_consecutive() -> None:
    """A gap would be a forgotten file, a duplicate number a file that is never applied."""
    assert [number for number, _, _ in migrations()] == list(range(1, len(migrations()) + 1))
    assert all(name and sql.strip() for _, name, sql in migrations())


async def test_migration_is_applied_once(server: Server) -> None:
    """Several bridges may start together."""
    database = await server.database()
    connections = [await asyncpg.connect(server.url(database), password=PASSWORD) for _ in range(3)]
    try:
        for _ in range(2):
            await asyncio.gather(*map(migrate, connections))
    finally:
        for connection in connections:
            await connection.close()
    assert await server.ask(database, APPLIED) == [
        (number, name) for number, name, _ in migrations()
    ]


async def test_tables_of_newer_ccpipe_are_left_alone(server: Server) -> None:
    """An older bridge would write wrong data to newer tables."""
    database = await server.database()
    connection = await asyncpg.connect(server.url(database), password=PASSWORD)
    try:
        await migrate(connection)
        await connection.execute("INSERT INTO ccpipe_migrations VALUES (999, 'later')")
        with pytest.raises(ConfigError, match="newer ccpipe: migration 999"):
            await migrate(connection)
    finally:
        await connection.close()
