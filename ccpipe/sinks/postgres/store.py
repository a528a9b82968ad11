"""Shared by both PostgreSQL sinks: the connection, and storing each batch completely and once.

The ids of stored messages are recorded in the transaction that stores their rows.
"""

import contextlib
import functools
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg

from ccpipe.config import Duration, mask, read_secret
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DeniedError,
    RejectedError,
    TimedOutError,
    UnavailableError,
    system_reason,
)
from ccpipe.pipeline import TimedSink
from ccpipe.records import MessageRange, Provenance, Records
from ccpipe.sinks.postgres.migrations import may_write, migrate

A_contra = TypeVar("A_contra", bound=Records, contravariant=True)

TRIES = 5
"""Immediate retries of a write after interference by another bridge or a truncation."""

MAX_RUNS = 100_000
"""Maximum number of recorded runs, about 20 MB; the oldest are removed first."""

_LOCK = 0x63637071
"""Key of the advisory lock for recording messages, shared by all bridges and held until commit."""

_OVERLAPPING = """
    SELECT consumer, first, last, since, until FROM delivered
    WHERE consumer = ANY($1::text[]) AND last >= $2 AND first <= $3
"""

_NOTE = """
    INSERT INTO delivered (consumer, first, last, since, until)
    SELECT consumer, first, last, since, until
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
      AS new (consumer, first, last, since, until)
    WHERE NOT EXISTS (
        SELECT FROM delivered AS old
        WHERE old.consumer = new.consumer AND old.last >= new.first AND old.first <= new.last
          AND old.until >= new.since AND old.since <= new.until
    )
"""

_FORGET = "DELETE FROM delivered WHERE id <= (SELECT max(id) FROM delivered) - $1"


async def overlapping(connection: Any, runs: Sequence[MessageRange]) -> list[MessageRange]:
    first, last = min(run.first for run in runs), max(run.last for run in runs)
    consumers = sorted({run.consumer for run in runs})
    rows = await connection.fetch(_OVERLAPPING, consumers, first, last)
    return [MessageRange(*row) for row in rows]


async def is_noted(connection: Any, runs: Sequence[MessageRange]) -> bool:
    """Record runs as stored; false if another bridge has stored some of them meanwhile.

    Recording is serialised by a lock and sees what others have committed: of two transactions with
    the same message one gets false, and must be rolled back.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    status: str = await connection.execute(_NOTE, *map(list, zip(*runs, strict=True)))
    return int(status.rpartition(" ")[2]) == len(runs)


Write = Callable[[bytearray | None], Awaitable[bool]]
"""Writes the records marked 1, or all if None; returns false if it must start over."""


class PostgresStore(TimedSink[A_contra]):
    """Writes each batch as one transaction; several bridges may share a database.

    A batch is stored completely or not at all. The ids of its messages are stored with it, so that
    redelivered messages, in whatever batch, are not stored again.
    """

    tables: ClassVar[Sequence[str]]

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
            File containing the user's password, if the server requires one.
        timeout
            Time limit for each query and each COPY.

        Raises
        ------
        ConfigError
            if the URL is invalid or contains a password.

        """
        self.database = Database(url, password_file, float(timeout), self.tables)
        self._noted = MAX_RUNS  # pruning is due

    @property
    def time_limit(self) -> float:
        """Time limit for each statement, in seconds; the server's own changes with reconnecting."""
        return self.database.timeout

    @time_limit.setter
    def time_limit(self, seconds: float) -> None:
        self.database.timeout = seconds

    @abstractmethod
    async def begin(self, connection: Any) -> None:
        """Perform periodic work before a batch, such as removing old rows."""

    @abstractmethod
    async def copy(self, connection: Any, records: Any, keep: bytearray | None) -> bool:
        """Copy records, or those in `keep`, in a transaction; false to start the batch over."""

    async def prepare(self, connection: Any, records: Any) -> None:
        """Create what the records need, before their transaction; refuse what has no place."""

    async def check(self) -> None:
        await self.database.check()

    async def __aenter__(self) -> Self:
        """Connect and create the tables; raises as ``check()``, but not if the server is down.

        ``write()`` retries if the server is only down now.
        """
        with contextlib.suppress(UnavailableError):
            async with self.database.using():
                pass
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await self.database.close()

    async def write(self, records: A_contra) -> None:
        """Copy the records of messages that are not stored yet into the tables, all or none."""
        ids = records.provenance if records.provenance and records.provenance.has_ids else None
        async with self.database.using() as connection:
            # First: a failure after the commit would repeat the write.
            await self._prune(connection)
            await self.begin(connection)
            copy = functools.partial(self.copy, connection, records)
            for _ in range(TRIES):
                with self.database.writing():
                    await self.prepare(connection, records)
                    if await self._is_written(connection, ids, copy):
                        return
        raise UnavailableError(f"{self.database.place}: the tables are being changed concurrently")

    async def _prune(self, connection: Any) -> None:
        """Remove the oldest runs, after every hundredth of the maximum."""
        if self._noted >= MAX_RUNS // 100:
            await connection.execute(_FORGET, MAX_RUNS)
            self._noted = 0

    async def _is_written(self, connection: Any, ids: Provenance | None, write: Write) -> bool:
        """Write what is not stored; false if nothing was written and it must start over."""
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        try:
            is_good = await (
                write(None) if ids is None else self._is_copied(connection, ids, write)
            )
        except BaseException:
            with contextlib.suppress(*FAILURES):
                await transaction.rollback()
            raise
        await (transaction.commit() if is_good else transaction.rollback())
        return is_good

    async def _is_copied(self, connection: Any, ids: Provenance, write: Write) -> bool:
        keep, runs = ids.unstored(await overlapping(connection, ids.runs()))
        if not (await write(keep)):
            return False
        self._noted += len(runs)
        return not runs or await is_noted(connection, runs)


# the connection

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # including TimeoutError
)


def place_of(url: str, option: str) -> str:
    """Return where a database is, for messages.

    Raises ConfigError, naming the option, if the address is invalid or contains a password.
    """
    try:
        address = urlsplit(url)
        is_address = address.scheme in ("postgresql", "postgres") and address.port != 0
    except ValueError:  # the port is not a number
        is_address = False
    if not is_address:
        raise ConfigError(f"{option}: {mask(url, 'url')!r} is not a postgresql:// address")
    if address.password or "password" in parse_qs(address.query):
        raise ConfigError(f"{option}: must not contain a password; use password_file")
    host, port = address.hostname or "localhost", address.port or 5432
    return f"PostgreSQL at {host}:{port}{address.path}"


class Database:
    """One database, and at most one connection to it."""

    def __init__(self, url: str, password_file: str, timeout: float, tables: Sequence[str]) -> None:
        """Check the address; raises ConfigError if it is invalid or contains a password.

        `tables` are those that are written to.
        """
        self.url = url
        self.place = place_of(url, "url")
        self.password_file = password_file
        self.timeout = timeout
        self.tables = tables
        self.connection: Any = None
        self.openings = 0
        """Number of connections made so far: each may have reached a different server."""

    async def check(self) -> None:
        """Check that the tables can be written, without writing."""
        try:
            connection = await self._connect()
            try:
                is_allowed = await connection.fetchval(may_write(self.tables))
            finally:
                await connection.close(timeout=self.timeout)
        except FAILURES as error:
            raise self._reported(error) from None
        if not is_allowed:
            raise DeniedError(f"{self.place}: no permission to write or create the tables")

    @contextlib.asynccontextmanager
    async def using(self) -> AsyncIterator[Any]:
        """Yield a connection to a database in which the tables exist; raises as ``check()`` does.

        It is kept open for the next use, unless an error left it in doubt.
        """
        try:
            if self.connection is None:
                self.connection = await self._connect()
                self.openings += 1
                await migrate(self.connection)
            yield self.connection
        except FAILURES as error:
            reported = self._reported(error)
            if not isinstance(reported, RejectedError):  # then the connection is still usable
                self._drop()
            raise reported from None
        except (RejectedError, GeneratorExit):
            raise
        except BaseException:  # cancelled midway
            self._drop()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Raise RejectedError if the database refuses rows, by a constraint or a trigger."""
        try:
            yield
        except asyncpg.PostgresError as error:
            if _is_about_rows(error):
                reason = str(error).replace("\n", "; ")  # the database's details
                raise RejectedError(f"{self.place}: {reason}") from None
            raise

    async def close(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(*FAILURES):
                await self.connection.close(timeout=self.timeout)
        self._drop()

    def _drop(self) -> None:
        if self.connection is not None:
            self.connection.terminate()
        self.connection = None

    async def _connect(self) -> Any:
        password = read_secret("password_file", self.password_file) if self.password_file else None
        milliseconds = f"{self.timeout * 1000:.0f}"
        try:
            return await asyncpg.connect(
                self.url,
                password=password,
                timeout=self.timeout,
                command_timeout=self.timeout,
                server_settings={
                    "application_name": "ccpipe",
                    # The server must time out too, or it might commit later what is sent again,
                    # and block others while this process is stalled in a transaction.
                    "statement_timeout": milliseconds,
                    "idle_in_transaction_session_timeout": milliseconds,
                    # A plan for any number of series reads the whole table to find a few.
                    "plan_cache_mode": "force_custom_plan",
                },
            )
        except ValueError as error:  # an option in the URL that the library does not know
            raise ConfigError(f"url: {error}") from None

    def _reported(self, error: Exception) -> CcpipeError:
        """Translate an error of the library; it is retried if it may be temporary."""
        return explained(error, self.place, "url", _UNUSABLE)


_UNUSABLE = ("3D000", "3F000", "42P07")
"""Error states: no such database or schema, or foreign tables with our names."""


def explained(error: Exception, place: str, option: str, unusable: Collection[str]) -> CcpipeError:
    """Return the error of ours for one of ``FAILURES``, which names the place of the database.

    It is a ConfigError about `option` for the error states in `unusable`.
    """
    state = getattr(error, "sqlstate", None) or ""
    reason = f"{place}: {system_reason(error) or type(error).__name__}"
    if state.startswith("28") or state == "42501":  # authorization, privileges
        return DeniedError(reason)
    if state in unusable:
        return ConfigError(f"{option}: {reason}")
    if isinstance(error, TimeoutError | asyncpg.QueryCanceledError):
        return TimedOutError(reason)
    return UnavailableError(reason)


_ABOUT_ROWS = ("22", "23", "44", "45", "P0")
"""Classes of error states: data, constraints, checks of views, a site's own, PL/pgSQL's."""
_EXHAUSTED = "2200H"
"""A sequence has no further number, which is not the fault of a row."""


def _is_about_rows(error: asyncpg.PostgresError) -> bool:
    state = error.sqlstate or ""
    if not state.startswith(_ABOUT_ROWS) or state == _EXHAUSTED:
        return False
    if error.schema_name == "pg_catalog":  # another bridge creates the same table
        return False
    # A partition that was dropped meanwhile is reported like a constraint, but has no name.
    is_check = isinstance(error, asyncpg.CheckViolationError)
    return not (is_check and error.table_name and not error.constraint_name)
