"""Shared by both PostgreSQL sinks: the connection, and storing each batch completely and once."""

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

from ccpipe.config import Duration
from ccpipe.errors import UnavailableError
from ccpipe.pipeline import TimedSink
from ccpipe.records import Records
from ccpipe.sinks.postgres.database import Database
from ccpipe.sinks.postgres.delivered import Once

A_contra = TypeVar("A_contra", bound=Records, contravariant=True)

TRIES = 5
"""Immediate retries of a write after interference by another bridge or a truncation."""


class PostgresStore(TimedSink[A_contra]):
    """Writes each batch as one transaction; several bridges may share a database.

    A batch is stored completely or not at all. The ids of its messages are stored with it, so that
    redelivered messages, in whatever batch, are not stored again.
    """

    tables: ClassVar[Sequence[str]]
    """Tables that are written to."""

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
            if the address is none, or holds a password.

        """
        self.database = Database(url, password_file, float(timeout), self.tables)
        self._once = Once()

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

    def checked(self, records: Any) -> Any:
        """Return records as ``copy`` takes them; raises RejectedError or EncodeError."""
        return records

    async def prepare(self, connection: Any, records: Any) -> None:
        """Create what the records need, before their transaction."""

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
        checked = self.checked(records)
        async with self.database.using() as connection:
            # First: a failure after the commit would repeat the write.
            await self._once.prune(connection)
            await self.begin(connection)
            copy = functools.partial(self.copy, connection, checked)
            for _ in range(TRIES):
                with self.database.writing():
                    await self.prepare(connection, checked)
                    if await self._once.is_written(connection, ids, copy):
                        return
        raise UnavailableError(f"{self.database.place}: the tables are being changed concurrently")
