"""One partition of ``samples`` per day: created with its first row, dropped when old.

Where TimescaleDB was there when the tables were made, ``samples`` is its hypertable instead.
"""

import logging
import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.sinks.postgres.migrations import LOCK

log = logging.getLogger(__name__)

DAYS_BACK, DAYS_AHEAD = 3660, 2
"""Maximum distance from today in days for a separate partition; other rows share `samples_other`.

So a wrong or malicious clock does not create a table for each day of a millennium.
"""

RETENTION_SECONDS = 3600.0

_PARTITIONS = """
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhparent = to_regclass('samples')
"""

_DROP_CHUNKS = """
    SELECT drop_chunks('samples', older_than => now() - $1::float * interval '1 second')
"""
"""Chunks whose rows are all older than a number of seconds."""

_IS_ONE = """
    SELECT EXISTS (
        SELECT FROM timescaledb_information.hypertables
        WHERE to_regclass(format('%I.%I', hypertable_schema, hypertable_name))
              = to_regclass('samples')
    )
"""


async def is_hypertable(connection: Any) -> bool:
    view = "SELECT to_regclass('timescaledb_information.hypertables') IS NOT NULL"
    return bool(await connection.fetchval(view) and await connection.fetchval(_IS_ONE))


def refuse_no_time(times: Sequence[int]) -> None:
    """Raise RejectedError for rows without a time, which a hypertable cannot store."""
    if NO_TIME in times:
        raise RejectedError(
            "TimescaleDB cannot store a line without a time",
            [row for row, time in enumerate(times) if time == NO_TIME],
        )


class Partitions:
    """The existing partitions, as far as one bridge knows."""

    def __init__(self, retention: float) -> None:
        """Keep days for `retention` seconds; 0 is forever."""
        self.retention = retention
        self.is_hypertable = False
        """Whether TimescaleDB creates and names them."""
        self._known: set[int] = set()
        self._next = 0.0

    def forget(self) -> None:
        self._known.clear()

    async def make(self, connection: Any, days: Iterable[int]) -> None:
        """Create missing partitions for some days, counted from the epoch."""
        if self.is_hypertable:
            return
        today = int(time.time() // 86_400)
        for day in sorted(set(days) - self._known):
            if -DAYS_BACK <= day - today <= DAYS_AHEAD:
                await self._make(connection, date(1970, 1, 1) + timedelta(day))
            self._known.add(day)

    async def _make(self, connection: Any, day: date) -> None:
        name = f"samples_{day:%Y%m%d}"
        try:
            async with connection.transaction():
                await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
                if await connection.fetchval(
                    "SELECT relkind <> 'p' FROM pg_class WHERE oid = to_regclass('samples')"
                ):
                    return  # a table created by the site
                await connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF samples "
                    f"FOR VALUES FROM ('{day} 00:00Z') TO ('{day + timedelta(1)} 00:00Z')"
                )
        except (
            asyncpg.CheckViolationError,  # `samples_other` contains rows of that day
            asyncpg.InvalidObjectDefinitionError,  # another partition covers that day
            asyncpg.InsufficientPrivilegeError,
        ) as error:
            log.info("no partition %s, so its rows go to another one: %s", name, error)

    async def drop_old(self, connection: Any) -> None:
        """Drop partitions whose last row is older than the retention."""
        if not self.retention or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + RETENTION_SECONDS
        if self.is_hypertable:
            await self._drop(connection, "chunks", _DROP_CHUNKS, self.retention)
            return
        oldest = datetime.now(UTC).date() - timedelta(seconds=self.retention)
        for (name,) in await connection.fetch(_PARTITIONS):
            found = re.fullmatch(r"(?:.*\.)?samples_(\d{8})", name)
            if found and datetime.strptime(found[1], "%Y%m%d").date() < oldest:  # noqa: DTZ007
                await self._drop(connection, name, f"DROP TABLE {name}")

    async def _drop(self, connection: Any, name: str, statement: str, *values: object) -> None:
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '1s'")
                await connection.execute(statement, *values)
        except asyncpg.PostgresError as error:  # in use by a long query: next time
            log.warning("%s is older than the retention, but stays for now: %s", name, error)
        else:
            self.forget()
            log.info("dropped %s, which is older than the retention", name)
