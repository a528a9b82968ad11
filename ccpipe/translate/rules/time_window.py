"""Keeps what is neither too old nor too far in the future; the rest becomes dead letters."""

import time
from operator import and_

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, EncodeError
from ccpipe.formats.lineprotocol import Lines, RejectedLine
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.pipeline import Translator

SECOND = 10**9
YEAR_2000 = 946_684_800 * SECOND
"""Nothing that is monitored is older: a time before is in another unit, or a clock never set."""


class TimeWindow(Translator[Lines, Lines]):
    """Keeps the records whose time is within a window around this machine's clock.

    A store refuses or drops what is outside its own: VictoriaMetrics, for example, silently drops
    what is older than its retention or more than two days ahead. A record without a time is kept.
    """

    takes = gives = Lines

    def __init__(
        self, *, max_age: Duration | None = None, max_future: Duration | None = None
    ) -> None:
        """Set the window.

        Parameters
        ----------
        max_age
            How old a record may be; without it any age since the year 2000.
        max_future
            How far ahead of this machine's clock a record may be; without it any time.

        Raises
        ------
        ConfigError
            if there is neither.

        """
        if max_age is None and max_future is None:
            raise ConfigError("set max_age or max_future")
        self._max_age = max_age
        self._max_future = max_future

    def feed(self, records: Lines) -> Lines:
        now = time.time_ns()
        first = YEAR_2000
        if self._max_age is not None:
            first = max(first, now - int(self._max_age * SECOND))
        last = NEVER if self._max_future is None else now + int(self._max_future * SECOND)
        times = records.times
        if times and first <= min(times) and max(times) <= last:
            return records
        after = [first <= t or t == NO_TIME for t in times]
        keep = list(map(and_, after, [t <= last for t in times]))
        if all(keep):
            return records
        kept = records.take(keep)
        kept.rejected = [
            RejectedLine(0, 0, 0, self._reason(times[row], now), records.original(row))
            for row, is_kept in enumerate(keep)
            if not is_kept
        ]
        return kept

    def _reason(self, at: int, now: int) -> str:
        if at < YEAR_2000:
            return f"absurd time {_written(at)}: in another unit, or a clock that was never set"
        if at > now:
            ahead = (at - now) // SECOND
            return f"early: {_written(at)} is {ahead} s ahead, more than max_future"
        return f"late: {_written(at)} is {(now - at) // SECOND} s old, more than max_age"


NEVER = 2**63
"""After all times."""


def _written(at: int) -> str:
    try:
        return rfc3339(at // SECOND * SECOND)
    except EncodeError:
        return f"{at // SECOND} s"
