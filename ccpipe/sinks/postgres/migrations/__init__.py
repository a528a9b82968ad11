"""The tables, as numbered SQL files applied to each database once, in order.

A released file is never changed: changes go into the next number.
"""

import logging
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ccpipe.errors import ConfigError

log = logging.getLogger(__name__)

TABLES = ("series", "samples", "messages", "delivered")
"""Migrations used by a bridge of lines."""

LOCK = 0x63637069
"""Key of the advisory lock for creating tables, shared by all bridges."""

APPLIED = """
    CREATE TABLE ccpipe_migrations (
        number integer PRIMARY KEY,
        name text NOT NULL,
        applied timestamptz NOT NULL DEFAULT now()
    );
    GRANT SELECT ON ccpipe_migrations TO PUBLIC;
"""

_HAS_TIMESCALE = """
    SELECT EXISTS (SELECT FROM pg_proc
                   WHERE proname = 'create_hypertable' AND pg_function_is_visible(oid))
"""

# A partitioned table cannot become a hypertable. Only features of the Apache edition are used.
_AS_HYPERTABLE = """
    CREATE TABLE samples_plain (LIKE samples);
    DROP VIEW messages;
    DROP TABLE samples;
    ALTER TABLE samples_plain RENAME TO samples;
    CREATE INDEX samples_time ON samples USING brin (time);
    SELECT create_hypertable('samples', 'time', chunk_time_interval => interval '1 day',
                             create_default_indexes => false);
    CREATE VIEW messages AS
        SELECT time, ns, name, field, cluster, hostname, type, type_id, stype, stype_id, tags,
               value, "int", uint, bool, text
        FROM samples JOIN series ON series.id = samples.series;
"""
"""Applied to the empty table of the migrations."""


def migrations() -> list[tuple[int, str, str]]:
    found = [file for file in files(__name__).iterdir() if file.name.endswith(".sql")]
    found.sort(key=lambda file: file.name)
    return [(int(file.name[:3]), file.name[4:-4], file.read_text()) for file in found]


def _all_exist(names: Sequence[str]) -> str:
    return " AND ".join(f"to_regclass('{name}') IS NOT NULL" for name in names)


def _is_granted(privilege: str, names: Sequence[str]) -> str:
    return " AND ".join(f"has_table_privilege('{name}', '{privilege}')" for name in names)


def may_write(tables: Sequence[str]) -> str:
    """Return a query: whether we may write to the tables, or create them."""
    written = [name for name in tables if name != "messages"]
    read = [name for name in ("series", "delivered") if name in tables]
    return f"""
        SELECT CASE WHEN {_all_exist(tables)}
            THEN {_is_granted("INSERT", written)} AND {_is_granted("SELECT", read)}
                 AND {_is_granted("DELETE", ["delivered"])}
            ELSE coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) END
    """


async def migrate(connection: Any) -> None:
    """Bring a database's tables up to date."""
    known = migrations()
    latest = known[-1][0]
    if await _version(connection) == latest:  # without waiting for a lock
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        version = await _version(connection)
        if version > latest:
            raise ConfigError(
                f"the database's tables were created by a newer ccpipe: migration {version}, "
                f"and this one knows {latest}"
            )
        if version == 0:
            await connection.execute(APPLIED)
        for number, name, sql in known[version:]:
            await connection.execute(sql)
            await _record(connection, number, name)
            log.info("applied migration %d, %s", number, name)
        if version == 0 and await connection.fetchval(_HAS_TIMESCALE):
            await connection.execute(_AS_HYPERTABLE)
            log.info("the table samples is a hypertable of TimescaleDB")


# Only locking a relation shows what other connections created, and to_regclass() does not lock.
_IS_NEW = (
    "SELECT to_regclass('ccpipe_migrations') IS NULL FROM (SELECT FROM pg_am LIMIT 1) AS locked"
)


async def _version(connection: Any) -> int:
    if await connection.fetchval(_IS_NEW):
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM ccpipe_migrations"))


async def _record(connection: Any, number: int, name: str) -> None:
    await connection.execute(
        "INSERT INTO ccpipe_migrations (number, name) VALUES ($1, $2)", number, name
    )
