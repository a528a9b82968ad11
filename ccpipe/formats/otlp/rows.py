"""The rows of a request, and its data points and log records that are rejected."""

import math
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import Lines, RejectedLine, Series, SeriesTable, ValueType
from ccpipe.formats.lineprotocol.precision import INT64_MAX
from ccpipe.formats.lineprotocol.series import valid_tags, write_series

T = TypeVar("T")

MAX_KEPT = 1000
"""Maximum number of rejected points or records of a request of which bytes and reason are kept."""
MAX_REJECTED = 100_000
"""Maximum number of rejected points or records of a request."""
MAX_MESSAGES = 250_000
"""Maximum number of resources, scopes, metrics and log records in a request."""
MAX_ORIGINAL = 1024
"""Bytes of each that are kept."""


class RequestRows:
    """Collects the rows of a request, of numbers or of texts."""

    def __init__(self, table: SeriesTable, now: int) -> None:
        """Start without rows; those without time get the time `now`."""
        self.table = table
        self.now = now
        self.rejected = 0
        """Number of data points or log records that are rejected."""
        self._messages = 0
        self._lines = Lines(b"", table)
        self._value = table.field_code_of("value")
        self._series, self._times = array("i"), array("q")
        self._types, self._numbers, self._exact = array("B"), array("d"), array("q")

    def within(self, messages: Iterable[T]) -> Iterator[T]:
        """Yield resources, scopes, metrics or records; raises DataError beyond `MAX_MESSAGES`.

        Each can be two bytes, without any data point.
        """
        for each in messages:
            self._messages += 1
            if self._messages > MAX_MESSAGES:
                raise DataError(f"more than {MAX_MESSAGES} resources, scopes and metrics or logs")
            yield each

    def code(self, name: str, tags: Mapping[str, str]) -> int:
        """Return the code of a series; raises EncodeError if line protocol cannot represent it."""
        valid = valid_tags(tags)
        return self.table.code_of(Series(name, valid, write_series(name, valid)))

    def time(self, data: bytes, start: int | None) -> int:
        """Return the time in 8 bytes, or ours without it; raises DataError beyond the year 2262."""
        (time,) = (0,) if start is None else _UINT(data, start)
        if time > INT64_MAX:
            raise DataError(f"time {time} exceeds 63 bits")
        return time or self.now

    def add(self, series: int, value: float, time: int) -> None:
        """Add a number; raises DataError if line protocol cannot represent it."""
        if isinstance(value, int):
            if value > INT64_MAX:
                raise DataError(f"{value} exceeds 63 bits")
            self._types.append(_INT)
            self._exact.append(value)
        else:
            if not math.isfinite(value):
                raise DataError(f"{value} is not a finite number")
            self._types.append(_FLOAT)
            self._exact.append(0)
        self._series.append(series)
        self._numbers.append(value)
        self._times.append(time)

    def add_text(self, series: int, field: str, text: str, time: int) -> None:
        self._lines.append(series, self.table.field_code_of(field), text, time)

    def reject(self, name: str, original: bytes, reason: object) -> None:
        """Count a data point or log record that is bad, and keep the first ones.

        Raises DataError beyond `MAX_REJECTED`, which bounds the time for a hostile request.
        """
        self.rejected += 1
        if self.rejected > MAX_REJECTED:
            raise DataError(f"more than {MAX_REJECTED} are bad, as {name!r:.80}: {reason}")
        if self.rejected <= MAX_KEPT:
            kept = f"{name} {original[:MAX_ORIGINAL].hex()}".encode()
            self._lines.rejected.append(RejectedLine(0, 0, 1, f"{name!r:.80}: {reason}", kept))

    def lines(self) -> Lines:
        """Return the rows."""
        lines = self._lines
        lines.verbatim = False
        lines.extend(
            {
                "series": self._series,
                "fields": array("i", [self._value]) * len(self._series),
                "types": self._types,
                "numbers": self._numbers,
                "exact": self._exact,
                "times": self._times,
            }
        )
        return lines


_INT, _FLOAT = int(ValueType.INT), int(ValueType.FLOAT)
_UINT = struct.Struct("<Q").unpack_from
