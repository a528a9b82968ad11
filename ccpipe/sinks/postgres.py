"""PostgreSQL by binary COPY: a table of series, a table of samples, and a view of both.

::

    SELECT time, hostname, value FROM messages
    WHERE name = 'cpu_load' AND time > now() - interval '1 hour'

The view ``messages`` has the columns of the Parquet files, and nothing is lost on the way:

- ``value`` holds every number (booleans as 0 and 1) and is null for texts; ``int``, ``uint`` and
  ``bool`` hold the exact value beside it where the line said one;
- ``time`` holds microseconds, which is what a ``timestamptz`` can, and ``ns`` the 0 to 999
  nanoseconds beyond; a line without a time has the time ``-infinity``.

A row of a double takes 52 bytes of table (seen with 15). Rows are found by time (BRIN); a site that
asks for single series over years adds an index on ``samples (series, time)``, which makes writing
slower. Series must not be deleted while a bridge runs that has written to them.
"""

import contextlib
import hashlib
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import compress, groupby, product
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from ccpipe.config import Duration, read_secret
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DeniedError,
    MissingExtra,
    RejectedError,
    UnavailableError,
)
from ccpipe.formats.lineprotocol import Lines, ValueType, to_lines
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.lineprotocol.precision import INT64_MIN, NO_TIME
from ccpipe.message import Message
from ccpipe.pipeline import Limits, Sink

try:
    import asyncpg
except ImportError:
    raise MissingExtra("asyncpg", "postgres") from None

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags that have a column of their own, named with ``_`` for ``-``; the others share ``tags``."""

TABLES = """
    CREATE TABLE series (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        key bytea NOT NULL UNIQUE,  -- BLAKE2b of all that follows: an index takes no long texts
        name text NOT NULL,
        field text NOT NULL,
        cluster text, hostname text, type text, type_id text, stype text, stype_id text,
        tags jsonb NOT NULL
    );
    CREATE TABLE samples (
        time timestamptz NOT NULL,
        value double precision,
        series integer NOT NULL,  -- no foreign key: it would be looked up for each row
        ns smallint NOT NULL,
        "int" bigint, uint numeric(20), bool boolean, text text
    );
    CREATE INDEX samples_time ON samples USING brin (time);
    CREATE VIEW messages AS
        SELECT time, ns, name, field, cluster, hostname, type, type_id, stype, stype_id, tags,
               value, "int", uint, bool, text
        FROM samples JOIN series ON series.id = samples.series;
"""

NEW_SERIES = """
    INSERT INTO series
        (key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags)
    SELECT key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags::jsonb
    FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                $7::text[], $8::text[], $9::text[], $10::text[])
      AS new (key, name, field, cluster, hostname, type, type_id, stype, stype_id, tags)
    ON CONFLICT (key) DO NOTHING
"""

COLUMNS = ("time", "value", "series", "ns", "int", "uint", "bool", "text")
"""Of ``samples``, in the order of its rows."""

MAX_SERIES = 1_000_000
"""How many ids of series are remembered before all are forgotten and asked for again."""

_Pair = tuple[int, int]
"""Numbers of a series and a field in the table that lines came with."""


class PostgresSink(Sink):
    """Writes each batch as one COPY; several bridges may share a database.

    A COPY is a transaction: all of a batch is kept or nothing. Where the connection breaks while
    the server says that it has kept it, the batch is handed over again: rows may come twice, never
    less than once.
    """

    takes = Messages

    limits = Limits(lines=50_000, bytes=8 * 2**20, age=1.0)

    def __init__(
        self,
        *,
        url: str = "postgresql://127.0.0.1/postgres",
        password_file: str = "",
        timeout: Duration = Duration(10),
    ) -> None:
        """Configure address and credentials.

        Parameters
        ----------
        url
            ``postgresql://user@host:5432/database``; of a socket ``postgresql:///db?host=/run/…``.
            ``?sslmode=verify-full&sslrootcert=…`` and ``?search_path=<schema>`` work as well.
        password_file
            File with the user's password, where the server asks for one.
        timeout
            How long each question to the server and each COPY may take.

        Raises
        ------
        ConfigError
            where the address is none, or holds a password.

        """
        try:
            address = urlsplit(url)
            is_address = address.scheme in ("postgresql", "postgres") and address.port != 0
        except ValueError:  # a port that is no number
            is_address = False
        if not is_address:
            raise ConfigError(f"url: {url!r} is not a postgresql:// address")
        if address.password or "password" in parse_qs(address.query):
            raise ConfigError("url: must not contain a password; use password_file")
        self.url = url
        self.place = f"{address.hostname or 'postgresql'}{address.path}"
        self.password_file = password_file
        self.timeout = float(timeout)
        self._connection: Any = None
        self._ids: dict[tuple[bytes, str], int] = {}  # by series' key and field

    async def check(self) -> None:
        """Check that the tables can be written, without writing.

        Raises
        ------
        UnavailableError
            where it does not answer.
        ConfigError
            where the password cannot be read or there is no such database.
        DeniedError
            where the server refuses us.

        """
        try:
            connection = await self._connect()
            try:
                may_write = await connection.fetchval(MAY_WRITE)
            finally:
                await connection.close(timeout=self.timeout)
        except _FAILURES as error:
            raise self._reported(error) from None
        if not may_write:
            raise DeniedError(f"{self.place}: no permission to write or create the tables")

    async def __aenter__(self) -> Self:
        """Connect and create the tables; raises as ``check()``, but not where the server is down.

        A server that is only down now is asked again by ``write()``.
        """
        with contextlib.suppress(UnavailableError):
            await self._open()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(*_FAILURES):
                await self._connection.close(timeout=self.timeout)
        self._drop()

    async def write(self, records: Sequence[Message]) -> None:
        """Copy the records into the table, all or none.

        Raises
        ------
        UnavailableError
            where the server does not answer, has no space or is read-only.
        RejectedError
            naming the records with the character NUL, which PostgreSQL keeps in no text.
        DeniedError
            where the server refuses us.
        EncodeError
            where a message could not be written as a line either.

        """
        lines = to_lines(records)
        if not len(lines):
            return
        if ValueType.TEXT in lines.types.tobytes():
            refuse_nul(lines)
        if self._connection is None:
            await self._open()
        try:
            ids = await self._ids_of(lines)
            await self._connection.copy_to_table(
                "samples",
                source=rows(lines, ids),
                columns=COLUMNS,
                format="binary",
                timeout=self.timeout,
            )
        except _FAILURES as error:
            reported = self._reported(error)
            if not isinstance(reported, RejectedError):  # then the connection is as good as before
                self._drop()
            raise reported from None
        except BaseException:  # cancelled half-way
            self._drop()
            raise

    async def _connect(self) -> Any:
        password = read_secret("password_file", self.password_file) if self.password_file else None
        try:
            return await asyncpg.connect(
                self.url,
                password=password,
                timeout=self.timeout,
                command_timeout=self.timeout,
                server_settings={
                    "application_name": "ccpipe",
                    # The server must time out too, or it might commit later what we send again.
                    "statement_timeout": f"{self.timeout * 1000:.0f}",
                },
            )
        except ValueError as error:  # an option in the address that the library does not know
            raise ConfigError(f"url: {error}") from None

    async def _open(self) -> None:
        """Connect, and create missing tables."""
        try:
            self._connection = await self._connect()
            async with self._connection.transaction():
                await self._connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
                if await self._connection.fetchval(f"SELECT {_INCOMPLETE}"):
                    await self._connection.execute(TABLES)
        except _FAILURES as error:
            self._drop()
            raise self._reported(error) from None
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        """Drop the connection and the ids: another server may answer next time."""
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None
        self._ids.clear()

    async def _ids_of(self, lines: Lines) -> dict[_Pair, int]:
        """Return the ids of the rows' series; new ones are created.

        That is a transaction of its own, and a short one: bridges that meet the same new series
        wait for each other only for it, and an id that is remembered is one that stays.
        """
        series, fields = lines.table.series, lines.table.fields
        ids = {
            (code, field): self._ids.get((series[code].key, fields[field]), _UNKNOWN)
            for code, field in _pairs(lines)
        }
        new = {_digest(lines, pair): pair for pair, id_ in ids.items() if id_ == _UNKNOWN}
        if new:
            found = await self._found_or_made(new, lines)
            ids |= found
            if len(self._ids) + len(found) > MAX_SERIES:
                self._ids.clear()
            for (code, field), id_ in found.items():
                self._ids[series[code].key, fields[field]] = id_
        return ids

    async def _found_or_made(self, pairs: dict[bytes, _Pair], lines: Lines) -> dict[_Pair, int]:
        ids = await self._found(list(pairs))
        missing = sorted(pairs.keys() - ids.keys())  # in one order everywhere: no deadlocks
        if missing:
            new = [(key, *_cells(lines, pairs[key])) for key in missing]
            await self._connection.execute(NEW_SERIES, *map(list, zip(*new, strict=True)))
            ids |= await self._found(missing)
        return {pairs[key]: id_ for key, id_ in ids.items()}

    async def _found(self, keys: list[bytes]) -> dict[bytes, int]:
        found = "SELECT key, id FROM series WHERE key = ANY($1::bytea[])"
        return dict(await self._connection.fetch(found, keys))

    def _reported(self, error: Exception) -> CcpipeError:
        """Translate an error of the library.

        Only a state that speaks of the rows condemns them. What may pass is tried again.
        """
        state = getattr(error, "sqlstate", None) or ""
        reason = f"{self.place}: {str(error) or type(error).__name__}"
        if state.startswith("28") or state == "42501":  # authorization, privileges
            return DeniedError(reason)
        if state in {"22021", "22P05"}:  # characters that the database's encoding does not have
            return RejectedError(reason)
        # no such database, no such schema, tables of somebody else in our place
        if state in {"3D000", "3F000", "42P07"}:
            return ConfigError(f"url: {reason}")
        return UnavailableError(reason)


_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # TimeoutError too
)

_UNKNOWN = 0  # ids begin at 1

_LOCK = 0x63637069  # any number that all bridges take: who makes the tables

# Where only some of them are there, somebody else has taken their names: making ours fails then.
_INCOMPLETE = " OR ".join(
    f"to_regclass('{name}') IS NULL" for name in ("series", "samples", "messages")
)

MAY_WRITE = f"""
    SELECT CASE WHEN {_INCOMPLETE}
        THEN coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
        ELSE has_table_privilege('samples', 'INSERT') AND has_table_privilege('series', 'INSERT')
             AND has_table_privilege('series', 'SELECT') END
"""


def refuse_nul(lines: Lines) -> None:
    """Raise RejectedError naming the rows whose text holds NUL.

    Names with NUL, which plain Influx line protocol may have, the server refuses by itself.
    """
    bad = [
        row
        for row in compress(range(len(lines)), map(ValueType.TEXT.__eq__, lines.types))
        if "\0" in lines.texts[lines.exact[row]]
    ]
    if bad:
        raise RejectedError("PostgreSQL cannot store text containing NUL", bad)


def _digest(lines: Lines, pair: _Pair) -> bytes:
    # A space in the key is escaped, so this is the only one that is not.
    key = lines.table.series[pair[0]].key + b" " + lines.table.fields[pair[1]].encode()
    return hashlib.blake2b(key, digest_size=16).digest()


def _cells(lines: Lines, pair: _Pair) -> tuple[str | None, ...]:
    name, tags, _ = lines.table.series[pair[0]]
    rest = {key: value for key, value in tags.items() if key not in TAG_COLUMNS}
    own = [tags.get(tag) for tag in TAG_COLUMNS]
    return name, lines.table.fields[pair[1]], *own, msgspec.json.encode(rest).decode()


def rows(lines: Lines, ids: dict[_Pair, int]) -> bytearray:
    """Write lines as PostgreSQL's binary COPY wants rows, those of one value type together."""
    parts: list[bytes | bytearray] = [b"PGCOPY\n\xff\r\n\0", bytes(8)]
    series = _ids_by_row(lines, ids)
    kinds = lines.types.tobytes()
    for kind in sorted(set(kinds)):
        chosen = _chooser(kinds, kind)
        count = kinds.count(kind)
        micros, beyond = _moments(chosen(lines.times))
        number = None if kind == ValueType.TEXT else _big_endian(chosen(lines.numbers))
        exact: array[Any] = chosen(lines.exact)
        shared = [micros, number, _big_endian(chosen(series)), beyond]
        match kind:
            case ValueType.INT:
                parts.append(_interleave(count, [*shared, _big_endian(exact), None, None, None]))
            case ValueType.UINT:
                parts.append(_interleave(count, [*shared, None, _numeric(exact), None, None]))
            case ValueType.BOOL:
                parts.append(_interleave(count, [*shared, None, None, bytes(iter(exact)), None]))
            case ValueType.TEXT:
                begun = _interleave(count, [*shared, None, None, None])
                parts += _ended(begun, [lines.texts[place].encode() for place in exact])
            case _:
                parts.append(_interleave(count, [*shared, None, None, None, None]))
    return bytearray().join([*parts, struct.pack(">h", -1)])


def _pairs(lines: Lines) -> set[_Pair]:
    fields = set(lines.fields)
    if len(fields) == 1:  # as of metrics: a third of the time
        return set(product(set(lines.series), fields))
    return set(zip(lines.series, lines.fields, strict=True))


def _ids_by_row(lines: Lines, ids: dict[_Pair, int]) -> "array[int]":
    if len({field for _, field in ids}) == 1:
        by_code = {code: id_ for (code, _), id_ in ids.items()}
        return array("i", list(map(by_code.__getitem__, lines.series)))
    return array("i", list(map(ids.__getitem__, zip(lines.series, lines.fields, strict=True))))


def _chooser(kinds: bytes, kind: int) -> "Callable[[array[Any]], array[Any]]":
    """Return what takes the rows of one value type out of a column."""
    if kinds.count(kind) == len(kinds):
        return lambda column: column
    mask = kinds.translate(bytes(code == kind for code in range(256)))
    return lambda column: array(column.typecode, compress(column, mask))


_YEAR_2000 = 946_684_800 * 10**6
"""When PostgreSQL's time begins, in microseconds since the epoch."""


def _moments(times: "array[int]") -> tuple[bytes, bytes]:
    """Return microseconds and the nanoseconds beyond; in a payload they come in long runs."""
    micros, beyond = [], []
    for time, run in groupby(times):
        count = len(list(run))
        if time == NO_TIME:
            whole, rest = INT64_MIN, 0  # -infinity
        else:
            whole, rest = time // 1000 - _YEAR_2000, time % 1000
        micros.append(struct.pack(">q", whole) * count)
        beyond.append(struct.pack(">h", rest) * count)
    return b"".join(micros), b"".join(beyond)


def _numeric(exact: "array[int]") -> bytes:
    """Write unsigned integers of 64 bits as ``numeric``: five digits to the base 10 000."""
    cells = array("H")
    for bits in exact:
        value = bits % 2**64
        cells.extend((5, 4, 0, 0))  # digits, weight of the first, sign, decimals to show
        cells.extend(value // 10**power % 10**4 for power in (16, 12, 8, 4, 0))
    return _big_endian(cells)


def _big_endian(column: "array[Any]") -> bytes:
    if sys.byteorder == "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()


_NULL = struct.pack(">i", -1)


def _interleave(count: int, columns: Sequence[bytes | None]) -> bytearray:
    """Write rows whose cells have one width in each column; None is a column of nulls.

    A row is copied as often as there are rows, and each byte of each column put in by one slice:
    about ten times as fast as row by row.
    """
    row = bytearray(struct.pack(">h", len(COLUMNS)))
    places = []
    for cells in columns:
        if cells is None:
            row += _NULL
            continue
        width = len(cells) // count
        row += struct.pack(">i", width)
        places += [(len(row) + byte, cells[byte::width]) for byte in range(width)]
        row += bytes(width)
    whole = row * count
    for place, cells in places:
        whole[place :: len(row)] = cells
    return whole


def _ended(begun: bytearray, texts: Sequence[bytes]) -> list[bytearray]:
    """Put a text after each row that was begun."""
    width = len(begun) // len(texts)
    return [
        begun[row * width : (row + 1) * width] + struct.pack(">i", len(text)) + text
        for row, text in enumerate(texts)
    ]
