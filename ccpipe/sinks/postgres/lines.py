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
slower. Series must not be deleted while a bridge runs that has written to them; both tables may
be truncated, or renamed for a moment.
"""

import contextlib
import functools
from collections.abc import Sequence
from itertools import compress
from typing import Any, Self

from ccpipe.config import Duration
from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, ValueType, to_lines
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Limits, MessageIds, Sink
from ccpipe.sinks.postgres.database import Database
from ccpipe.sinks.postgres.delivered import Once
from ccpipe.sinks.postgres.migrations import TABLES
from ccpipe.sinks.postgres.partitions import Partitions
from ccpipe.sinks.postgres.rows import COLUMNS, days, rows
from ccpipe.sinks.postgres.series import Generation, SeriesIds, generation

TRIES = 5
"""How often a write begins anew at once because another bridge, or a truncation, came between."""


class PostgresSink(Sink):
    """Writes each batch as one COPY; several bridges may share a database.

    A batch is a transaction: all of it is kept or nothing. The ids of its messages are kept with
    it, so that what is delivered again, in whatever batch, is not stored again.
    """

    takes = Messages

    limits = Limits(lines=50_000, bytes=8 * 2**20, age=1.0)

    stores_once = True

    def __init__(
        self,
        *,
        url: str = "postgresql://127.0.0.1/postgres",
        password_file: str = "",
        timeout: Duration = Duration(10),
        retention: Duration = Duration(0),
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
        retention
            How long days are kept: their partitions are dropped then. 0 keeps them for ever.

        Raises
        ------
        ConfigError
            where the address is none, or holds a password.

        """
        self.database = Database(url, password_file, float(timeout), TABLES)
        self._ids = SeriesIds()
        self._partitions = Partitions(float(retention))
        self._once = Once()
        self._generation: Generation | None = None
        self._opening = 0

    async def check(self) -> None:
        """Check that the tables can be written, without writing; raises as ``Database.check``."""
        await self.database.check()

    async def __aenter__(self) -> Self:
        """Connect and create the tables; raises as ``check()``, but not where the server is down.

        A server that is only down now is asked again by ``write()``.
        """
        with contextlib.suppress(UnavailableError):
            async with self.database.using():
                pass
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the connection."""
        await self.database.close()

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
        await self._write(records, None)

    async def write_once(self, records: Sequence[Message], ids: MessageIds) -> None:
        """Copy those records whose messages are not stored yet; raises as ``write``."""
        await self._write(records, ids)

    async def _write(self, records: Sequence[Message], ids: MessageIds | None) -> None:
        lines = to_lines(records)
        if ValueType.TEXT in lines.types.tobytes():
            refuse_nul(lines)
        if not len(lines):
            return
        async with self.database.using() as connection:
            if self._opening != self.database.openings:
                self._forget()
                self._opening = self.database.openings
            # First: what fails after a commit would have it written again.
            await self._once.prune(connection)
            await self._partitions.drop_old(connection)
            for _ in range(TRIES):
                await self._prepare(connection, lines)
                if await self._once.is_written(
                    connection, ids, functools.partial(self._copy, connection, lines)
                ):
                    return
        raise UnavailableError(f"{self.database.place}: the tables change while we write")

    def _forget(self) -> None:
        self._generation = None
        self._ids.forget()
        self._partitions.forget()

    async def _prepare(self, connection: Any, lines: Lines) -> None:
        """See that series and partitions of some lines are there."""
        await self._partitions.make(connection, days(lines))
        if pairs := self._ids.prepare(lines):
            async with connection.transaction():
                await self._ensure_generation(connection)
                pairs = self._ids.prepare(lines)
                await self._ids.ask(connection, lines, pairs)

    async def _ensure_generation(self, connection: Any) -> bool:
        """Return whether the tables are those that we know; forget what we know of others."""
        found = await generation(connection)
        if found == self._generation:
            return True
        self._forget()
        self._generation = found
        return False

    async def _copy(self, connection: Any, lines: Lines, keep: bytearray | None) -> bool:
        if not await self._ensure_generation(connection):
            return False
        if keep is not None:
            lines = lines.take(keep)
        if len(lines):
            await connection.copy_to_table(
                "samples",
                source=rows(lines, self._ids.by_field),
                columns=COLUMNS,
                format="binary",
                timeout=self.database.timeout,
            )
        return True


def refuse_nul(lines: Lines) -> None:
    """Raise RejectedError naming the rows whose text holds NUL."""
    bad = [
        row
        for row in compress(range(len(lines)), map(ValueType.TEXT.__eq__, lines.types))
        if "\0" in lines.texts[lines.exact[row]]
    ]
    if bad:
        raise RejectedError("PostgreSQL cannot store text containing NUL", bad)
