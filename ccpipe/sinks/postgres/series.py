"""Ids of series in ``samples``: queried once, then cached."""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import compress
from typing import Any, TypeAlias

import msgspec
import numpy as np

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.sinks.postgres.rows import Array, rows_by_field

# All keys in one parameter and all ids in one result: the library is slow with long lists.
FOUND = """
    SELECT string_agg(int4send(coalesce(id, 0)), '' ORDER BY place)
    FROM (SELECT place, substring($1::bytea FROM 16 * place + 1 FOR 16) AS key
          FROM generate_series(0, length($1::bytea) / 16 - 1) AS place) AS asked
    LEFT JOIN series USING (key)
"""

# The same order everywhere prevents deadlocks. The server takes apart encodings without escapes: in
# Python that would be 5 of 7 µs for each new series.
NEW_SERIES = """
    WITH new AS MATERIALIZED (
        SELECT substring($1::bytea FROM 16 * place::integer - 15 FOR 16) AS key, field,
               coalesce(series->>'name', split_part(plain, ',', 1)) AS name,
               coalesce(series->'tags', jsonb_object(string_to_array(
                   replace(substr(plain, strpos(plain || ',', ',') + 1), '=', ','), ','
               ))) AS tags
        FROM ROWS FROM (jsonb_array_elements($2), jsonb_array_elements_text($3)) WITH ORDINALITY
                 AS given (series, field, place),
             LATERAL (SELECT series #>> '{}') AS encoding (plain)
    )
    INSERT INTO series (key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags)
    SELECT key, name, field, tags->>'cluster', tags->>'hostname', tags->>'type',
           tags->>'type-id', tags->>'stype', tags->>'stype-id',
           tags - '{cluster,hostname,type,type-id,stype,stype-id}'::text[]
    FROM new ORDER BY key
    ON CONFLICT (key) DO NOTHING
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

Pairs: TypeAlias = Array
"""Codes of series and fields, in the table of the lines: a row of two for each."""


class SeriesIds:
    """Ids of the series of one ``SeriesTable``, which lives across payloads.

    It stores one id per series and field seen: no more than the table has.
    """

    def __init__(self) -> None:
        self.table: SeriesTable | None = None
        self.by_field: dict[int, Array] = {}
        """For each field code, the id of each series by its code; 0 if unknown."""

    def forget(self) -> None:
        self.table = None
        self.by_field.clear()

    def prepare(self, lines: Lines) -> Pairs:
        """Make room for the series of some lines; return those without an id."""
        if lines.table is not self.table:
            self.forget()
            self.table = lines.table
        size, unknown = len(lines.table), [np.empty((0, 2), np.int32)]
        for field, rows in rows_by_field(lines):
            ids = self.by_field.get(field, np.empty(0, np.int32))
            if len(ids) < size:  # doubled each time, so that growth is cheap
                ids = np.append(ids, np.zeros(max(size - len(ids), len(ids)), np.int32))
                self.by_field[field] = ids
            codes = np.asarray(lines.series)[rows]
            new = np.unique(codes[ids[codes] == 0])
            unknown.append(np.stack([new, np.full_like(new, field)], axis=1))
        return np.concatenate(unknown)

    async def ask(self, connection: Any, lines: Lines, pairs: Pairs) -> None:
        """Query the ids of some series, creating new ones.

        This is a separate, short transaction: bridges that create the same series block each other
        only for its duration, and a cached id is always a committed one.
        """
        codes, fields = pairs.T.tolist()
        encodings = list(map(lines.table.codes.key, codes))
        names = [lines.table.fields[field] for field in fields]
        _refuse_nul(lines, pairs, encodings, names)
        keys = list(map(_digest, encodings, names))
        known_by = b"".join(keys)
        ids = _numbers(await connection.fetchval(FOUND, known_by))
        if not ids.all():
            is_new = ids == 0
            series = [
                _parts(lines.table, code) if b"\\" in encoding else encoding.decode()
                for code, encoding in compress(zip(codes, encodings, strict=True), is_new)
            ]
            await connection.execute(
                NEW_SERIES,
                b"".join(compress(keys, is_new)),
                msgspec.json.encode(series).decode(),
                msgspec.json.encode(list(compress(names, is_new))).decode(),
            )
            ids = _numbers(await connection.fetchval(FOUND, known_by))
        for field in set(pairs[:, 1].tolist()):
            chosen = pairs[:, 1] == field
            self.by_field[field][pairs[chosen, 0]] = ids[chosen]


def _refuse_nul(
    lines: Lines, pairs: Pairs, encodings: Sequence[bytes], fields: Sequence[str]
) -> None:
    """Raise RejectedError for names with NUL, which Influx line protocol allows."""
    if b"\0" not in b"".join(encodings) and not any("\0" in field for field in set(fields)):
        return
    bad = {
        tuple(pair)
        for pair, encoding, field in zip(pairs.tolist(), encodings, fields, strict=True)
        if b"\0" in encoding or "\0" in field
    }
    rows = enumerate(zip(lines.series, lines.fields, strict=True))
    raise RejectedError(
        "PostgreSQL cannot store a name containing NUL", [row for row, pair in rows if pair in bad]
    )


_EMPTY = blake2b(digest_size=16)
"""Copied for each digest, which takes half the time of making one."""


def _digest(encoding: bytes, field: str) -> bytes:
    """Return what identifies a series and field in the database."""
    found = _EMPTY.copy()
    found.update(encoding)
    # Spaces in the encoding are escaped, so this separator is unambiguous.
    found.update(b" " + field.encode())
    return found.digest()


def _parts(table: SeriesTable, code: int) -> dict[str, object]:
    name, tags, _ = table.series[code]
    return {"name": name, "tags": tags}


def _numbers(answer: bytes) -> Array:
    """Return the ids of a result; 0 for series that do not exist."""
    return np.frombuffer(answer, ">i4")
