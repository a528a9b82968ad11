"""Turns tables into records by whole columns, and row by row only if a row is bad."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Generic, NamedTuple, TypeVar

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.slurm.records import ParsedOutput, RejectedRow
from ccpipe.formats.slurm.table import (
    MAX_RECORD,
    CellReader,
    ColumnBlock,
    Header,
    RowSplitter,
    original_bytes,
    split_header,
    unique,
)

CHUNK = 2**15
"""Bytes read at once: small enough that their cells stay in the processor's cache."""
MAX_MEMO = 4096
"""Cached values per column."""
MAX_MEMO_TEXT = 200


Columns = Sequence[Sequence[str]]


class FieldSpec(NamedTuple):
    """One way to compute a field of a record."""

    name: str
    columns: tuple[str, ...]
    """In lower case; `read` is called with a cell of each."""
    read: Callable[..., Any] | None = None
    """Returns the value or raises DataError; default: the text, or None if empty."""
    varies: bool = False
    """Whether most cells differ, so that caching their values does not pay."""
    read_column: Callable[[Sequence[str]], Iterable[Any]] | None = None
    """Like `read`, for many cells at once, where that is faster."""
    is_free: bool = False
    """Whether a cell may contain the delimiter and newlines."""
    is_required: bool = False
    """Whether an empty cell is passed to `read`, which rejects it, instead of being None."""


class FieldReader(NamedTuple):
    """Reads a field from its columns of a table."""

    field: FieldSpec
    indices: tuple[int, ...]
    memo: "Memo | None"

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
        cells = columns[self.indices[0]]
        if self.field.read_column is not None:
            return self.field.read_column(cells)
        if self.memo is not None:
            return map(self.memo.__getitem__, cells)
        if read is None:
            return [cell or None for cell in cells]
        if len(self.indices) == 1 and not self.field.is_required:
            return [read(cell) if cell else None for cell in cells]
        return map(read, *(columns[index] for index in self.indices))

    def value(self, row: Sequence[str]) -> Any:
        """Read a cell; raises DataError that names the column."""
        try:
            (value,) = self.values([(cell,) for cell in row])
        except DataError as error:
            raise DataError(f"{self.field.columns[0]}: {error}") from None
        return value


class Memo(dict[str, Any]):
    """Caches the values of recently read texts."""

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
"""A Struct whose first field is required; the others have defaults."""


class TableReader(Generic[Row]):
    """Incremental reader of a table, in bounded memory."""

    def __init__(
        self,
        record: type[Row],
        fields: Sequence[FieldSpec],
        *,
        free: Collection[str] = (),
        fits: Mapping[str, CellReader] | None = None,
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        rest: str = "",
    ) -> None:
        """Create records of a msgspec Struct, whose first field is required.

        The last field, if named by `rest`, collects the columns that no other field reads. Cells
        of `free` columns, and of fields with `is_free`, may contain the delimiter and newlines.
        `fits` validates cells of columns that are read with others, or by no field. Without
        `columns` the first line is the header; raises DataError if it lacks the first field's
        column. The default `delimiter` is the header's first character that cannot be part of a
        name, else ``|``.
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
        """Reader and default of each field, up to the last one in the table."""
        self._splitter: RowSplitter | None = None
        if columns is not None:
            names = unique(name.lower() for name in columns)
            self._begin(names, delimiter or "|", line=1)

    @property
    def header(self) -> Header:
        """The columns; raises DataError before the header line was read."""
        if self._splitter is None:
            raise DataError("header line not read yet")
        return self._splitter.header

    def feed(self, chunk: bytes) -> ParsedOutput[Row]:
        """Read the complete rows; at most one row is held back.

        Raises DataError if the first line is not a header.
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
            found[-1] = _collector_of_rest(names, found, self._rest)
        if found[0] is None:
            raise DataError(f"no JobID column in {', '.join(names)!r:.80}")
        while found[-1] is None:
            found.pop()
        defaults = (None, *self._record.__struct_defaults__)
        self._sources = list(zip(found, defaults, strict=False))
        fits = {
            source.field.columns[0]: source.field.read
            for source in reversed(found)
            if source and source.field.read and len(source.indices) == 1
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
            return self._read_rows(self._splitter.realign(block))
        return ParsedOutput(self._corrected(records, columns), block.rejected)

    def _corrected(self, records: list[Row], columns: Columns) -> list[Row]:
        """Correct records by other cells of their rows; by default, return them unchanged."""
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


def _collector_of_rest(
    names: Sequence[str], found: Sequence[FieldReader | None], field: str
) -> FieldReader | None:
    """Return a reader that collects the non-empty cells that no field reads into a mapping."""
    known = {index for source in found if source for index in source.indices}
    indices = tuple(at for at, name in enumerate(names) if name and at not in known)
    left = tuple(names[at] for at in indices)

    def mapping(*cells: str) -> dict[str, str]:
        return {name: cell for name, cell in zip(left, cells, strict=True) if cell}

    return (
        FieldReader(FieldSpec(field, left, mapping, is_required=True), indices, None)
        if left
        else None
    )


def _repaired(block: ColumnBlock) -> Columns:
    if block.is_utf8:
        return block.columns
    return tuple([repaired(cell) for cell in column] for column in block.columns)


def repaired(text: str) -> str:
    """Replace bytes that are not UTF-8 by U+FFFD."""
    return original_bytes(text).decode("utf-8", "replace")
