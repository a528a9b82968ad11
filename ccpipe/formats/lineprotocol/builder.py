"""Rows written straight into ``Lines``, many at once: for translators that make thousands."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME
from ccpipe.formats.lineprotocol.series import check_name, write_series

Codes: TypeAlias = "array[int]"
"""Numbers of series in a table."""


class Columns:
    """Lines that are being written: texts come first, then floats, then integers."""

    def __init__(self, table: SeriesTable) -> None:
        """Begin without rows; the series are those of `table`."""
        self.table = table
        self.floats = Rows()
        """What is not finite is left out in the end."""
        self.ints = Rows()
        """What is beyond 63 bits becomes a float in the end."""
        self._texts = Lines(b"", table)
        self._time = NO_TIME

    def code(self, name: str, tags: Mapping[str, str]) -> int:
        """Number a series; tags without value are left out."""
        series = {key: escape_text(value) for key, value in sorted(tags.items()) if value}
        return self.table.code_of(Series(name, series, write_series(name, series)))

    def codes(self, names: Iterable[str], tags: Mapping[str, str]) -> Codes:
        """Number series that share their tags."""
        return array("i", [self.code(name, tags) for name in names])

    def begin(self, time: int) -> None:
        """Give all rows from here on this time, in nanoseconds."""
        self.floats.stamp(self._time)
        self.ints.stamp(self._time)
        self._time = time

    def text(self, name: str, field: str, text: str, tags: Mapping[str, str]) -> None:
        """Add one event or log line."""
        code = self.code(name, tags)
        self._texts.append(code, self.table.field_code_of(field), text, self._time)

    def lines(self) -> Lines:
        """Return what was written; it ends with that."""
        self.begin(NO_TIME)
        lines, floats, ints = self._texts, self.floats, self.ints
        try:
            exact = array("q", ints.values)
        except OverflowError:
            floats.take(ints.remove(lambda value: not INT64_MIN <= value <= INT64_MAX))
            exact = array("q", ints.values)
        if not math.isfinite(sum(floats.values)):
            floats.remove(lambda value: not math.isfinite(value))
        lines.verbatim = False
        for rows, kind in ((floats, ValueType.FLOAT), (ints, ValueType.INT)):
            count = len(rows.values)
            lines.series.extend(rows.codes)
            lines.times.extend(rows.times)
            lines.numbers.fromlist(rows.values)
            lines.types.frombytes(bytes([kind]) * count)
        count = len(floats.values) + len(exact)
        lines.exact.frombytes(bytes(8 * len(floats.values)))
        lines.exact.extend(exact)
        lines.fields.extend(array("i", [self.table.field_code_of("value")]) * count)
        lines.starts.frombytes(bytes(8 * count))
        lines.ends.frombytes(bytes(8 * count))
        return lines


class Rows:
    """Rows of one type of value: a series and a value each.

    Whoever writes many adds to ``codes`` and ``values`` themselves, as many to the one as to the
    other.
    """

    __slots__ = ("codes", "times", "values")

    def __init__(self) -> None:
        """Begin empty."""
        self.codes = array("i")
        self.values: list[Any] = []
        self.times = array("q")

    def stamp(self, time: int) -> None:
        """Give the rows that have none yet a time."""
        self.times.extend(array("q", (time,)) * (len(self.codes) - len(self.times)))

    def take(self, other: "Rows") -> None:
        """Take over integers as floats."""
        self.codes.extend(other.codes)
        self.values.extend(map(float, other.values))
        self.times.extend(other.times)

    def remove(self, is_bad: Callable[[float], bool]) -> "Rows":
        """Take out the rows with bad values and return them."""
        bad, good = Rows(), Rows()
        for code, value, time in zip(self.codes, self.values, self.times, strict=True):
            part = bad if is_bad(value) else good
            part.codes.append(code)
            part.values.append(value)
            part.times.append(time)
        self.codes, self.values, self.times = good.codes, good.values, good.times
        return bad


def escape_text(text: str) -> str:
    """Return a name as a tag can carry it: a line end, for example, becomes ``%0A``."""
    try:
        check_name(text)
    except EncodeError:
        return quote(text.encode(errors="surrogatepass"))
    return text
