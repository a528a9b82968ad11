"""The connection to a database: opened on demand, with errors translated to ccpipe's."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg

from ccpipe.config import read_secret
from ccpipe.config.dump import mask
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DeniedError,
    RejectedError,
    TimedOutError,
    UnavailableError,
    system_reason,
)
from ccpipe.sinks.postgres.migrations import may_write, migrate

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # including TimeoutError
)


class Database:
    """One database, and at most one connection to it."""

    def __init__(self, url: str, password_file: str, timeout: float, tables: Sequence[str]) -> None:
        """Check the address; raises ConfigError if it is invalid or contains a password.

        `tables` are those that are written to.
        """
        try:
            address = urlsplit(url)
            is_address = address.scheme in ("postgresql", "postgres") and address.port != 0
        except ValueError:  # the port is not a number
            is_address = False
        if not is_address:
            raise ConfigError(f"url: {mask(url, 'url')!r} is not a postgresql:// address")
        if address.password or "password" in parse_qs(address.query):
            raise ConfigError("url: must not contain a password; use password_file")
        self.url = url
        self.place = f"{address.hostname or 'postgresql'}{address.path}"
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
                },
            )
        except ValueError as error:  # an option in the URL that the library does not know
            raise ConfigError(f"url: {error}") from None

    def _reported(self, error: Exception) -> CcpipeError:
        """Translate an error of the library; it is retried if it may be temporary."""
        state = getattr(error, "sqlstate", None) or ""
        text = system_reason(error) if isinstance(error, OSError) else str(error)
        reason = f"{self.place}: {text or type(error).__name__}"
        if state.startswith("28") or state == "42501":  # authorization, privileges
            return DeniedError(reason)
        # no such database or schema, or foreign tables with our names
        if state in {"3D000", "3F000", "42P07"}:
            return ConfigError(f"url: {reason}")
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
