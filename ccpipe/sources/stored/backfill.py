"""The content of a store, or of files, as a source that resumes where it stopped."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ccpipe.atomic_file import replace_content
from ccpipe.config import read_secret
from ccpipe.errors import (
    ConfigError,
    DeniedError,
    MissingExtra,
    MissingInputError,
    UnavailableError,
    system_reason,
)
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import Message, Uint, Value
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.sources.file import FileSource, Format, sizes_of

WINDOW = 60 * 10**9
"""Nanoseconds read at once; also how much is written again after a crash."""

BATCH = 10_000
"""Records handed over at once."""

TAGS = ("cluster", "hostname", "type", "type_id", "stype", "stype_id")

COLUMNS = 'name, field, {tags}, tags, {time}, value, "int", uint, bool, text'
"""Columns of a stored row, as ``message_of`` takes them."""


Reader = Callable[[int, int], AsyncIterator[Sequence[Message]]]
"""Yields the messages of a time range."""


class StoredRange(NamedTuple):
    """A store that can be read by time range."""

    read: Reader
    first: int
    """The earliest time; nanoseconds since the epoch."""
    last: int


EARLIEST, LATEST = -(2**63), 2**63 - 1
"""Bounds of an open selection; a line without a time is the earliest."""


@dataclass(frozen=True)
class BackfillSelection:
    """The records to read."""

    start: int
    """Nanoseconds since the epoch."""
    end: int
    """End of the range, exclusive."""
    nodes: frozenset[str] = frozenset()
    """Empty for all, including records of no node."""


class BackfillState(msgspec.Struct, forbid_unknown_fields=True):
    """Progress of a backfill."""

    source: str
    """Source and destination, as the user named them."""
    start: int
    end: int
    nodes: list[str]
    done: int
    """Everything before this is written: a time in nanoseconds since the epoch, or a line."""


class BackfillCheckpoint:
    """The state of a backfill, in a file if there is one."""

    def __init__(
        self, path: Path | None, name: str, selection: BackfillSelection, done: int
    ) -> None:
        """Load the file at `path`; without one start at `done`.

        Raises ConfigError if it is the checkpoint of another backfill.
        """
        self.path = path
        self.state = BackfillState(
            name, selection.start, selection.end, sorted(selection.nodes), done
        )
        if path is not None and path.exists():
            self._resume(path)

    def _resume(self, path: Path) -> None:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=BackfillState)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{path}: {error}") from None
        if (found.source, found.nodes) != (self.state.source, self.state.nodes):
            raise ConfigError(f"{path} is the checkpoint of another backfill: name another file")
        self.state.done = found.done  # while `end` advances if a bridge writes to the store

    def write(self) -> None:
        """Write the state to the file atomically, synced; raises UnavailableError."""
        if self.path is None:
            return
        try:
            replace_content(self.path, msgspec.json.encode(self.state))
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None


def message_of(row: Sequence[Any]) -> Message:
    name, field, *own, tags, time, value, exact, unsigned, boolean, text = row
    named = {
        tag.replace("_id", "-id"): said
        for tag, said in zip(TAGS, own, strict=True)
        if said is not None
    }
    others: Mapping[str, str] = msgspec.json.decode(tags) if isinstance(tags, str) else tags
    found: Value = value
    if text is not None:
        found = text
    elif boolean is not None:
        found = boolean
    elif unsigned is not None:
        found = Uint(int(unsigned))
    elif exact is not None:
        found = exact
    return Message(name, dict(sorted((named | dict(others or {})).items())), found, time, field)


class BackfillSource(Source[Lines]):
    """Yields stored messages in time order, window by window; a file records acknowledged ones."""

    gives = Lines

    def __init__(
        self,
        reader: Reader,
        selection: BackfillSelection,
        *,
        name: str,
        checkpoint: Path | None = None,
        rate: int = 0,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read a selection, at most `rate` records per second; 0 means no limit.

        `name` identifies what is read; `on_progress` is called with what is written. Raises
        ConfigError if the checkpoint is of another backfill.
        """
        self.reader = reader
        self.selection = selection
        self.rate = rate
        self.on_progress = on_progress
        self._checkpoint = BackfillCheckpoint(checkpoint, name, selection, selection.start)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        """Yield the messages, and after each window an empty batch that records it."""
        for begin in range(self._checkpoint.state.done, self.selection.end, WINDOW):
            end = min(begin + WINDOW, self.selection.end)
            async for messages in self.reader(begin, end):
                if self._stopped.is_set():
                    return
                yield Batch(to_lines(messages), self._nothing, self._checkpoint.state.source)
                if self.rate:
                    await wait_for_event(self._stopped, len(messages) / self.rate)
            yield Batch(Lines(), self._noting(end), self._checkpoint.state.source)

    async def _nothing(self) -> None:
        """Do nothing: the end of the window is recorded instead."""

    def _noting(self, done: int) -> Any:
        async def note() -> None:
            self._checkpoint.state.done = done
            await asyncio.to_thread(self._checkpoint.write)
            span = self.selection.end - self.selection.start
            part = (done - self.selection.start) / span
            self.on_progress(f"{part:.1%} of the time is written")

        return note


@contextlib.asynccontextmanager
async def from_parquet(directory: Path, nodes: frozenset[str]) -> AsyncGenerator[StoredRange]:
    """Yield a reader for a directory of Parquet files.

    Reading raises UnavailableError if a bridge's compaction removed files meanwhile: start again.
    """
    import duckdb

    from ccpipe.sources.stored import parquet_tables

    time = "(epoch_us(time) * 1000 + coalesce(ns, 0))"
    columns = COLUMNS.format(tags=", ".join(TAGS), time=time)
    chosen = " AND hostname IN (SELECT unnest($nodes))" if nodes else ""
    sql = (
        f"SELECT {columns} FROM samples WHERE date BETWEEN $first::DATE AND $last::DATE"  # noqa: S608
        f" AND {time} >= $begin AND {time} < $end{chosen} ORDER BY time, ns"
    )

    async def read(begin: int, end: int) -> AsyncIterator[Sequence[Message]]:
        given: dict[str, Any] = {"begin": begin, "end": end, "first": _day(begin)}
        given |= {"last": _day(end - 1)} | ({"nodes": sorted(nodes)} if nodes else {})
        with parquet_tables.tables(directory) as connection:
            try:
                cursor = await asyncio.to_thread(connection.execute, sql, given)
            except duckdb.IOException as error:
                raise UnavailableError(f"{directory}: {error}") from None
            while rows := cursor.fetchmany(BATCH):
                yield [message_of(row) for row in rows]

    with parquet_tables.tables(directory) as connection:
        ask = f"SELECT min({time}), max({time}) FROM samples"  # noqa: S608
        first, last = connection.execute(ask).fetchall()[0]
    yield StoredRange(read, first or 0, last or 0)


@contextlib.asynccontextmanager
async def from_postgres(
    url: str, password_file: str, nodes: frozenset[str]
) -> AsyncGenerator[StoredRange]:
    """Yield a reader for the view ``messages`` of a database, as one snapshot.

    Raises UnavailableError or DeniedError.
    """
    try:
        import asyncpg
    except ImportError:
        raise MissingExtra("asyncpg", "postgres") from None
    time = "((extract(epoch FROM time) * 1000000)::bigint::numeric * 1000 + ns)"
    columns = COLUMNS.format(tags=", ".join(TAGS), time=f"{time}::bigint")
    chosen = " AND hostname = ANY($3)" if nodes else ""
    # The index is on `time`, in microseconds; nanoseconds are compared exactly.
    sql = (
        f"SELECT {columns} FROM messages WHERE time >= to_timestamp($1::bigint / 1000000000)"  # noqa: S608
        f" AND time <= to_timestamp($2::bigint / 1000000000 + 1) AND isfinite(time)"
        f" AND {time} >= $1 AND {time} < $2{chosen} ORDER BY time, ns"
    )
    password = read_secret("password_file", password_file) if password_file else None
    try:
        connection = await asyncpg.connect(url, password=password)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):

                async def read(begin: int, end: int) -> AsyncIterator[Sequence[Message]]:
                    rows: list[Message] = []
                    async for row in connection.cursor(
                        sql, begin, end, *([sorted(nodes)] if nodes else []), prefetch=BATCH
                    ):
                        rows.append(message_of(row))
                        if len(rows) == BATCH:
                            yield rows
                            rows = []
                    if rows:
                        yield rows

                ask = f"SELECT min({time})::bigint, max({time})::bigint FROM messages"  # noqa: S608
                first, last = await connection.fetchrow(f"{ask} WHERE isfinite(time)")
                yield StoredRange(read, first or 0, last or 0)
        finally:
            await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        address = urlsplit(url)
        server = f"{address.hostname or 'localhost'}:{address.port or 5432}{address.path}"
        reason = system_reason(error) or type(error).__name__
        is_denied = isinstance(error, asyncpg.InvalidAuthorizationSpecificationError)
        denied_or_down = DeniedError if is_denied else UnavailableError
        raise denied_or_down(f"PostgreSQL at {server}: {reason}") from None


def _day(nanoseconds: int) -> str:
    return f"{datetime.fromtimestamp(nanoseconds // 10**9, UTC):%Y-%m-%d}"


NOTE_SECONDS = 1.0
"""Interval between writes of the checkpoint; so much is written again after a crash."""

_ALL = BackfillSelection(EARLIEST, LATEST)


class FilesSource(FileSource):
    """Yields the selected lines of files in order; acknowledged ones are recorded in a file.

    The checkpoint counts lines, valid or not, over all files together.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        selection: BackfillSelection = _ALL,
        *,
        name: str,
        format: Format | Literal["auto"] = "auto",  # noqa: A002 - as in the sink
        checkpoint: Path | None = None,
        rate: int = 0,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read a selection; see ``BackfillSource``, and MissingInputError if a file is missing."""
        super().__init__(paths=[str(path) for path in paths], format=format, rate=rate)
        for path in paths:
            if not path.is_file():
                raise MissingInputError(f"{path}: no such file")
        self.selection = selection
        self.on_progress = on_progress
        self._checkpoint = BackfillCheckpoint(checkpoint, name, selection, 0)
        self._noted = time.monotonic()

    async def __aexit__(self, *exit_: object) -> None:
        """Record what was written in the last second."""
        await asyncio.to_thread(self._checkpoint.write)

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        """Yield the lines that are not written yet; raises as ``FileSource`` does."""
        self._sizes = sizes_of(self.paths)
        lines, done = 0, self._checkpoint.state.done
        for number, path in enumerate(self.paths, 1):
            blocks = self._blocks(path)
            while (found := await self._next(blocks)) is not None:
                lines += len(found) + len(found.rejected)
                if lines > done:
                    yield Batch(self._selected(found), self._noting(lines, number), path)
                    await self._pause(len(found))
            if self._stopped.is_set():
                return

    def _selected(self, lines: Lines) -> Lines:
        """Return the lines of the selected times and nodes; without a timestamp only if all are."""
        start, end, nodes = self.selection.start, self.selection.end, self.selection.nodes
        if self.selection == _ALL:
            return lines
        series = lines.table.series
        chosen = {
            code
            for code in set(lines.series)
            if not nodes or series[code].tags.get("hostname") in nodes
        }
        pairs = zip(lines.series, lines.times, strict=True)
        return lines.take([code in chosen and start <= when < end for code, when in pairs])

    def _noting(self, lines: int, number: int) -> Callable[[], Awaitable[None]]:
        async def note() -> None:
            self._checkpoint.state.done = lines
            if time.monotonic() >= self._noted + NOTE_SECONDS:
                self._noted = time.monotonic()
                await asyncio.to_thread(self._checkpoint.write)
            count = f"{lines:,}".replace(",", " ")
            self.on_progress(f"file {number} of {len(self.paths)}, {count} lines are written")

        return note
