"""Times as Slurm prints them, in nanoseconds since the epoch.

Slurm prints local time without a zone, unless ``SLURM_TIME_FORMAT`` asks for something better:
``%s`` prints seconds since the epoch. Local time is read in the zone of the machine that printed
it, with that zone's offset at the time itself. When clocks are set back, an hour comes twice: the
first of both is taken, and ``TimeReader.second`` returns the other.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import ABSENT

SECOND = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for local times, less their offset
_CLOCK = {f"{n // 60:02}:{n % 60:02}": n * SECOND for n in range(3600)}
_MAX_DIGITS = 11
_HOUR = 14
"""Characters of ``2026-11-20T10:``."""
_LOCAL = 19
"""Characters of ``2026-11-20T10:32:28``."""
_MAX_HOURS = 10_000
"""Hours that a reader remembers: more than a year."""


class TimeReader:
    """Reads local times of one zone, seconds since the epoch, and times with their own offset.

    Whatever else is no time raises DataError, as do local times without a zone.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.zone = zone
        self.has_repeats = False
        """Whether a time was read that came twice, as clocks were set back."""
        self.hours: dict[str, int] = {}
        """When the hours begin that were read last, by their first characters."""

    def __call__(self, cell: str) -> int | None:
        """Return nanoseconds since the epoch; None for ``Unknown``, ``None``, ``N/A`` and 0."""
        try:
            return self.hours[cell[:_HOUR]] + _CLOCK[cell[_HOUR:]]
        except KeyError:
            return self._read(cell)

    def column(self, cells: Sequence[str]) -> list[int | None]:
        hours, clock = self.hours, _CLOCK
        try:
            return [
                hours[cell[:_HOUR]] + clock[cell[_HOUR:]]
                if len(cell) == _LOCAL
                else self._read(cell)
                for cell in cells
            ]
        except KeyError:
            return [self(cell) for cell in cells]

    def second(self, cell: str) -> int | None:
        """Return the later time that a local time can be; None if it is one only."""
        if len(cell) != _HOUR + 5 or cell[_HOUR:] not in _CLOCK or self.zone is None:
            return None
        time = datetime.fromisoformat(cell)
        first, second = self._offset(time, 0), self._offset(time, 1)
        return _since_epoch(time, second) if second < first else None

    def _read(self, cell: str) -> int | None:
        if cell in ABSENT:
            return None
        if cell.isascii() and cell.isdigit() and len(cell) <= _MAX_DIGITS:
            return int(cell) * SECOND or None
        try:
            time = datetime.fromisoformat(cell)
            if time.tzinfo is not None:
                return (time - _EPOCH) // timedelta(microseconds=1) * 1000
            return self._local(cell, time)
        except (ValueError, OverflowError):
            raise DataError(
                f"not a time: {cell!r:.40} (expected e.g. 2026-11-20T10:32:28)"
            ) from None

    def _local(self, cell: str, time: datetime) -> int:
        if self.zone is None:
            raise DataError(f"local time {cell!r:.40}, and no zone to read it in")
        if len(cell) != _HOUR + 5 or cell[_HOUR:] not in _CLOCK:
            raise ValueError(cell)
        offsets = {
            (self._offset(at, 0), self._offset(at, 1))
            for at in (time.replace(minute=minute, second=0) for minute in (0, 15, 30, 45))
        }
        if any(second < first for first, second in offsets):
            self.has_repeats = True
        if len(offsets) == 1:  # else the clocks change within the hour
            if len(self.hours) >= _MAX_HOURS:
                self.hours.clear()
            hour = time.replace(minute=0, second=0)
            self.hours[cell[:_HOUR]] = _since_epoch(hour, self._offset(hour, 0))
        return _since_epoch(time, self._offset(time, 0))

    def _offset(self, time: datetime, fold: int) -> timedelta:
        return time.replace(tzinfo=self.zone, fold=fold).utcoffset() or timedelta()


def _since_epoch(time: datetime, offset: timedelta) -> int:
    return (time - _NAIVE_EPOCH - offset) // timedelta(microseconds=1) * 1000
