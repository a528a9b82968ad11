"""Sonar's envelopes into typed tables: see ``migrations/004_sonar.sql``."""

import time
from collections.abc import Sequence
from typing import Any

from ccpipe.config import Duration
from ccpipe.formats.sonar import Envelope
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.pipeline import Limits
from ccpipe.sinks.postgres.sonar_rows import COLUMNS, rows
from ccpipe.sinks.postgres.store import PostgresStore

RETENTION_SECONDS = 3600.0


class PostgresSonarSink(PostgresStore[Envelopes]):
    """Writes each batch of envelopes in one transaction, each envelope once."""

    takes = Envelopes

    limits = Limits(lines=1_000, bytes=8 * 2**20, age=1.0)

    tables = (*COLUMNS, "delivered")

    def __init__(self, *, retention: Duration = Duration(0), **database: Any) -> None:
        """Configure address and credentials; this and ``postgres`` may write to one database.

        Parameters
        ----------
        retention
            How long to keep rows; 0 keeps them forever.

        """
        super().__init__(**database)
        self.retention = float(retention)
        self._next = 0.0

    async def copy(
        self, connection: Any, records: Sequence[Envelope], keep: bytearray | None
    ) -> bool:
        if keep is not None:
            records = [record for record, is_kept in zip(records, keep, strict=True) if is_kept]
        for table, found in rows(records).items():
            await connection.copy_records_to_table(
                table, records=found, columns=COLUMNS[table], timeout=self.database.timeout
            )
        return True

    async def begin(self, connection: Any) -> None:
        """Remove old rows, once an hour."""
        if not self.retention or time.monotonic() < self._next:
            return
        for table in COLUMNS:
            await connection.execute(
                f"DELETE FROM {table} WHERE time < now() - $1 * interval '1 s'",  # noqa: S608
                self.retention,
            )
        self._next = time.monotonic() + RETENTION_SECONDS
