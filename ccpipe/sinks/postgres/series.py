"""Ids of series in ``samples``: queried once, then cached."""

import sys
from array import array
from typing import Any

from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.sinks.postgres.series_rows import (
    Pairs,
    digests,
    keys_of,
    series_rows,
    store_ids,
    unknown_pairs,
)

# All keys in one parameter and all ids in one result: the library is slow with long lists.
FOUND = """
    SELECT string_agg(int4send(coalesce(id, 0)), '' ORDER BY place)
    FROM (SELECT place, substring($1::bytea FROM 16 * place + 1 FOR 16) AS key
          FROM generate_series(0, length($1::bytea) / 16 - 1) AS place) AS asked
    LEFT JOIN series USING (key)
"""

TEMPORARY = """
    CREATE TEMPORARY TABLE IF NOT EXISTS ccpipe_new_series (
        place integer, key bytea, name text, field text, cluster text, hostname text,
        type text, type_id text, stype text, stype_id text, tags jsonb
    ) ON COMMIT DELETE ROWS
"""

# The same order everywhere prevents deadlocks.
NEW_SERIES = """
    WITH made AS (
        INSERT INTO series
            (key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags)
        SELECT key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags
        FROM ccpipe_new_series ORDER BY key
        ON CONFLICT (key) DO NOTHING
        RETURNING key, id
    )
    SELECT string_agg(int4send(coalesce(id, 0)), '' ORDER BY place)
    FROM ccpipe_new_series LEFT JOIN made USING (key)
"""

# Reading from the table prevents truncating or renaming it until the transaction ends.
GENERATION = """
    SELECT to_regclass('series')::oid::bigint, pg_relation_filenode(to_regclass('series'))::bigint,
           to_regclass('samples')::oid::bigint
    FROM (SELECT count(*) FROM (SELECT FROM series LIMIT 0) AS nothing) AS locked
"""
"""Changes when one of the tables is replaced or truncated."""

Generation = tuple[int, int, int]


async def generation(connection: Any) -> Generation:
    """Return the identity of the tables, which stays valid until the end of the transaction."""
    series, filenode, samples = await connection.fetchrow(GENERATION)
    return series, filenode, samples


MAX_ASKED = 20_000
"""Series per query: even a slow server creates this many well within the time limit."""

_MANY = 64


class SeriesIds:
    """Ids of the series of one ``SeriesTable``, which lives across payloads.

    It stores one id per series and field seen: no more than the table has.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.table: SeriesTable | None = None
        self.by_field: dict[int, array[int]] = {}
        """For each field code, the id of each series by its code; 0 if unknown."""

    def forget(self) -> None:
        """Reset: the tables have been replaced."""
        self.table = None
        self.by_field.clear()

    def prepare(self, lines: Lines) -> Pairs:
        """Make room for the series of some lines; return those without an id."""
        if lines.table is not self.table:
            self.forget()
            self.table = lines.table
        size = len(lines.table)
        fields = len(lines.table.fields)
        for field in range(fields) if fields < _MANY else set(lines.fields):
            ids = self.by_field.setdefault(field, array("i"))
            if len(ids) < size:  # doubled each time, so that growth is cheap
                ids.frombytes(bytes(ids.itemsize * max(size - len(ids), len(ids))))
        return unknown_pairs(lines, self.by_field)

    async def ask(self, connection: Any, lines: Lines, pairs: Pairs) -> None:
        """Query the ids of some series, creating new ones.

        This is a separate, short transaction: bridges that create the same series block each other
        only for its duration, and a cached id is always a committed one.

        Raises
        ------
        RejectedError
            for records of a series containing NUL, which PostgreSQL cannot store.

        """
        keys = keys_of(lines, pairs)
        known_by = digests(keys, lines.table.fields, pairs)
        ids = _numbers(await connection.fetchval(FOUND, known_by))
        if 0 in ids:
            await connection.execute(TEMPORARY)
            await connection.copy_to_table(
                "ccpipe_new_series",
                schema_name="pg_temp",
                source=series_rows(lines.table, keys, pairs, known_by, ids),
                format="binary",
            )
            made = iter(_numbers(await connection.fetchval(NEW_SERIES)))
            ids = array("i", [id_ or next(made) for id_ in ids])
            if 0 in ids:  # another bridge created some first
                ids = _numbers(await connection.fetchval(FOUND, known_by))
        store_ids(self.by_field, pairs, ids)


def _numbers(answer: bytes) -> "array[int]":
    """Return the ids of a result; 0 for series that do not exist."""
    numbers = array("i", answer)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
