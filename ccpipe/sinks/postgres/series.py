"""Ids of series in ``samples``: queried once, then cached."""

from collections.abc import Iterable
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
        SELECT key, field, coalesce(name, split_part(plain, ',', 1)) AS name,
               coalesce(tags, jsonb_object(string_to_array(
                   replace(substr(plain, strpos(plain || ',', ',') + 1), '=', ','), ','
               ))) AS tags
        FROM jsonb_to_recordset($1)
            AS given (key text, field text, plain text, name text, tags jsonb)
    )
    INSERT INTO series (key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags)
    SELECT decode(key, 'hex'), name, field, tags->>'cluster', tags->>'hostname', tags->>'type',
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

DIGEST = 16
"""Bytes of the digest that identifies a series and field in the database."""

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
        keys = _digests(lines, pairs)
        known_by = b"".join(keys)
        ids = _numbers(await connection.fetchval(FOUND, known_by))
        if not ids.all():
            is_new = ids == 0
            new = _as_json(lines.table, pairs[is_new], compress(keys, is_new))
            await connection.execute(NEW_SERIES, new)
            ids = _numbers(await connection.fetchval(FOUND, known_by))
        for field in set(pairs[:, 1].tolist()):
            chosen = pairs[:, 1] == field
            self.by_field[field][pairs[chosen, 0]] = ids[chosen]


def _digests(lines: Lines, pairs: Pairs) -> list[bytes]:
    codes, fields = pairs.T.tolist()
    # Spaces in the key are escaped, so this separator is unambiguous.
    endings = {field: b" " + lines.table.fields[field].encode() for field in set(fields)}
    keys = map(lines.table.codes.key, codes)
    names = [key + endings[field] for key, field in zip(keys, fields, strict=True)]
    if b"\0" in b"".join(names):  # which Influx line protocol allows
        pairs_of_names = zip(codes, fields, strict=True)
        bad = {pair for pair, name in zip(pairs_of_names, names, strict=True) if b"\0" in name}
        rows = enumerate(zip(lines.series, lines.fields, strict=True))
        raise RejectedError(
            "PostgreSQL cannot store a name containing NUL",
            [row for row, pair in rows if pair in bad],
        )
    return [blake2b(name, digest_size=DIGEST).digest() for name in names]


def _as_json(table: SeriesTable, pairs: Pairs, keys: Iterable[bytes]) -> str:
    rows = []
    for code, field, key in zip(*pairs.T.tolist(), keys, strict=True):
        encoding = table.codes.key(code)
        row: dict[str, object] = {"key": key.hex(), "field": table.fields[field]}
        if b"\\" in encoding:
            row["name"], row["tags"], _ = table.series[code]
        else:
            row["plain"] = encoding.decode()
        rows.append(row)
    return msgspec.json.encode(rows).decode()


def _numbers(answer: bytes) -> Array:
    """Return the ids of a result; 0 for series that do not exist."""
    return np.frombuffer(answer, ">i4")
