"""The numbers by which ``samples`` names its series: asked for once, and remembered."""

import hashlib
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.sinks.postgres.rows import KERNEL, Pair, unknown_pairs

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags that have a column of their own, named with ``_`` for ``-``; the others share ``tags``."""

_KEY = 16
"""Bytes of a key."""

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
        keys = digests(lines, pairs)
        ids = _numbers(await connection.fetchval(FOUND, b"".join(keys)))
        if missing := [place for place, id_ in enumerate(ids) if not id_]:
            names = [keys[place] for place in missing]
            rows = series_rows(lines.table, [pairs[place] for place in missing], names)
            await connection.execute(TEMPORARY)
            await connection.copy_to_table(
                "ccpipe_new_series", schema_name="pg_temp", source=rows, format="binary"
            )
            made = _numbers(await connection.fetchval(NEW_SERIES))
            if not all(made):  # another bridge was first with some
                made = _numbers(await connection.fetchval(FOUND, b"".join(names)))
            for place, id_ in zip(missing, made, strict=True):
                ids[place] = id_
        for (code, field), id_ in zip(pairs, ids, strict=True):
            self.by_field[field][code] = id_


def _numbers(answer: bytes) -> "array[int]":
    """Return the numbers of an answer, 0 for series that there are not."""
    numbers = array("i", answer)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def digests(lines: Lines, pairs: Sequence[Pair]) -> list[bytes]:
    """Return what each series and field is known by in the database."""
    key_of = lines.table.codes.key
    # A space in the key is escaped, so this is the only one that is not.
    fields = [b" " + name.encode() for name in lines.table.fields]
    return [
        hashlib.blake2b(key_of(code) + fields[field], digest_size=_KEY).digest()
        for code, field in pairs
    ]


def series_rows(table: SeriesTable, pairs: Sequence[Pair], keys: Sequence[bytes]) -> bytearray:
    """Write a row for each series and field, with its place and key, as binary COPY wants them."""
    if KERNEL is not None:
        written: bytearray = KERNEL.series_rows(table, pairs, keys)
        return written
    return series_rows_in_python(table, pairs, keys)


def series_rows_in_python(
    table: SeriesTable, pairs: Sequence[Pair], keys: Sequence[bytes]
) -> bytearray:
    """Write rows without the kernel."""
    parts = [b"PGCOPY\n\xff\r\n\0", bytes(8)]
    for place, ((code, field), key) in enumerate(zip(pairs, keys, strict=True)):
        name, tags, _ = table.series[code]
        own = [tags.get(tag) for tag in TAG_COLUMNS]
        others = {tag: tags[tag] for tag in tags if tag not in TAG_COLUMNS}
        texts = [
            None if text is None else text.encode() for text in (name, table.fields[field], *own)
        ]
        parts.append(struct.pack(">h", 5 + len(TAG_COLUMNS)))
        cells = (struct.pack(">i", place), key, *texts, b"\1" + msgspec.json.encode(others))
        parts += [_NULL if each is None else struct.pack(">i", len(each)) + each for each in cells]
    return bytearray().join([*parts, struct.pack(">h", -1)])


_NULL = struct.pack(">i", -1)


def refuse_nul(lines: Lines, pairs: Sequence[Pair]) -> None:
    """Raise RejectedError for the rows of series with NUL, as plain Influx line protocol allows."""
    key_of = lines.table.codes.key
    bad_fields = {place for place, name in enumerate(lines.table.fields) if "\0" in name}
    bad = {pair for pair in pairs if b"\0" in key_of(pair[0]) or pair[1] in bad_fields}
    if bad:
        rows = zip(lines.series, lines.fields, strict=True)
        raise RejectedError(
            "PostgreSQL cannot store a name containing NUL",
            [row for row, pair in enumerate(rows) if pair in bad],
        )
