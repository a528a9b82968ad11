"""Which messages are stored: noted in the transaction that stores their rows."""

from collections.abc import Sequence
from typing import Any

from ccpipe.pipeline import Run

MAX_RUNS = 100_000
"""Runs of messages that are remembered: about 20 MB. The oldest go first."""

_LOCK = 0x63637071
"""Any number that all bridges take: who notes messages, from then to the end of its transaction."""

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


async def overlapping(connection: Any, runs: Sequence[Run]) -> list[Run]:
    """Return what is stored and may have messages of `runs`."""
    first, last = min(run.first for run in runs), max(run.last for run in runs)
    consumers = sorted({run.consumer for run in runs})
    rows = await connection.fetch(_OVERLAPPING, consumers, first, last)
    return [Run(*row) for row in rows]


async def is_noted(connection: Any, runs: Sequence[Run]) -> bool:
    """Note runs as stored; false where another bridge has stored some of them meanwhile.

    Who notes waits for others who do, and sees what they have committed: of two transactions with
    the same message one gets false, and must be rolled back.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    status: str = await connection.execute(_NOTE, *map(list, zip(*runs, strict=True)))
    return int(status.rpartition(" ")[2]) == len(runs)


class Pruning:
    """Removes the oldest runs, now and then."""

    def __init__(self) -> None:
        """Begin with the first run."""
        self._noted = MAX_RUNS

    def count(self, noted: int) -> None:
        """Count runs that are noted."""
        self._noted += noted

    async def prune(self, connection: Any) -> None:
        """Remove the oldest runs where a hundredth is new."""
        if self._noted >= MAX_RUNS // 100:
            await connection.execute(_FORGET, MAX_RUNS)
            self._noted = 0
