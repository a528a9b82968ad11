"""PostgreSQL by binary COPY: a table of series, a table of samples, and a view of both.

``docs/stores/postgres.md`` describes them. A row of a double takes 52 bytes (seen with 15).
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import compress
from typing import Any, TypeAlias

import msgspec
import numpy as np

from ccpipe.config import Duration
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, SeriesTable, ValueType
from ccpipe.formats.lineprotocol.precision import INT64_MIN, NO_TIME
from ccpipe.pipeline import Limits
from ccpipe.sinks.postgres.migrations import TABLES
from ccpipe.sinks.postgres.partitions import Partitions, is_hypertable, refuse_no_time
from ccpipe.sinks.postgres.store import PostgresStore

Array: TypeAlias = "np.ndarray[Any, Any]"
Rows: TypeAlias = "slice | Array"


class PostgresSink(PostgresStore[Lines]):
    """Writes each batch with one COPY; the view ``messages`` joins its tables for reading."""

    takes = Lines

    limits = Limits(max_records=50_000, max_bytes=8 * 2**20, max_wait=1.0)

    tables = TABLES

    def __init__(self, *, retention: Duration = Duration(0), **database: Any) -> None:
        """Configure address and credentials.

        Parameters
        ----------
        retention
            How long to keep each day before its partition is dropped; 0 keeps them forever.

        """
        super().__init__(**database)
        self._ids = SeriesIds()
        self._partitions = Partitions(float(retention))
        self._generation: Generation | None = None
        self._opening = 0

    async def begin(self, connection: Any) -> None:
        """Reset what was cached over another connection, and drop old partitions."""
        if self._opening != self.database.openings:
            self._forget()
            self._opening = self.database.openings
            self._partitions.is_hypertable = await is_hypertable(connection)
        await self._partitions.drop_old(connection)

    def _forget(self) -> None:
        self._generation = None
        self._ids.forget()
        self._partitions.forget()

    async def prepare(self, connection: Any, records: Lines) -> None:
        """Ensure that series and partitions of some lines exist."""
        if ValueType.TEXT in records.used_types:
            refuse_nul(records)
        if self._partitions.is_hypertable:
            refuse_no_time(records.times)
        await self._partitions.make(connection, days(records))
        unknown = self._ids.prepare(records)
        while len(unknown):
            async with connection.transaction():
                if not await self._ensure_generation(connection):
                    unknown = self._ids.prepare(records)
                await self._ids.ask(connection, records, unknown[:MAX_ASKED])
            unknown = unknown[MAX_ASKED:]

    async def _ensure_generation(self, connection: Any) -> bool:
        """Return whether the tables are those seen before; reset the caches if not."""
        found = await generation(connection)
        if found == self._generation:
            return True
        self._forget()
        self._generation = found
        return False

    async def copy(self, connection: Any, records: Lines, keep: bytearray | None) -> bool:
        """Copy lines; false if series have different ids by now."""
        if not await self._ensure_generation(connection):
            return False
        lines = records if keep is None else records.take(keep)
        if len(lines):
            await connection.copy_to_table(
                "samples",
                source=memoryview(rows(lines, self._ids.by_field)),  # bytes would be a path
                columns=COLUMNS,
                format="binary",
                timeout=self.database.timeout,
            )
        return True


def refuse_nul(lines: Lines) -> None:
    bad = [
        row
        for row in compress(range(len(lines)), map(ValueType.TEXT.__eq__, lines.types))
        if "\0" in lines.texts[lines.exact[row]]
    ]
    if bad:
        raise RejectedError("PostgreSQL cannot store text containing NUL", bad)


# ids of series

# All keys in one parameter and all ids in one result: the library is slow with long lists.
FOUND = """
    SELECT string_agg(int4send(coalesce(id, 0)), '' ORDER BY place)
    FROM (SELECT place, substring($1::bytea FROM 16 * place + 1 FOR 16) AS key
          FROM generate_series(0, length($1::bytea) / 16 - 1) AS place) AS asked
    LEFT JOIN series USING (key)
"""

# The same order everywhere prevents deadlocks. The second parameter has a series on each line: its
# encoding, or a backslash and its parts as JSON if the encoding has escapes. The server takes apart
# encodings without escapes: in Python that would take 5 µs for each new series, next to 2 for all
# else.
NEW_SERIES = """
    WITH new AS MATERIALIZED (
        SELECT substring($1::bytea FROM 16 * place::integer - 15 FOR 16) AS key, field,
               coalesce(series->>'name', split_part(plain, ',', 1)) AS name,
               coalesce(series->'tags', jsonb_object(string_to_array(
                   replace(substr(plain, strpos(plain || ',', ',') + 1), '=', ','), ','
               ))) AS tags
        FROM ROWS FROM (unnest(string_to_array($2, E'\\n')), jsonb_array_elements_text($3))
                 WITH ORDINALITY AS given (plain, field, place),
             LATERAL (SELECT CASE WHEN plain LIKE '\\\\%' THEN substr(plain, 2)::jsonb END)
                 AS escaped (series)
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
        """Extend the tables of ids for some lines; return the series without an id."""
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
            new = np.sort(codes[ids[codes] == 0])
            new = new[np.diff(new, prepend=-1) != 0]  # each once
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
        # Spaces in the encodings are escaped, so this separator is unambiguous.
        endings = {field: b" " + lines.table.fields[field].encode() for field in set(fields)}
        keys = [_digest(key + endings[field]) for key, field in zip(encodings, fields, strict=True)]
        known_by = b"".join(keys)
        ids = _numbers(await connection.fetchval(FOUND, known_by))
        if not ids.all():
            is_new = (ids == 0).tolist()
            await connection.execute(
                NEW_SERIES,
                b"".join(compress(keys, is_new)),
                _as_text(
                    lines.table, list(compress(codes, is_new)), list(compress(encodings, is_new))
                ),
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


def _digest(series_and_field: bytes) -> bytes:
    """Return what identifies a series and field in the database."""
    found = _EMPTY.copy()
    found.update(series_and_field)
    return found.digest()


def _as_text(table: SeriesTable, codes: Sequence[int], encodings: Sequence[bytes]) -> str:
    """Return a line for each series: its encoding, or its parts if that has escapes."""
    text = b"\n".join(encodings)
    if b"\\" in text:  # seldom, so that plain encodings are looked at together
        pairs = zip(codes, encodings, strict=True)
        text = b"\n".join([_parts(table, code) if b"\\" in each else each for code, each in pairs])
    return text.decode()


def _parts(table: SeriesTable, code: int) -> bytes:
    """Return a backslash, and name and tags of a series as JSON."""
    name, tags, _ = table.series[code]
    return b"\\" + msgspec.json.encode({"name": name, "tags": tags})


def _numbers(answer: bytes) -> Array:
    """Return the ids of a result; 0 for series that do not exist."""
    return np.frombuffer(answer, ">i4")


# rows of samples

COLUMNS = ("time", "value", "series", "ns", "int", "uint", "bool", "text")
"""Columns of ``samples``, in row order."""

DAY = 86_400 * 10**9

_YEAR_2000 = 946_684_800 * 10**6
"""PostgreSQL's epoch, in microseconds since the Unix epoch."""

_CELLS = {"time": ">i8", "series": ">i4", "ns": ">i2"}
_CELLS_OF: dict[ValueType, dict[str, Any]] = {
    ValueType.FLOAT: {"value": ">f8"},
    ValueType.INT: {"value": ">f8", "int": ">i8"},
    ValueType.UINT: {"value": ">f8", "uint": (">u2", 9)},  # numeric: 4 of its head, 5 digits
    ValueType.BOOL: {"value": ">f8", "bool": "u1"},
    ValueType.TEXT: {},
}


def days(lines: Lines) -> set[int]:
    """Return the days of some lines, counted from the epoch; lines without a time have none."""
    times = np.asarray(lines.times)
    found = times[times != NO_TIME] // DAY
    return set(found[np.diff(found, prepend=-(2**62)) != 0].tolist())  # the first of each run


def rows_by_field(lines: Lines) -> Iterator[tuple[int, Rows]]:
    if (only := lines.only_field) is not None:
        yield only, slice(None)
        return
    fields = np.asarray(lines.fields)
    for field in np.flatnonzero(np.bincount(fields)).tolist():
        yield field, np.flatnonzero(fields == field)


def rows(lines: Lines, ids: Mapping[int, Array]) -> bytes:
    """Encode lines as rows of ``COLUMNS``; `ids` has the id of each series, by field and code."""
    series = np.empty(len(lines), np.int32)
    for field, chosen in rows_by_field(lines):
        series[chosen] = ids[field][np.asarray(lines.series)[chosen]]
    types = np.asarray(lines.types)
    parts: list[bytes | memoryview] = [b"PGCOPY\n\xff\r\n\0", bytes(8)]
    for kind in sorted(lines.used_types):
        of_kind = slice(None) if len(lines.used_types) == 1 else np.flatnonzero(types == kind)
        parts += _of_type(kind, lines, of_kind, series[of_kind])
    return b"".join([*parts, b"\xff\xff"])


def _of_type(
    kind: ValueType, lines: Lines, chosen: Rows, series: Array
) -> Iterator[bytes | memoryview]:
    times, exact = np.asarray(lines.times)[chosen], np.asarray(lines.exact)[chosen]
    rows = np.repeat(_TEMPLATES[kind], len(series))
    micros = times // 1000
    has_no_time = times == NO_TIME
    rows["time"] = np.where(has_no_time, INT64_MIN, micros - _YEAR_2000)  # or -infinity
    rows["ns"] = np.where(has_no_time, 0, times - micros * 1000)
    rows["series"] = series
    if kind != ValueType.TEXT:
        rows["value"] = np.asarray(lines.numbers)[chosen]
    match kind:
        case ValueType.INT:
            rows["int"] = exact
        case ValueType.UINT:
            rows["uint"][:, :4] = 5, 4, 0, 0  # digits, weight of the first, sign, decimals
            powers = np.array([10**16, 10**12, 10**8, 10**4, 1], np.uint64)
            rows["uint"][:, 4:] = exact.view(np.uint64)[:, None] // powers % np.uint64(10_000)
        case ValueType.BOOL:
            rows["bool"] = exact
        case ValueType.TEXT:
            texts = [lines.texts[place].encode() for place in exact]
            rows["text size"] = list(map(len, texts))
            for row, text in zip(rows, texts, strict=True):
                yield row.tobytes() + text
            return
    yield rows.data


def _template(cells: Mapping[str, Any]) -> Array:
    """Return a row with the sizes of its cells, which are -1 for null."""
    cells = {**_CELLS, **cells}
    parts: list[tuple[str, Any]] = [("cells", ">i2")]
    for name in COLUMNS:
        parts.append((f"{name} size", ">i4"))
        if name in cells:
            parts.append((name, cells[name]))
    row = np.zeros(1, np.dtype(parts))
    row["cells"] = len(COLUMNS)
    for name in COLUMNS:
        row[f"{name} size"] = row.dtype[name].itemsize if name in cells else -1
    return row


_TEMPLATES = {kind: _template(cells) for kind, cells in _CELLS_OF.items()}
