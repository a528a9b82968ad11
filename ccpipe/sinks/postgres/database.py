"""The connection to a database: opened when it is needed, its errors told in ccpipe's words."""

import contextlib
from collections.abc import AsyncIterator, Sequence
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
)
from ccpipe.sinks.postgres.migrations import may_write, migrate

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # TimeoutError too
)


class Database:
    """One database, and at most one connection to it."""

    def __init__(self, url: str, password_file: str, timeout: float, tables: Sequence[str]) -> None:
        """Take an address; raises ConfigError where it is none, or holds a password.

        `tables` are those that are written to.
        """
        try:
            address = urlsplit(url)
            is_address = address.scheme in ("postgresql", "postgres") and address.port != 0
        except ValueError:  # a port that is no number
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
        """How often it was connected to: another server may answer each time."""

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
                is_allowed = await connection.fetchval(may_write(self.tables))
            finally:
                await connection.close(timeout=self.timeout)
        except FAILURES as error:
            raise self._reported(error) from None
        if not is_allowed:
            raise DeniedError(f"{self.place}: no permission to write or create the tables")

    @contextlib.asynccontextmanager
    async def using(self) -> AsyncIterator[Any]:
        """Yield a connection to a database whose tables are there; raises as ``check()`` does.

        It stays open for the next time, unless something failed that leaves it in doubt.
        """
        try:
            if self.connection is None:
                self.connection = await self._connect()
                self.openings += 1
                await migrate(self.connection)
            yield self.connection
        except FAILURES as error:
            reported = self._reported(error)
            if not isinstance(reported, RejectedError):  # then the connection is as good as before
                self._drop()
            raise reported from None
        except (RejectedError, GeneratorExit):
            raise
        except BaseException:  # cancelled half-way
            self._drop()
            raise

    async def close(self) -> None:
        """Close the connection."""
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
                    # The server must time out too, or it might commit later what we send again,
                    # and hold back others while we stand still in a transaction.
                    "statement_timeout": milliseconds,
                    "idle_in_transaction_session_timeout": milliseconds,
                },
            )
        except ValueError as error:  # an option in the address that the library does not know
            raise ConfigError(f"url: {error}") from None

    def _reported(self, error: Exception) -> CcpipeError:
        """Translate an error of the library.

        Only a state that speaks of the rows condemns them. What may pass is tried again.
        """
        state = getattr(error, "sqlstate", None) or ""
        reason = f"{self.place}: {str(error) or type(error).__name__}"
        if state.startswith("28") or state == "42501":  # authorization, privileges
            return DeniedError(reason)
        # characters that the database's encoding does not have, times that a hypertable does not
        if state in {"22021", "22P05", "22008"}:
            return RejectedError(reason)
        # no such database, no such schema, tables of somebody else in our place
        if state in {"3D000", "3F000", "42P07"}:
            return ConfigError(f"url: {reason}")
        if isinstance(error, TimeoutError | asyncpg.QueryCanceledError):
            return TimedOutError(reason)
        return UnavailableError(reason)
