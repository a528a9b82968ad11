"""``Lines``: a decoded payload as columns, which is also a sequence of messages."""

import enum
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.grammar import Rule
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME, Precision
from ccpipe.formats.lineprotocol.series import SeriesTable
from ccpipe.formats.lineprotocol.texts import TEXT, Texts, shifted
from ccpipe.message import Message, Uint, Value

if TYPE_CHECKING:
    import pyarrow as pa


class ValueType(enum.IntEnum):
    """How a value was written, as the column ``Lines.types`` says it."""

    FLOAT = 0
    INT = 1
    UINT = 2
    BOOL = 3
    TEXT = TEXT


class Rejected(NamedTuple):
    """A line that could not be read; it costs nobody but itself."""

    line: int
    """Its number in the payload, from 1."""
    offset: int
    """Where in the payload the offending byte is, from 0."""
    column: int
    """Where in the line the offending byte is, from 1."""
    rule: Rule
    original: bytes
    """The whole line, without its end."""

    @property
    def reason(self) -> str:
        """Why it could not be read."""
        return str(self.rule)

    @property
    def excerpt(self) -> str:
        """Up to 60 characters around the offence, printable whatever the bytes are."""
        start = max(0, self.column - 31)
        piece = self.original[start : start + 60].decode(errors="backslashreplace")
        return ("…" if start else "") + "".join(
            c if c.isprintable() else repr(c)[1:-1] for c in piece
        )

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.rule}: {self.excerpt}"


class Lines(Sequence[Message]):
    """Rows of series, field, value and time; one row for each field of each line.

    All columns are plain buffers of equal length, free for NumPy and Arrow to take without
    copying. Bytes stay what they were: ``payload[starts[i]:ends[i]]`` is the line of row `i`.
    """

    __slots__ = (
        "ends",
        "exact",
        "fields",
        "numbers",
        "payload",
        "precision",
        "rejected",
        "series",
        "starts",
        "table",
        "texts",
        "times",
        "types",
        "verbatim",
    )

    def __init__(self, payload: bytes = b"", table: SeriesTable | None = None) -> None:
        """Start without rows; the decoder fills them in."""
        self.payload = payload
        self.table = table if table is not None else SeriesTable()
        self.series = array("i")
        """Numbers into ``table.series``."""
        self.fields = array("i")
        """Numbers into ``table.fields``."""
        self.types = array("B")
        """``ValueType`` of each value."""
        self.numbers = array("d")
        """The value as a double: booleans are 0 and 1, texts NaN, great integers rounded."""
        self.exact = array("q")
        """INT: the value; UINT: its 64 bits; BOOL: 0 or 1; TEXT: its place in ``texts``."""
        self.texts = Texts(payload, self.table.grammar.unescape)
        self.times = array("q")
        """Nanoseconds since the epoch; ``NO_TIME`` where the line says none."""
        self.starts = array("q")
        self.ends = array("q")
        self.rejected: list[Rejected] = []
        self.precision: Precision | None = None
        """The unit that all timestamps were written in; None where they differ or one misses."""
        self.verbatim = True
        """Whether the rows are what their lines' bytes say: not so for lines that were repaired or
        cut, nor for messages."""

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "Lines":
        """Put messages into columns.

        Raises
        ------
        EncodeError
            where a message could not be written as a line either.

        """
        if isinstance(messages, Lines):
            return messages
        from ccpipe.formats.lineprotocol.decoder import decode
        from ccpipe.formats.lineprotocol.encoder import encode

        # Writing and reading is one way through all rules, and a fast one.
        lines = decode(encode(messages, precision="ns"), precision="ns")
        if lines.rejected:
            raise EncodeError(str(lines.rejected[0]))
        return lines

    def append(self, series: int, field: int, value: Value, time: int) -> None:
        """Add one row, choosing the type by the value's own.

        Raises
        ------
        EncodeError
            where the value is no finite number, or an integer or the time is outside 64 bits.

        """
        if not INT64_MIN <= time <= INT64_MAX:
            raise EncodeError(f"time {time} is outside 64 bits")
        number, exact, value_type = self._cells(value)
        self.series.append(series)
        self.fields.append(field)
        self.types.append(value_type)
        self.numbers.append(number)
        self.exact.append(exact)
        self.times.append(time)
        self.starts.append(0)
        self.ends.append(0)
        self.verbatim = False
        self.precision = None

    def _cells(self, value: Value) -> tuple[float, int, ValueType]:
        match value:
            case bool():
                return float(value), int(value), ValueType.BOOL
            case Uint() if 0 <= value < 2**64:
                return float(value), _signed(value), ValueType.UINT
            case int() if not isinstance(value, Uint) and INT64_MIN <= value <= INT64_MAX:
                return float(value), value, ValueType.INT
            case float() if math.isfinite(value):
                return value, 0, ValueType.FLOAT
            case str() if not _SURROGATE.search(value):
                self.texts.append(value)
                return math.nan, len(self.texts) - 1, ValueType.TEXT
            case _:
                raise EncodeError(f"{value!r:.80} cannot be a value in line protocol")

    def __len__(self) -> int:
        return len(self.series)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "Lines": ...
    def __getitem__(self, index: int | slice) -> "Message | Lines":
        if isinstance(index, slice):
            return self._rows(index)
        name, tags, _ = self.table.series[self.series[index]]
        time = self.times[index]
        return Message(
            name,
            tags,
            self.value(index),
            None if time == NO_TIME else time,
            self.table.fields[self.fields[index]],
        )

    def __iter__(self) -> Iterator[Message]:
        return map(self.__getitem__, range(len(self)))

    def value(self, index: int) -> Value:
        """Return the value of one row, exact and of its own type."""
        match self.types[index]:
            case ValueType.FLOAT:
                return self.numbers[index]
            case ValueType.INT:
                return self.exact[index]
            case ValueType.UINT:
                return Uint(self.exact[index] % 2**64)
            case ValueType.BOOL:
                return bool(self.exact[index])
            case _:
                return self.texts[self.exact[index]]

    def _rows(self, rows: slice) -> "Lines":
        part = Lines(self.payload, self.table)
        for column in ("series", "fields", "types", "numbers", "exact", "times", "starts", "ends"):
            setattr(part, column, getattr(self, column)[rows])
        part.texts = self.texts
        part.precision = self.precision
        part.verbatim = self.verbatim and not self._cuts_a_line(rows)
        return part

    def _cuts_a_line(self, rows: slice) -> bool:
        """Say whether a slice takes some rows of a line and leaves others."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            return True
        edges = [edge for edge in (start, stop) if 0 < edge < len(self) and start < stop]
        return any(self.starts[edge - 1] == self.starts[edge] for edge in edges)

    def fill_missing_times(self, now: int) -> "Lines":
        """Give the rows that carry no time the time `now`, in nanoseconds; in place."""
        if self.precision is None and NO_TIME in self.times:
            self.times = array("q", (now if t == NO_TIME else t for t in self.times))
            self.precision = None
        return self

    @property
    def size(self) -> int:
        """Bytes that the rows hold in memory, roughly: for whoever bounds a queue."""
        return len(self.payload) + len(self) * 49

    def original(self, index: int) -> bytes:
        """Return one row as a line, as a dead letter holds it."""
        from ccpipe.formats.lineprotocol.messages import line_of

        return line_of(self[index])

    def bytes_of(self, index: int) -> bytes:
        """Return the original line of one row."""
        return self.payload[self.starts[index] : self.ends[index]]

    def passthrough(self) -> bytes | None:
        """Return the valid lines' own bytes, bad lines cut out; None where they cannot stand.

        They cannot where timestamps are missing or differ in unit (``precision`` is None), or
        where a line was repaired.
        """
        if self.precision is None or not self.verbatim:
            return None
        if KERNEL is not None:
            passed: bytes = KERNEL.passthrough(self)
            return passed
        lines, last = [], -1
        for start, end in zip(self.starts, self.ends, strict=True):
            if start != last:
                lines.append(self.payload[start:end])
                last = start
        return b"\n".join([*lines, b""])

    def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table; see ``arrow.to_arrow`` for its columns."""
        from ccpipe.formats.lineprotocol.arrow import to_arrow

        return to_arrow(self)

    @staticmethod
    def concat(parts: Sequence["Lines"]) -> "Lines":
        """Join several into one; their series are numbered anew where their tables differ."""
        if len(parts) == 1:
            return parts[0]
        whole = Lines(b"".join(part.payload for part in parts), parts[0].table)
        offset = 0
        for part in parts:
            whole._extend(part, offset)
            offset += len(part.payload)
        units = {part.precision for part in parts if len(part)}
        whole.precision = units.pop() if len(units) == 1 else None
        whole.verbatim = all(part.verbatim for part in parts)
        return whole

    def _extend(self, part: "Lines", offset: int) -> None:
        """Append the rows of `part`, whose payload stands at `offset` in ours."""
        if part.table is self.table:
            self.series.extend(part.series)
            self.fields.extend(part.fields)
        else:
            table = self.table
            codes = {c: table.code_of(part.table.series[c]) for c in set(part.series)}
            keys = {c: table.field_code_of(part.table.fields[c]) for c in set(part.fields)}
            self.series.extend(map(codes.__getitem__, part.series))
            self.fields.extend(map(keys.__getitem__, part.fields))
        if part.texts:
            base = len(self.texts)
            self.texts.extend(part.texts, offset)
            self.exact.extend(shifted(part.exact, base, part.types) if base else part.exact)
        else:
            self.exact.extend(part.exact)
        self.types.extend(part.types)
        self.numbers.extend(part.numbers)
        self.times.extend(part.times)
        self.starts.extend(shifted(part.starts, offset))
        self.ends.extend(shifted(part.ends, offset))
        self.rejected.extend(part.rejected)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _signed(unsigned: int) -> int:
    return unsigned - 2**64 if unsigned > INT64_MAX else unsigned
