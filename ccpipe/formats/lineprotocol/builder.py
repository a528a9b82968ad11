"""Builds ``Lines`` column by column, of thousands of rows or messages at once."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.encoder import to_lines
from ccpipe.formats.lineprotocol.lines import Lines, RejectedLine
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME
from ccpipe.formats.lineprotocol.series import (
    Series,
    SeriesTable,
    valid_tags,
    write_measurement,
    write_series,
    write_tags,
)
from ccpipe.formats.lineprotocol.values import ValueType
from ccpipe.message import Message, Value

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
        valid = valid_tags(tags)
        encoded = write_tags(valid)
        series = [Series(name, valid, write_measurement(name) + encoded) for name in names]
        return array("i", map(self.table.code_of, series))

    def begin(self, time: int) -> None:
        """Set the time of rows added from now on, in nanoseconds.

        Raises EncodeError if it exceeds 64 bits.
        """
        if not INT64_MIN <= time <= INT64_MAX:
            raise EncodeError(f"time {time} is outside 64 bits")
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


_MAX_DEVICES = 1 << 14  # of which codes are remembered: jobs come and go


class TaggedRecords(NamedTuple):
    """Some records, and what is added to them: tags, and the unit of each metric by its name."""

    records: Sequence[Any]
    tags: Mapping[str, str] | None = None
    units: Mapping[str, str] = {}


class MessageColumns:
    """Builds ``Lines`` of messages, with the tags that all have in common.

    A node has the same series in each sample: the tags of a device are merged, checked and encoded
    once for each of its metrics.
    """

    def __init__(self) -> None:
        self._table = SeriesTable()
        self._codes: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
        self._tags: Mapping[str, str] | None = None
        self._units: Mapping[str, str] = {}

    def __call__(self, parts: Sequence[TaggedRecords]) -> Lines:
        """Return the messages of all parts; invalid ones are rejected lines."""
        table = self._table.current()
        if table is not self._table or len(self._codes) > _MAX_DEVICES:
            self._table, self._codes = table, {}
        columns = LinesBuilder(table)
        rejected: list[RejectedLine] = []
        for part in parts:
            if (part.tags, part.units) != (self._tags, self._units):
                self._tags, self._units, self._codes = part.tags, part.units, {}
            self._add(part.records, columns, rejected)
        lines = columns.lines()
        lines.rejected = rejected
        return lines

    def _add(
        self, messages: Sequence[Message], columns: LinesBuilder, rejected: list[RejectedLine]
    ) -> None:
        floats, ints = columns.floats, columns.ints
        own: Mapping[str, str] | None = None  # shared by the messages of one device
        codes: dict[str, int] = {}
        for message in messages:
            name, value = message.name, message.value
            if message.tags is not own:
                own = message.tags
                codes = self._codes.setdefault(tuple(own.items()), {})
            try:
                if message.time != columns.time:
                    columns.begin(NO_TIME if message.time is None else message.time)
                code = codes.get(name)
                if code is None:
                    code = codes[name] = self._code(name, own)
                if message.field != "value":
                    columns.append(code, message.field, value)
                elif type(value) is float and math.isfinite(value):
                    floats.codes.append(code)
                    floats.values.append(value)
                elif type(value) is int and INT64_MIN <= value <= INT64_MAX:
                    ints.codes.append(code)
                    ints.values.append(value)
                else:
                    columns.append(code, message.field, value)
            except EncodeError:
                rejected += to_lines([self._tagged(message)]).rejected

    def _code(self, name: str, own: Mapping[str, str]) -> int:
        tags = {key: value for key, value in self._merged(name, own).items() if value}
        return self._table.code_of(Series(name, tags, write_series(name, tags)))

    def _merged(self, name: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return all tags of a metric; a collector's own take precedence."""
        unit = {"unit": self._units[name]} if name in self._units else {}
        return dict(sorted({**unit, **(self._tags or {}), **own}.items()))

    def _tagged(self, message: Message) -> Message:
        tags = self._merged(message.name, message.tags)
        return Message(message.name, tags, message.value, message.time, message.field)
