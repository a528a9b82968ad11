"""``Lines``: a decoded payload as columns, which is also a sequence of messages."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, compress
from operator import not_, or_
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, overload

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.grammar import Rule
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME, Precision
from ccpipe.formats.lineprotocol.series import SeriesTable
from ccpipe.formats.lineprotocol.values import Texts, ValueType, cells, shifted
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.message import Message, Uint, Value
from ccpipe.records import Provenance, excerpt

if TYPE_CHECKING:
    import pyarrow as pa

Column: TypeAlias = "array[Any]"
Digest: TypeAlias = tuple[int, int, bool]

COLUMNS = ("series", "fields", "types", "numbers", "exact", "times", "starts", "ends")


_CHUNK = 1024
_FLOAT = int(ValueType.FLOAT)
_USUAL = {"bare_points": False, "digest": None, "parts": (), "provenance": None, "verbatim": True}
_ROW_BYTES = 1 if KERNEL is None else KERNEL.ROW_BYTES


class RejectedLine(NamedTuple):
    """A line that could not be decoded, or a message rejected for another reason."""

    line: int
    """Line number in the payload, from 1; 0 if unknown."""
    offset: int
    """Position of the offending byte in the payload, from 0."""
    column: int
    """Position of the offending byte in the line, from 1."""
    rule: Rule | str
    """The violated rule of the grammar, or another reason."""
    original: bytes
    """The whole line, without its line end."""

    @property
    def reason(self) -> str:
        """The violated rule as text."""
        return str(self.rule)

    @property
    def excerpt(self) -> str:
        """Up to 60 characters around the offending byte, made printable."""
        return excerpt(self.original, self.column - 1)

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.reason}: {self.excerpt}"


class Lines(Sequence[Message]):
    """Rows of series, field, value and time; one row for each field of each line.

    All columns are plain buffers of equal length, which NumPy and Arrow use without copying.
    ``payload[starts[i]:ends[i]]`` is the line of row `i` as received.
    """

    # Rows of the compiled decoder stay packed, and concatenated parts separate, until a column is
    # accessed: few sinks need all columns.

    name: ClassVar[str] = "lines"
    subjects: ClassVar[Sequence[str]] = ("metrics", "events", "log")

    __slots__ = (
        *COLUMNS,
        "bare_points",
        "digest",
        "parts",
        "payload",
        "precision",
        "provenance",
        "rejected",
        "rows",
        "table",
        "texts",
        "verbatim",
    )

    def __init__(self, payload: bytes = b"", table: SeriesTable | None = None) -> None:
        """Start without rows; the decoder adds them."""
        self.payload = payload
        self.parts: Sequence[Lines] = ()
        """Sources of ``concat``, for the columns not accessed yet."""
        self.rows = b""
        """The rows as packed by the compiled decoder; empty once the columns differ from them."""
        self.digest: Digest | None = None
        """Summary by the compiled decoder, if the rows are the whole payload: types of the values
        as bits, the field of all rows or -1, and whether the payload consists of just the lines
        of these rows, each ending in LF. With it, ``concat`` needs to look at no row."""
        self.table = table if table is not None else SeriesTable()
        self.series = array("i")
        """Codes: indices into ``table.series``."""
        self.fields = array("i")
        """Codes: indices into ``table.fields``."""
        self.types = array("B")
        """``ValueType`` of each value."""
        self.numbers = array("d")
        """The value as a double: booleans are 0 and 1, texts NaN, large integers rounded."""
        self.exact = array("q")
        """INT: the value; UINT: its 64 bits; BOOL: 0 or 1; TEXT: its index in ``texts``."""
        self.times = array("q")
        """Nanoseconds since the epoch; ``NO_TIME`` where the line has no timestamp."""
        self.starts = array("q")
        self.ends = array("q")
        self.texts = Texts(payload, self.table.grammar.unescape)
        self.rejected: list[RejectedLine] = []
        """Lines that could not be decoded, and other rejected records."""
        self.provenance: Provenance | None = None
        self.precision: Precision | None = None
        """The unit of all timestamps in the payload; None if they differ or one is missing."""
        self.bare_points = False
        """Whether numbers in the payload may begin or end with the decimal point: ``.5``, ``1.``;
        some stores misread these."""
        self.verbatim = True
        """Whether the rows are exactly the lines of the payload.

        False if lines were repaired, cut or changed, or rows were added.
        """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Build the columns deferred by the decoder or ``concat``, on first access."""
            if name in ("starts", "ends"):
                made = self._positions(is_end=name == "ends")
            elif name in COLUMNS:
                columns = KERNEL.unpack([part.rows for part in self.parts or (self,)])
                for each, column in zip(COLUMNS, columns, strict=False):
                    setattr(self, each, column)
                return getattr(self, name)
            elif name == "payload":
                made = b"".join(part.payload for part in self.parts)
            elif name == "texts":
                made = Texts(self.payload, self.table.grammar.unescape)
            elif name in _USUAL:
                made = _USUAL[name]
            elif name == "rejected":
                made = []
            else:
                raise AttributeError(name)
            setattr(self, name, made)
            return made

    @property
    def columns(self) -> list[Column]:
        """The columns, in the order of ``COLUMNS``."""
        return [getattr(self, name) for name in COLUMNS]

    @property
    def size(self) -> int:
        """Approximate size of the rows in memory, in bytes."""
        if self.parts:
            return sum(part.size for part in self.parts)
        return len(self.payload) + len(self) * _ROW_SIZE

    def __len__(self) -> int:
        return len(self.rows) // _ROW_BYTES or sum(map(len, self.parts)) or len(self.series)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "Lines": ...
    def __getitem__(self, index: int | slice) -> "Message | Lines":
        if isinstance(index, slice):
            return self._slice(index)
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
        if KERNEL is None:
            return self._messages()
        size = len(self)
        starts = range(0, size, _CHUNK)
        return chain.from_iterable(
            KERNEL.messages(self, start, min(start + _CHUNK, size)) for start in starts
        )

    def _messages(self) -> Iterator[Message]:
        series_of, field_of = self.table.series, self.table.fields
        rows = zip(self.series, self.fields, self.types, self.numbers, self.times, strict=True)
        for index, (series, field, kind, number, time) in enumerate(rows):
            name, tags, _ = series_of[series]
            value = number if kind == _FLOAT else self.value(index)
            yield Message(name, tags, value, None if time == NO_TIME else time, field_of[field])

    @property
    def only_field(self) -> int | None:
        """Field code of all rows; None if they differ, or without rows."""
        if self.digest is not None:
            return self.digest[1] if self.digest[1] >= 0 else None
        first = self.fields[:1]
        return first[0] if first and first * len(self) == self.fields else None

    @property
    def used_types(self) -> frozenset[ValueType]:
        """Types of the values."""
        if self.digest is not None:
            return _TYPES[self.digest[0]]
        types = self.types.tobytes()
        return frozenset(kind for kind in ValueType if kind in types)

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

    def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table, with columns for name, field, time, value and tags.

        The column ``value`` has each number and is null for texts, which are in ``text``; ``int``,
        ``uint`` and ``bool`` have the exact value of an integer or boolean. Tags without a column
        of their own share the column ``tags``.

        Raises
        ------
        MissingExtra
            if pyarrow is not installed.

        """
        from ccpipe.formats.lineprotocol.arrow import to_arrow

        return to_arrow(self)

    def original(self, index: int) -> bytes:
        """Return one row as a line without LF, or the ``repr()`` of its message if not encodable.

        A line with several fields has several rows; this returns one of them.
        """
        return original(self[index])

    def append(self, series: int, field: int, value: Value, time: int) -> None:
        """Add one row, of the type of its value.

        Raises
        ------
        EncodeError
            if a number is not finite, or an integer or the time exceeds 64 bits.

        """
        if not INT64_MIN <= time <= INT64_MAX:
            raise EncodeError(f"time {time} is outside 64 bits")
        number, exact, kind = cells(value)
        if isinstance(value, str):
            exact = len(self.texts)
            self.texts.append(value)
        self.append_row(series, field, kind, number, exact, time, 0, 0)
        self.verbatim = False
        self.precision = None

    def append_row(self, *row: float) -> None:
        """Add one row from its cells, in the order of ``COLUMNS``."""
        self._detach()
        for name, cell in zip(COLUMNS, row, strict=True):
            getattr(self, name).append(cell)

    def extend(self, columns: Mapping[str, Column]) -> None:
        """Add the rows of some columns of equal length; cells of other columns are 0."""
        self._detach()
        count = len(columns["series"])
        for name in COLUMNS:
            column: Column = getattr(self, name)
            if name in columns:
                column.extend(columns[name])
            else:
                column.frombytes(bytes(count * column.itemsize))

    def _detach(self) -> None:
        """Build all columns before they are changed."""
        if self.rows or self.parts:
            for name in (*COLUMNS, "payload"):
                getattr(self, name)
        self.parts, self.rows, self.digest, self.provenance = (), b"", None, None

    def take(self, keep: Sequence[int]) -> "Lines":
        """Return the rows for which `keep` is true, with all rejected lines."""
        flags = bytes(map(bool, keep))
        # A line that lost a field must not be passed on as its original bytes.
        verbatim = self.verbatim and _keeps_lines_whole(self.starts, flags)
        part = self._with_columns([_kept(each, flags) for each in self.columns], verbatim=verbatim)
        part.rejected = self.rejected
        part.provenance = self.provenance and self.provenance.take(flags)
        return part

    def with_series(self, codes: "array[int]") -> "Lines":
        """Return a copy of the rows with other series codes of the same table."""
        part = self._with_columns([column[:] for column in self.columns], verbatim=False)
        part.series = codes
        part.rejected = self.rejected
        part.provenance = self.provenance
        return part

    def fill_missing_times(self, now: int) -> "Lines":
        """Set missing times to `now`, in nanoseconds; in place."""
        if self.precision is None and NO_TIME in self.times:
            self._detach()
            self.times = array("q", (now if t == NO_TIME else t for t in self.times))
        return self

    def passthrough(self) -> bytes | None:
        """Return the bytes of the valid lines only; None if they cannot be passed on.

        Returns the payload itself if it contains nothing else. Lines cannot be passed on if
        timestamps are missing or differ in unit (``precision`` is None), or if rows differ from
        their lines (``verbatim`` is false).
        """
        if self.precision is None or not self.verbatim:
            return None
        if self.digest is not None and self.digest[2]:
            return self.payload
        if KERNEL is not None:
            passed: bytes = KERNEL.passthrough(self)
            return passed
        lines, last = [], -1
        for start, end in zip(self.starts, self.ends, strict=True):
            if start != last:
                lines.append(self.payload[start:end])
                last = start
        return b"\n".join([*lines, b""])

    @staticmethod
    def concat(parts: Sequence["Lines"]) -> "Lines":
        """Concatenate; series are renumbered if tables differ."""
        if len(parts) == 1:
            return parts[0]
        table = parts[0].table
        if all(part.table is table and part.rows and not part.texts for part in parts):
            whole = Lines.__new__(Lines)
            whole.parts, whole.table, whole.rows = parts, table, b""
            whole.rejected = [each for part in parts for each in part.rejected]
            whole.digest = _joined_digest([part.digest for part in parts])
        else:
            whole = Lines(b"".join(part.payload for part in parts), table)
            offset = 0
            for part in parts:
                whole._append(part, offset)
                offset += len(part.payload)
        units = {part.precision for part in parts if len(part)}
        whole.precision = units.pop() if len(units) == 1 else None
        whole.verbatim = all(part.verbatim for part in parts)
        whole.bare_points = any(part.bare_points for part in parts)
        whole.provenance = Provenance.concat([(part.provenance, len(part)) for part in parts])
        return whole

    def _positions(self, *, is_end: bool) -> Column:
        """Return ``starts`` or ``ends`` of packed rows."""
        assert KERNEL is not None  # only its decoder packs rows
        found: Column = array("q")
        offset = 0
        for part in self.parts or (self,):
            found.extend(KERNEL.positions(part.rows, offset, is_end))
            offset += len(part.payload)
        return found

    def _append(self, part: "Lines", offset: int) -> None:
        """Add the rows of `part`, whose payload is at `offset` of ours."""
        columns = dict(zip(COLUMNS, part.columns, strict=True))
        columns["starts"] = shifted(part.starts, offset)
        columns["ends"] = shifted(part.ends, offset)
        if part.table is not self.table:
            table, other = self.table, part.table
            codes = {c: table.code_of(other.series[c]) for c in set(part.series)}
            keys = {c: table.field_code_of(other.fields[c]) for c in set(part.fields)}
            columns["series"] = array("i", map(codes.__getitem__, part.series))
            columns["fields"] = array("i", map(keys.__getitem__, part.fields))
        if part.texts:
            if self.texts:
                columns["exact"] = shifted(part.exact, len(self.texts), part.types)
            self.texts.extend(part.texts, offset)
        self.extend(columns)
        self.rejected.extend(part.rejected)

    def _slice(self, rows: slice) -> "Lines":
        verbatim = self.verbatim and not self._cuts_a_line(rows)
        part = self._with_columns([column[rows] for column in self.columns], verbatim=verbatim)
        part.provenance = self.provenance and self.provenance.part(rows)
        return part

    def _with_columns(self, columns: Iterable[Column], *, verbatim: bool) -> "Lines":
        """Return other rows of the same payload, without its rejected lines."""
        part = Lines.__new__(Lines)
        for name, column in zip(COLUMNS, columns, strict=True):
            setattr(part, name, column)
        part.payload, part.table, part.texts = self.payload, self.table, self.texts
        part.rejected = []
        part.provenance = None
        part.rows, part.digest = b"", None
        part.precision, part.verbatim = self.precision, verbatim
        part.bare_points = self.bare_points
        return part

    def _cuts_a_line(self, rows: slice) -> bool:
        """Return whether a slice contains only some of the rows of a line."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            return True
        edges = [edge for edge in (start, stop) if 0 < edge < len(self) and start < stop]
        return any(self.starts[edge - 1] == self.starts[edge] for edge in edges)


def _joined_digest(digests: Sequence[Digest | None]) -> Digest | None:
    """Return the summary of concatenated payloads; None if one of them has none."""
    known = [digest for digest in digests if digest is not None]
    if len(known) < len(digests):
        return None
    types, fields, dense = zip(*known, strict=True)
    return reduce(or_, types), fields[0] if len(set(fields)) == 1 else -1, all(dense)


def _kept(column: Column, flags: bytes) -> Column:
    """Return the cells whose flags are not 0; there is one flag per row."""
    if KERNEL is None:
        return array(column.typecode, compress(column, flags))
    found: Column = KERNEL.kept(column, flags)
    return found


def _keeps_lines_whole(starts: Column, flags: bytes) -> bool:
    """Return whether each line keeps all or none of its rows, which share their start."""
    whole: bool | None = None if KERNEL is None else KERNEL.keeps_lines_whole(starts, flags)
    if whole is None:  # without the kernel, or lines are not in order
        dropped = set(compress(starts, map(not_, flags)))
        whole = dropped.isdisjoint(compress(starts, flags))
    return whole


_TYPES = [frozenset(kind for kind in ValueType if bits >> kind & 1) for bits in range(32)]
_ROW_SIZE = sum(column.itemsize for column in Lines().columns)
