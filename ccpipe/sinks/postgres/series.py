"""The numbers by which ``samples`` names its series: asked for once, and remembered."""

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

# All keys in one parameter and all numbers in one answer: the library takes long for lists.
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

# In one order everywhere: no deadlocks.
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

# Reading from the table keeps it from being truncated or renamed until the transaction ends.
GENERATION = """
    SELECT to_regclass('series')::oid::bigint, pg_relation_filenode(to_regclass('series'))::bigint,
           to_regclass('samples')::oid::bigint
    FROM (SELECT count(*) FROM (SELECT FROM series LIMIT 0) AS nothing) AS locked
"""
"""What changes when one of the tables is another one, or was emptied."""

Generation = tuple[int, int, int]


async def generation(connection: Any) -> Generation:
    """Return which tables these are; they stay so until the end of the transaction."""
    series, filenode, samples = await connection.fetchrow(GENERATION)
    return series, filenode, samples


MAX_ASKED = 20_000
"""Series that are asked for at once: a slow server makes so many well within the time limit."""

_MANY = 64


class SeriesIds:
    """Numbers of the series of one ``SeriesTable``, which lives across payloads.

    So there is one number for each series and field that came: no more than the table has.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.table: SeriesTable | None = None
        self.by_field: dict[int, array[int]] = {}
        """Of each field by its code: the number of each series by its code, 0 for unknown."""

    def forget(self) -> None:
        """Forget all: the tables are others now."""
        self.table = None
        self.by_field.clear()

    def prepare(self, lines: Lines) -> Pairs:
        """Make room for the series of some lines; return those whose number is not known."""
        if lines.table is not self.table:
            self.forget()
            self.table = lines.table
        size = len(lines.table)
        fields = len(lines.table.fields)
        for field in range(fields) if fields < _MANY else set(lines.fields):
            ids = self.by_field.setdefault(field, array("i"))
            if len(ids) < size:  # twice as long each time, so that new ones are cheap
                ids.frombytes(bytes(ids.itemsize * max(size - len(ids), len(ids))))
        return unknown_pairs(lines, self.by_field)

    async def ask(self, connection: Any, lines: Lines, pairs: Pairs) -> None:
        """Get the numbers of some series, making those that are new.

        That is a transaction of its own, and a short one: bridges that meet the same new series
        wait for each other only for it, and a number that is remembered is one that stays.

        Raises
        ------
        RejectedError
            naming the records of a series with the character NUL, which PostgreSQL keeps nowhere.

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
            if 0 in ids:  # another bridge was first with some
                ids = _numbers(await connection.fetchval(FOUND, known_by))
        store_ids(self.by_field, pairs, ids)


def _numbers(answer: bytes) -> "array[int]":
    """Return the numbers of an answer, 0 for series that there are not."""
    numbers = array("i", answer)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
