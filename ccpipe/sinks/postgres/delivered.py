"""Ids of stored messages, recorded in the transaction that stores their rows."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ccpipe.provenance import MessageRange, Provenance
from ccpipe.sinks.postgres.database import FAILURES

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
"""Writes the records marked 1, or all for None; false if it must start over."""


class Once:
    """Writes records and records their messages in one transaction."""

    def __init__(self) -> None:
        self._noted = MAX_RUNS

    async def prune(self, connection: Any) -> None:
        """Remove the oldest runs, after every hundredth of the maximum."""
        if self._noted >= MAX_RUNS // 100:
            await connection.execute(_FORGET, MAX_RUNS)
            self._noted = 0

    async def is_written(self, connection: Any, ids: Provenance | None, write: Write) -> bool:
        """Write what is not stored; false if nothing was written and it must start over."""
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        try:
            is_good = await (write(None) if ids is None else self._is_noted(connection, ids, write))
        except BaseException:
            with contextlib.suppress(*FAILURES):
                await transaction.rollback()
            raise
        await (transaction.commit() if is_good else transaction.rollback())
        return is_good

    async def _is_noted(self, connection: Any, ids: Provenance, write: Write) -> bool:
        keep, runs = ids.unstored(await overlapping(connection, ids.runs()))
        if not (await write(keep)):
            return False
        self._noted += len(runs)
        return not runs or await is_noted(connection, runs)
