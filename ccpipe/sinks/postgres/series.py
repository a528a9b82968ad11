"""The numbers by which ``samples`` names its series: asked for once, and remembered."""

import hashlib
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.sinks.postgres.rows import Pair, unknown_pairs

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags that have a column of their own, named with ``_`` for ``-``; the others share ``tags``."""

_KEY = 16
"""Bytes of a key."""

# One parameter for all keys and one for all series: the library takes long for lists.
FOUND = """
    SELECT array_agg(coalesce(id, 0) ORDER BY place)
    FROM (SELECT place, substring($1::bytea FROM 16 * place + 1 FOR 16) AS key
          FROM generate_series(0, length($1::bytea) / 16 - 1) AS place) AS asked
    LEFT JOIN series USING (key)
"""

NEW_SERIES = """
    WITH given AS (
        SELECT place, substring($1::bytea FROM 16 * place::int - 15 FOR 16) AS key,
               each->>0 AS name, each->>1 AS field, (each->2)::jsonb AS tags
        FROM json_array_elements($2::json) WITH ORDINALITY AS listed (each, place)
    ), made AS (
        INSERT INTO series
            (key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags)
        SELECT key, name, field, tags->>'cluster', tags->>'hostname', tags->>'type',
               tags->>'type-id', tags->>'stype', tags->>'stype-id',
               tags - '{cluster,hostname,type,type-id,stype,stype-id}'::text[]
        FROM given ORDER BY place
        ON CONFLICT (key) DO NOTHING
        RETURNING key, id
    )
    SELECT array_agg(coalesce(id, 0) ORDER BY place) FROM given LEFT JOIN made USING (key)
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

    def prepare(self, lines: Lines) -> Sequence[Pair]:
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

    async def ask(self, connection: Any, lines: Lines, pairs: Sequence[Pair]) -> None:
        """Get the numbers of some series, making those that are new.

        That is a transaction of its own, and a short one: bridges that meet the same new series
        wait for each other only for it, and a number that is remembered is one that stays.

        Raises
        ------
        RejectedError
            naming the records of a series with the character NUL, which PostgreSQL keeps nowhere.

        """
        refuse_nul(lines, pairs)
        keys = {digest(lines, pair): pair for pair in pairs}
        ids = await _found(connection, list(keys))
        # In one order everywhere: no deadlocks.
        if missing := sorted(key for key, id_ in ids.items() if not id_):
            series, fields = lines.table.series, lines.table.fields
            new = [
                (series[code].name, fields[field], series[code].tags)
                for code, field in map(keys.__getitem__, missing)
            ]
            text = msgspec.json.encode(new).decode()
            made = await connection.fetchval(NEW_SERIES, b"".join(missing), text)
            ids.update(zip(missing, made, strict=True))
            if others := [key for key in missing if not ids[key]]:  # another bridge was first
                ids |= await _found(connection, others)
        for key, (code, field) in keys.items():
            self.by_field[field][code] = ids[key]


async def _found(connection: Any, keys: list[bytes]) -> dict[bytes, int]:
    """Return the numbers of series by their keys; 0 for those that there are not."""
    return dict(zip(keys, await connection.fetchval(FOUND, b"".join(keys)), strict=True))


def digest(lines: Lines, pair: Pair) -> bytes:
    """Return what a series and a field are known by in the database."""
    # A space in the key is escaped, so this is the only one that is not.
    key = lines.table.codes.key(pair[0]) + b" " + lines.table.fields[pair[1]].encode()
    return hashlib.blake2b(key, digest_size=_KEY).digest()


def refuse_nul(lines: Lines, pairs: Sequence[Pair]) -> None:
    """Raise RejectedError for the rows of series with NUL, as plain Influx line protocol allows."""
    bad = {
        (code, field)
        for code, field in pairs
        if b"\0" in lines.table.codes.key(code) or "\0" in lines.table.fields[field]
    }
    if bad:
        rows = zip(lines.series, lines.fields, strict=True)
        raise RejectedError(
            "PostgreSQL cannot store a name containing NUL",
            [row for row, pair in enumerate(rows) if pair in bad],
        )
