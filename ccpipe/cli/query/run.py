"""One SQL query over Parquet files: restricted to its tables, streamed, stopped by Ctrl-C."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from ccpipe.cli.query.writers import ResultWriter
from ccpipe.errors import CcpipeError, DataError, MissingExtra, UnavailableError, UsageError
from ccpipe.sources.stored import is_delta_table
from ccpipe.sources.stored.parquet_tables import TABLES, TRIES, make_tables, restrict
from ccpipe.terminal import Progress, format_duration, note, plural

if TYPE_CHECKING:
    from ccpipe.formats.delta import DeltaAddress

try:
    import duckdb
except ImportError:
    raise MissingExtra("duckdb", "query") from None

TICK = 0.2
"""Seconds between two looks at a running query, for its progress and for Ctrl-C."""

P = ParamSpec("P")
T = TypeVar("T")

_READS_ONLY = "`ccpipe query` only reads its tables; --unsafe allows any statement"
_NO_PIVOT = "PIVOT needs the values as a list, as in ON name IN ('cpu_load', 'mem_used')"
_OUTSIDE = f"The tables are {', '.join(TABLES)}; --unsafe allows other files"
_ERRORS_OF_DATA = ("IO", "Invalid", "Serialization", "INTERNAL")


class QueryRun:
    """A query of stored tables, whose rows go to a writer as they are found."""

    def __init__(self, where: str, text: str, writer: ResultWriter, *, is_unsafe: bool) -> None:
        """Query Parquet files or a Delta table: `where` is a directory, or ``s3://…``.

        Raises ConfigError for another kind of address.
        """
        self.where = where
        self.text = text
        self.writer = writer
        self.is_unsafe = is_unsafe
        self._files: list[str] = []
        self._unreadable: dict[str, str] = {}
        self._delta = _delta_address(where)

    def run(self) -> list[str]:
        """Write the result; return the files that could not be read and were left out.

        Raises MissingInputError without files, UsageError if the statement is wrong or refused,
        DataError if a file is damaged, and UnavailableError if files were merged meanwhile.
        """
        for _ in range(TRIES):
            with _connect() as connection, _Worker(connection) as worker:
                try:
                    self._stream(connection, worker)
                    return list(self._unreadable)
                except (_DatabaseError, UsageError) as error:
                    if all(map(_exists, self._files)):
                        if isinstance(error, UsageError):
                            raise
                        raise worker.call(self._cause, connection, str(error)) from None
            if self.writer.rows:
                break
        reason = "files were merged while the query read them; try again"
        raise UnavailableError(f"{self.where}: {reason}")

    def _stream(self, connection: duckdb.DuckDBPyConnection, worker: "_Worker") -> None:
        self._files, unreadable = worker.call(self._make_tables, connection)
        for path in unreadable.keys() - self._unreadable.keys():
            note(f"{path} is left out: {unreadable[path]}", "yellow")
        self._unreadable |= unreadable
        if not self.is_unsafe:
            restrict(connection, self._files)
        relation = worker.call(self._bind, connection)
        if relation is None:
            return
        names = relation.columns
        columns = self.writer.columns(names, [str(kind) for kind in relation.types])
        selected = worker.call(relation.project, ", ".join(columns))
        reader = worker.call(selected.to_arrow_reader, self.writer.batch_rows)
        batch = worker.call(next, reader, None)
        self.writer.begin(names, reader.schema)
        while batch is not None:
            self.writer.write(batch)
            worker.status = f"{plural(self.writer.rows, 'row')}, "
            batch = worker.call(next, reader, None)
        self.writer.end()

    def _make_tables(
        self, connection: duckdb.DuckDBPyConnection
    ) -> tuple[list[str], dict[str, str]]:
        if self._delta is None:
            return make_tables(connection, Path(self.where))
        from ccpipe.sources.stored.delta_tables import make_delta_tables

        make_delta_tables(connection, self._delta)
        return [], {}

    def _bind(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation | None:
        """Return the result of the statement, not yet computed; raises UsageError."""
        try:
            statements = connection.extract_statements(self.text)
            if self.is_unsafe:
                for statement in statements[:-1]:
                    connection.execute(statement)
                return connection.sql(statements[-1]) if statements else None
            if len(statements) != 1:
                raise UsageError(f"expected one SQL statement, not {len(statements)}")
            _check_reads(statements[0])
            # The WITH clause of a statement can contain COPY ... TO, that of a subquery cannot.
            return connection.sql(f"FROM (\n{_without_semicolon(self.text)}\n)")
        except (duckdb.PermissionException, duckdb.CatalogException) as error:
            hint = "" if self.is_unsafe else f"\n{_OUTSIDE}"
            raise UsageError(f"{str(error).strip()}{hint}") from None
        except duckdb.IOException:
            raise
        except duckdb.Error as error:
            hint = f"\n{_READS_ONLY}" if "a COPY statement" in str(error) else ""
            raise UsageError(f"{str(error).strip()}{hint}") from None

    def _cause(self, connection: duckdb.DuckDBPyConnection, reason: str) -> CcpipeError:
        """Return the error to raise for one of DuckDB; searches for the file that is damaged."""
        if reason.startswith("Out of Memory"):
            return UnavailableError(reason.splitlines()[0])
        named = [path for path in self._files if path in reason]
        kind, is_named, _ = reason.partition(" Error: ")
        if not named and is_named and kind not in _ERRORS_OF_DATA:
            hint = f"\n{_OUTSIDE}" if reason.startswith("Permission") else ""
            return UsageError(f"{reason}{hint}")
        if self._delta is not None:
            return UnavailableError(f"{self.where}: {reason}")
        for path in named or self._files:
            try:
                connection.execute("SELECT max(hash(COLUMNS(*))) FROM read_parquet(?)", [path])
            except duckdb.Error as error:
                return DataError(f"{path}: damaged: {str(error).strip().splitlines()[0]}")
        return DataError(reason)


def _delta_address(where: str) -> "DeltaAddress | None":
    if "://" not in where and not is_delta_table(Path(where)):
        return None
    from ccpipe.formats.delta import DeltaAddress

    return DeltaAddress(where, option="--dir")


@contextlib.contextmanager
def _connect() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection that stores what exceeds the memory in the directory of temporary files.

    DuckDB's default is the current directory.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ccpipe-query-") as directory,
        duckdb.connect() as connection,
    ):
        connection.execute("SET temp_directory = ?", [directory])
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
        yield connection


class _DatabaseError(Exception):
    """DuckDB failed; the message is its own."""


class _Worker:
    """Calls DuckDB in a thread, so that the main thread gets Ctrl-C and shows the progress.

    `status` is the beginning of the progress line.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.status = ""
        self._connection = connection
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="duckdb")
        self._progress = Progress()
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._progress.clear()
        self._pool.shutdown()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that uses DuckDB; an interrupt of the main thread stops it at once."""
        future = self._pool.submit(function, *args, **kwargs)
        try:
            while not wait([future], TICK).done:
                self._show()
        except BaseException:
            while not wait([future], TICK / 10).done:
                self._connection.interrupt()
            raise
        if sys.stdout.isatty():
            self._progress.clear()  # rows are printed there
        else:
            self._show()
        try:
            return future.result()
        except (duckdb.Error, OSError) as error:
            raise _DatabaseError(str(error).strip()) from None

    def _show(self) -> None:
        percent = self._connection.query_progress()
        done = f"{percent:.0f} %, " if percent > 0 else ""
        seconds = format_duration(time.monotonic() - self._started)
        self._progress.show(f"query: {self.status}{done}{seconds}")


def _check_reads(statement: duckdb.Statement) -> None:
    """Raise UsageError unless a statement is a SELECT, or short for one as DESCRIBE is."""
    try:
        kind = statement.type
    except ValueError:  # one that DuckDB's library does not know
        raise UsageError(f"this statement is refused: {_READS_ONLY}") from None
    if kind == duckdb.StatementType.MULTI:
        raise UsageError(f"{_NO_PIVOT}; {_READS_ONLY}")
    if kind != duckdb.StatementType.SELECT:
        raise UsageError(f"{kind.name} is refused: {_READS_ONLY}")


def _without_semicolon(text: str) -> str:
    """Return a statement without the semicolon at its end, which a comment may follow."""
    tokens: list[tuple[int, Any]] = duckdb.tokenize(text)
    for start, kind in reversed(tokens):
        if kind != duckdb.token_type.comment:
            return text[:start] if text[start] == ";" else text
    return text


def _exists(path: str) -> bool:
    return Path(path).exists()
