"""PostgreSQL by binary COPY: a table of series, a table of samples, and a view of both.

``docs/stores/postgres.md`` describes them. A row of a double takes 52 bytes (seen with 15).
"""

from itertools import compress
from typing import Any

from ccpipe.config import Duration
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.pipeline import Limits
from ccpipe.sinks.postgres.migrations import TABLES
from ccpipe.sinks.postgres.partitions import Partitions, is_hypertable, refuse_no_time
from ccpipe.sinks.postgres.rows import COLUMNS, days, rows
from ccpipe.sinks.postgres.series import MAX_ASKED, Generation, SeriesIds, generation
from ccpipe.sinks.postgres.store import PostgresStore


class PostgresSink(PostgresStore[Lines]):
    """Writes each batch with one COPY; the view ``messages`` joins its tables for reading."""

    takes = Lines

    limits = Limits(lines=50_000, bytes=8 * 2**20, age=1.0)

    tables = TABLES

    def __init__(self, *, retention: Duration = Duration(0), **database: Any) -> None:
        """Configure address and credentials.

        Parameters
        ----------
        retention
            How long to keep each day before its partition is dropped; 0 keeps them forever.

        """
        super().__init__(**database)
        self._ids = SeriesIds()
        self._partitions = Partitions(float(retention))
        self._generation: Generation | None = None
        self._opening = 0

    async def begin(self, connection: Any) -> None:
        """Reset what was cached over another connection, and drop old partitions."""
        if self._opening != self.database.openings:
            self._forget()
            self._opening = self.database.openings
            self._partitions.is_hypertable = await is_hypertable(connection)
        await self._partitions.drop_old(connection)

    def _forget(self) -> None:
        self._generation = None
        self._ids.forget()
        self._partitions.forget()

    async def prepare(self, connection: Any, records: Lines) -> None:
        """Ensure that series and partitions of some lines exist."""
        if ValueType.TEXT in records.used_types:
            refuse_nul(records)
        if self._partitions.is_hypertable:
            refuse_no_time(records.times)
        await self._partitions.make(connection, days(records))
        unknown = self._ids.prepare(records)
        while len(unknown):
            async with connection.transaction():
                if not await self._ensure_generation(connection):
                    unknown = self._ids.prepare(records)
                await self._ids.ask(connection, records, unknown[:MAX_ASKED])
            unknown = unknown[MAX_ASKED:]

    async def _ensure_generation(self, connection: Any) -> bool:
        """Return whether the tables are those seen before; reset the caches if not."""
        found = await generation(connection)
        if found == self._generation:
            return True
        self._forget()
        self._generation = found
        return False

    async def copy(self, connection: Any, records: Lines, keep: bytearray | None) -> bool:
        """Copy lines; false if series have different ids by now."""
        if not await self._ensure_generation(connection):
            return False
        lines = records if keep is None else records.take(keep)
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
    bad = [
        row
        for row in compress(range(len(lines)), map(ValueType.TEXT.__eq__, lines.types))
        if "\0" in lines.texts[lines.exact[row]]
    ]
    if bad:
        raise RejectedError("PostgreSQL cannot store text containing NUL", bad)
