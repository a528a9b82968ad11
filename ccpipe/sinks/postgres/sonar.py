"""Sonar's envelopes into typed tables: see ``migrations/004_sonar.sql``."""

import contextlib
import functools
import time
from collections.abc import Sequence
from typing import Any, Self

from ccpipe.config import Duration
from ccpipe.errors import UnavailableError
from ccpipe.formats.sonar import Envelope
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.pipeline import Limits, MessageIds, Sink
from ccpipe.sinks.postgres.database import Database
from ccpipe.sinks.postgres.delivered import Once
from ccpipe.sinks.postgres.sonar_rows import COLUMNS, rows

TRIES = 5
"""How often a write begins anew at once because another bridge came between."""

RETENTION_SECONDS = 3600.0


class PostgresSonarSink(Sink):
    """Writes each batch of envelopes in one transaction, each envelope once."""

    takes = Envelopes

    limits = Limits(lines=1_000, bytes=8 * 2**20, age=1.0)

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
            As that of the sink ``postgres``; both may write to one database.
        password_file
            File with the user's password, where the server asks for one.
        timeout
            How long each question to the server may take.
        retention
            How long rows are kept; 0 keeps them for ever.

        Raises
        ------
        ConfigError
            where the address is none, or holds a password.

        """
        self.database = Database(url, password_file, float(timeout), (*COLUMNS, "delivered"))
        self.retention = float(retention)
        self._once = Once()
        self._next = 0.0

    async def check(self) -> None:
        """Check that the tables can be written, without writing; raises as ``Database.check``."""
        await self.database.check()

    async def __aenter__(self) -> Self:
        """Connect and create the tables; a server that is down is asked again later."""
        with contextlib.suppress(UnavailableError):
            async with self.database.using():
                pass
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the connection."""
        await self.database.close()

    async def write(self, records: Sequence[Envelope]) -> None:
        """Write the envelopes, all or none.

        Raises
        ------
        UnavailableError
            where the server does not answer, has no space or is read-only.
        RejectedError
            where a text has the character NUL, which PostgreSQL does not store.
        DeniedError
            where the server refuses us.

        """
        await self._write(records, None)

    async def write_once(self, records: Sequence[Envelope], ids: MessageIds) -> None:
        """Write those envelopes whose messages are not stored yet; raises as ``write``."""
        await self._write(records, ids)

    async def _write(self, records: Sequence[Envelope], ids: MessageIds | None) -> None:
        async with self.database.using() as connection:
            await self._once.prune(connection)
            await self._remove_old(connection)
            copy = functools.partial(self._copy, connection, records)
            for _ in range(TRIES):
                if await self._once.is_written(connection, ids, copy):
                    return
        raise UnavailableError(f"{self.database.place}: another bridge writes the same messages")

    async def _copy(
        self, connection: Any, records: Sequence[Envelope], keep: bytearray | None
    ) -> bool:
        if keep is not None:
            records = [record for record, is_kept in zip(records, keep, strict=True) if is_kept]
        for table, found in rows(records).items():
            await connection.copy_records_to_table(
                table, records=found, columns=COLUMNS[table], timeout=self.database.timeout
            )
        return True

    async def _remove_old(self, connection: Any) -> None:
        if not self.retention or time.monotonic() < self._next:
            return
        for table in COLUMNS:
            await connection.execute(
                f"DELETE FROM {table} WHERE time < now() - $1 * interval '1 s'",  # noqa: S608
                self.retention,
            )
        self._next = time.monotonic() + RETENTION_SECONDS
