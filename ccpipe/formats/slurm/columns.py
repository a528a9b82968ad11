"""From tables to records: whole columns at a time, row by row only where one is bad."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Generic, NamedTuple, TypeVar

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.slurm.records import ParsedOutput, RejectedRow
from ccpipe.formats.slurm.table import (
    MAX_RECORD,
    ColumnBlock,
    Fits,
    Header,
    RowSplitter,
    original_bytes,
    split_header,
    unique,
)

CHUNK = 2**15
"""Bytes that are read at once: so many that their cells stay in the processor's cache."""
MAX_MEMO = 4096
"""Texts of a column whose values are remembered."""
MAX_MEMO_TEXT = 200


Columns = Sequence[Sequence[str]]


class FieldSpec(NamedTuple):
    """One way to a field of a record."""

    name: str
    columns: tuple[str, ...]
    """In lower case; `read` takes a cell of each."""
    read: Callable[..., Any] | None = None
    """Returns the value or raises DataError; without it, the text, or None if it is empty."""
    varies: bool = False
    """Whether most cells differ, so that remembering their values is not worth it."""
    read_column: Callable[[Sequence[str]], Iterable[Any]] | None = None
    """What does the same for many cells, where that is faster."""
    is_free: bool = False
    """Whether a cell may hold the delimiter and newlines."""
    is_required: bool = False
    """Whether an empty cell is for `read` to refuse, rather than None."""


class FieldReader(NamedTuple):
    """Where in a table the values of a field are."""

    field: FieldSpec
    places: tuple[int, ...]
    remembered: "Memo | None"

    @classmethod
    def find(cls, fields: Iterable[FieldSpec], columns: Sequence[str]) -> "FieldReader | None":
        for field in fields:
            if all(name in columns for name in field.columns):
                is_plain = len(field.columns) == 1 and field.read and not field.varies
                memo = Memo(field.read) if is_plain and field.read else None
                return cls(field, tuple(map(columns.index, field.columns)), memo)
        return None

    def values(self, columns: Columns) -> Iterable[Any]:
        read = self.field.read
        cells = columns[self.places[0]]
        if self.field.read_column is not None:
            return self.field.read_column(cells)
        if self.remembered is not None:
            return map(self.remembered.__getitem__, cells)
        if read is None:
            return [cell or None for cell in cells]
        if len(self.places) == 1 and not self.field.is_required:
            return [read(cell) if cell else None for cell in cells]
        return map(read, *(columns[place] for place in self.places))

    def value(self, row: Sequence[str]) -> Any:
        """Read a cell; raises DataError that names the column."""
        try:
            (value,) = self.values([(cell,) for cell in row])
        except DataError as error:
            raise DataError(f"{self.field.columns[0]}: {error}") from None
        return value


class Memo(dict[str, Any]):
    """The values of the texts that were read last."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, text: str) -> Any:
        value = self._read(text)
        if len(text) <= MAX_MEMO_TEXT:
            if len(self) >= MAX_MEMO:
                self.clear()
            self[text] = value
        return value


Row = TypeVar("Row", bound=msgspec.Struct)
"""A Struct whose first field every row must have; the others have defaults."""


class TableReader(Generic[Row]):
    """Reads a table as its bytes come, in bounded memory."""

    def __init__(
        self,
        record: type[Row],
        fields: Sequence[FieldSpec],
        *,
        free: Collection[str] = (),
        fits: Mapping[str, Fits] | None = None,
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        rest: str = "",
    ) -> None:
        """Make records of a msgspec Struct, whose first field every row must have.

        The field `rest`, the last one, takes the columns that no other field reads. Cells of the
        `free` columns, and of fields that say so, may hold the delimiter and newlines. `fits` says
        what columns can hold that are read together with others, or not at all. Without `columns`
        the first line names them; without that of the first field, it raises DataError. Without a
        `delimiter` it is the first character of that line that no name holds, else ``|``.
        """
        self._record = record
        self._fields = fields
        self._free = frozenset(free).union(*(field.columns for field in fields if field.is_free))
        if delimiter is not None and (not delimiter or "\n" in delimiter):
            raise DataError(f"{delimiter!r} cannot be a delimiter")
        self._fits = dict(fits or {})
        self._rest = rest
        self._delimiter = delimiter
        self._start = b""
        self._sources: list[tuple[FieldReader | None, Any]] = []
        """Of each field up to the last that the table has, with its default."""
        self._splitter: RowSplitter | None = None
        if columns is not None:
            names = unique(name.lower() for name in columns)
            self._begin(names, delimiter or "|", line=1)

    @property
    def header(self) -> Header:
        """The columns; raises DataError before the line that names them."""
        if self._splitter is None:
            raise DataError("no line of names yet")
        return self._splitter.header

    def feed(self, chunk: bytes) -> ParsedOutput[Row]:
        """Read the rows that are complete; no more than one is held back.

        Raises DataError if the first line does not name the columns.
        """
        return self._feed(chunk, is_last=False)

    def flush(self) -> ParsedOutput[Row]:
        return self._feed(b"", is_last=True)

    def read(self, payload: bytes) -> ParsedOutput[Row]:
        whole: ParsedOutput[Row] = ParsedOutput()
        for start in range(0, len(payload), CHUNK):
            whole.extend(self.feed(payload[start : start + CHUNK]))
        whole.extend(self.flush())
        return whole

    def read_stream(self, stream: IO[bytes]) -> Iterator[ParsedOutput[Row]]:
        while chunk := stream.read(CHUNK):
            yield self.feed(chunk)
        yield self.flush()

    def _feed(self, chunk: bytes, *, is_last: bool) -> ParsedOutput[Row]:
        if self._splitter is None:
            self._start += chunk
            line, end, chunk = self._start.partition(b"\n")
            if not end and not is_last:
                if len(line) > MAX_RECORD:
                    raise DataError(f"no line end in the first {MAX_RECORD} bytes")
                return ParsedOutput()
            self._start = b""
            if not line and not chunk:
                return ParsedOutput()
            names, delimiter = split_header(line.decode("utf-8", "replace"), self._delimiter)
            self._begin(names, delimiter, line=2)
        assert self._splitter is not None
        return self._read(self._splitter.feed(chunk, is_last=is_last))

    def _begin(self, names: tuple[str, ...], delimiter: str, *, line: int) -> None:
        found = [
            FieldReader.find((field for field in self._fields if field.name == name), names)
            for name in self._record.__struct_fields__
        ]
        if self._rest:
            found[-1] = _rest_of(names, found, self._rest)
        if found[0] is None:
            raise DataError(f"no column with the number of the job in {', '.join(names)!r:.200}")
        while found[-1] is None:
            found.pop()
        defaults = (None, *self._record.__struct_defaults__)
        self._sources = list(zip(found, defaults, strict=False))
        fits = {
            source.field.columns[0]: source.field.read
            for source in reversed(found)
            if source and source.field.read and len(source.places) == 1
        } | self._fits
        header = Header(names, delimiter, self._free, fits)
        self._splitter = RowSplitter(header, line=line)

    def _read(self, block: ColumnBlock) -> ParsedOutput[Row]:
        try:
            columns = _repaired(block)
            values = [
                source.values(columns) if source else itertools.repeat(default)
                for source, default in self._sources
            ]
            records = list(map(self._record, *values)) if block.lines else []
        except DataError:
            assert self._splitter is not None
            return self._read_rows(self._splitter.look_again(block))
        return ParsedOutput(self._corrected(records, columns), block.rejected)

    def _corrected(self, records: list[Row], columns: Columns) -> list[Row]:
        """Correct records by what other cells of their rows say; here, leave them."""
        del columns
        return records

    def _read_rows(self, block: ColumnBlock) -> ParsedOutput[Row]:
        assert self._splitter is not None
        delimiter = self._splitter.header.delimiter
        reading: ParsedOutput[Row] = ParsedOutput(rejected=block.rejected)
        for position, row in enumerate(zip(*_repaired(block), strict=True)):
            try:
                values = [
                    source.value(row) if source else default for source, default in self._sources
                ]
                cells = [(cell,) for cell in row]
                reading.records += self._corrected([self._record(*values)], cells)
            except DataError as error:
                original = original_bytes(
                    delimiter.join(column[position] for column in block.columns)
                )
                rejected = RejectedRow(block.lines[position], str(error), original)
                reading.rejected.append(rejected)
        reading.rejected.sort(key=lambda rejected: rejected.line)
        return reading


def _rest_of(
    names: Sequence[str], found: Sequence[FieldReader | None], field: str
) -> FieldReader | None:
    """Return what makes a mapping of the cells that no field reads and that are not empty."""
    known = {place for source in found if source for place in source.places}
    places = tuple(at for at, name in enumerate(names) if name and at not in known)
    left = tuple(names[at] for at in places)

    def mapping(*cells: str) -> dict[str, str]:
        return {name: cell for name, cell in zip(left, cells, strict=True) if cell}

    return (
        FieldReader(FieldSpec(field, left, mapping, is_required=True), places, None)
        if left
        else None
    )


def _repaired(block: ColumnBlock) -> Columns:
    if block.is_utf8:
        return block.columns
    return tuple([repaired(cell) for cell in column] for column in block.columns)


def repaired(text: str) -> str:
    """Put U+FFFD for bytes that are not UTF-8."""
    return original_bytes(text).decode("utf-8", "replace")
