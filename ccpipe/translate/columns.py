"""Rows written straight into ``Lines``, many at once: for translators that make thousands."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME
from ccpipe.formats.lineprotocol.series import check_name, write_series

Codes = Sequence[int]
"""Numbers of series in a table; an array of them is added fastest."""


class Columns:
    """Lines that are being written: texts come first, then floats, then integers."""

    def __init__(self, table: SeriesTable) -> None:
        """Begin without rows; the series are those of `table`."""
        self.table = table
        self._texts = Lines(b"", table)
        self._floats = _Numbers()
        self._ints = _Numbers()
        self._time = NO_TIME

    def code(self, name: str, tags: Mapping[str, str]) -> int:
        """Number a series; tags without value are left out."""
        series = {key: spelled(value) for key, value in sorted(tags.items()) if value}
        return self.table.code_of(Series(name, series, write_series(name, series)))

    def codes(self, names: Iterable[str], tags: Mapping[str, str]) -> "array[int]":
        """Number series that share their tags."""
        return array("i", [self.code(name, tags) for name in names])

    def begin(self, time: int) -> None:
        """Give all rows from here on this time, in nanoseconds."""
        self._floats.stamp(self._time)
        self._ints.stamp(self._time)
        self._time = time

    def floats(self, codes: Codes, values: Sequence[float]) -> None:
        """Add one row for each series and value; what is not finite is left out in the end."""
        self._floats.codes.extend(codes)
        self._floats.values.extend(values)

    def ints(self, codes: Codes, values: Sequence[int]) -> None:
        """Add one row for each series and value; what is beyond 63 bits becomes a float."""
        self._ints.codes.extend(codes)
        self._ints.values.extend(values)

    def text(self, name: str, field: str, text: str, tags: Mapping[str, str]) -> None:
        """Add one event or log line."""
        code = self.code(name, tags)
        self._texts.append(code, self.table.field_code_of(field), text, self._time)

    def lines(self) -> Lines:
        """Return what was written, and begin anew."""
        self.begin(NO_TIME)
        lines, floats, ints = self._texts, self._floats, self._ints
        self._texts, self._floats, self._ints = Lines(b"", self.table), _Numbers(), _Numbers()
        try:
            exact = array("q", ints.values)
        except OverflowError:
            floats.take(ints.remove(lambda value: not INT64_MIN <= value <= INT64_MAX))
            exact = array("q", ints.values)
        if not math.isfinite(sum(floats.values)):
            floats.remove(lambda value: not math.isfinite(value))
        lines.verbatim = False
        for numbers, kind in ((floats, ValueType.FLOAT), (ints, ValueType.INT)):
            count = len(numbers.values)
            lines.series.extend(numbers.codes)
            lines.times.extend(numbers.times)
            lines.numbers.fromlist(numbers.values)
            lines.types.frombytes(bytes([kind]) * count)
            lines.fields.extend(array("i", [self.table.field_code_of("value")]) * count)
            lines.starts.frombytes(bytes(8 * count))
            lines.ends.frombytes(bytes(8 * count))
        lines.exact.frombytes(bytes(8 * len(floats.values)))
        lines.exact.extend(exact)
        return lines


class _Numbers:
    """Rows of one type of value."""

    def __init__(self) -> None:
        self.codes = array("i")
        self.values: list[Any] = []
        self.times = array("q")

    def stamp(self, time: int) -> None:
        """Give the rows that have none yet a time."""
        self.times.extend(array("q", (time,)) * (len(self.codes) - len(self.times)))

    def take(self, other: "_Numbers") -> None:
        self.codes.extend(other.codes)
        self.values.extend(map(float, other.values))
        self.times.extend(other.times)

    def remove(self, is_bad: Callable[[float], bool]) -> "_Numbers":
        """Take out the rows with bad values and return them."""
        bad, good = _Numbers(), _Numbers()
        for code, value, time in zip(self.codes, self.values, self.times, strict=True):
            part = bad if is_bad(value) else good
            part.codes.append(code)
            part.values.append(value)
            part.times.append(time)
        self.codes, self.values, self.times = good.codes, good.values, good.times
        return bad


def spelled(text: str) -> str:
    """Return a name as a tag can carry it: a line end, for example, becomes ``%0A``."""
    try:
        check_name(text)
    except EncodeError:
        return quote(text.encode(errors="surrogatepass"))
    return text
