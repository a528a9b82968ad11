"""Builds ``Lines`` column by column, for translators that create thousands of rows at once."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME
from ccpipe.formats.lineprotocol.series import Series, SeriesTable, valid_tag, write_series
from ccpipe.formats.lineprotocol.values import ValueType
from ccpipe.message import Value

Codes: TypeAlias = "array[int]"


class LinesBuilder:
    """Builds ``Lines``: rows added by ``append`` first, then floats, then integers."""

    def __init__(self, table: SeriesTable) -> None:
        """Start without rows; series codes refer to `table`."""
        self.table = table
        self.floats = NumberRows()
        """Non-finite values are removed at the end."""
        self.ints = NumberRows()
        """Values beyond 64 bits become floats at the end."""
        self._others = Lines(b"", table)
        self.time = NO_TIME
        """Of rows added from now on; see ``begin``."""

    def code(self, name: str, tags: Mapping[str, str]) -> int:
        """Return the code of a series; empty tags are omitted."""
        (code,) = self.codes((name,), tags)
        return code

    def codes(self, names: Iterable[str], tags: Mapping[str, str]) -> Codes:
        """Return the codes of series with the same tags; empty tags are omitted."""
        valid = {key: valid_tag(value) for key, value in sorted(tags.items()) if value}
        series = [Series(name, valid, write_series(name, valid)) for name in names]
        return array("i", map(self.table.code_of, series))

    def begin(self, time: int) -> None:
        """Set the time of rows added from now on, in nanoseconds."""
        self.floats.set_times(self.time)
        self.ints.set_times(self.time)
        self.time = time

    def text(self, name: str, field: str, text: str, tags: Mapping[str, str]) -> None:
        self.append(self.code(name, tags), field, text)

    def append(self, code: int, field: str, value: Value) -> None:
        """Add a row of any type before the floats; raises EncodeError as `Lines.append` does."""
        self._others.append(code, self.table.field_code_of(field), value, self.time)

    def lines(self) -> Lines:
        """Return the rows; the builder cannot be used afterwards."""
        self.begin(NO_TIME)
        lines, floats, ints = self._others, self.floats, self.ints
        try:
            exact = array("q", ints.values)
        except OverflowError:
            floats.extend(ints.remove(lambda value: not INT64_MIN <= value <= INT64_MAX))
            exact = array("q", ints.values)
        if not math.isfinite(sum(floats.values)):
            floats.remove(lambda value: not math.isfinite(value))
        lines.verbatim = False
        lines.extend(self._columns(floats, ValueType.FLOAT))
        lines.extend({**self._columns(ints, ValueType.INT), "exact": exact})
        return lines

    def _columns(self, rows: "NumberRows", kind: ValueType) -> "dict[str, array[Any]]":
        count = len(rows.values)
        return {
            "series": rows.codes,
            "fields": array("i", [self.table.field_code_of("value")]) * count,
            "types": array("B", [kind]) * count,
            "numbers": array("d", rows.values),
            "times": rows.times,
        }


class NumberRows:
    """Rows of one numeric type: a series and a value each.

    Callers append to ``codes`` and ``values`` directly, the same number to each.
    """

    __slots__ = ("codes", "times", "values")

    def __init__(self) -> None:
        self.codes = array("i")
        self.values: list[Any] = []
        self.times = array("q")

    def set_times(self, time: int) -> None:
        """Set the time of the rows without one."""
        self.times.extend(array("q", (time,)) * (len(self.codes) - len(self.times)))

    def extend(self, other: "NumberRows") -> None:
        self.codes.extend(other.codes)
        self.values.extend(map(float, other.values))
        self.times.extend(other.times)

    def remove(self, is_bad: Callable[[float], bool]) -> "NumberRows":
        bad, good = NumberRows(), NumberRows()
        for code, value, time in zip(self.codes, self.values, self.times, strict=True):
            part = bad if is_bad(value) else good
            part.codes.append(code)
            part.values.append(value)
            part.times.append(time)
        self.codes, self.values, self.times = good.codes, good.values, good.times
        return bad
