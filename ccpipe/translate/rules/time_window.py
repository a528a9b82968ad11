"""Keeps what is neither too old nor too far in the future; the rest becomes dead letters."""

import time
from collections.abc import Sequence
from operator import and_

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, EncodeError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.message import Message
from ccpipe.pipeline import Translator

SECOND = 10**9
YEAR_2000 = 946_684_800 * SECOND
"""Nothing that is monitored is older: a time before is in another unit, or a clock never set."""


class TimeWindow(Translator):
    """Keeps the records whose time is within a window around this machine's clock.

    A store refuses or drops what is outside its own: VictoriaMetrics, for example, silently drops
    what is older than its retention or more than two days ahead. A record without a time is kept.
    """

    takes = gives = Messages

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
        self._rejected: list[tuple[Message, str]] = []

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Return the records within the window."""
        now = time.time_ns()
        first = YEAR_2000
        if self._max_age is not None:
            first = max(first, now - int(self._max_age * SECOND))
        last = NEVER if self._max_future is None else now + int(self._max_future * SECOND)
        if isinstance(records, Lines):
            times: Sequence[int] = records.times
            if times and first <= min(times) and max(times) <= last:
                return records
        else:
            times = [NO_TIME if record.time is None else record.time for record in records]
        after = [first <= t or t == NO_TIME for t in times]
        keep = list(map(and_, after, [t <= last for t in times]))
        if all(keep):
            return records
        bad = [records[row] for row, is_kept in enumerate(keep) if not is_kept]
        self._rejected += [(record, self._reason(record.time or 0, now)) for record in bad]
        if isinstance(records, Lines):
            return records.take(keep)
        return Messages(record for record, is_kept in zip(records, keep, strict=True) if is_kept)

    def take_rejected(self) -> list[tuple[Message, str]]:
        """Return the records outside the window since the last call, with reasons."""
        rejected, self._rejected = self._rejected, []
        return rejected

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
