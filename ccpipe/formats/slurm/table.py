r"""Rows of a table with unquoted cells: ``sacct -P``, ``squeue -o``, ``sinfo -o``.

Delimiters and newlines inside texts are not escaped. Row boundaries are inferred from the types of
the other cells:

* A line with fewer delimiters than the header, or whose first cells cannot begin a row, continues
  the line before it.
* Excess delimiters are assigned to columns of free text such that every other cell is valid for
  its column. If two adjacent text columns qualify, the first gets the whole text and the other is
  empty; if another column lies between them, the row is rejected.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.slurm.records import RejectedRow

MAX_RECORD = 2**20
"""Bytes of a row with all its lines; longer rows are rejected."""
MAX_COLUMNS = 1000
MAX_EXTRA = 1000
"""Excess delimiters allowed in a row."""

MAX_CHECKS = 2
"""Cells checked to decide whether a line begins a row."""
MAX_ATTEMPTS = 8
"""How often a row is aligned as a whole to decide whether it is complete."""

CellReader = Callable[[str], Any]
"""Reads a cell; raises DataError or ValueError if it is invalid for its column."""

_NAME = re.compile(r"[A-Za-z0-9_:()/. *%-]*")


@dataclass(frozen=True)
class Header:
    """The columns of a table."""

    names: tuple[str, ...]
    """In lower case; the column after a trailing delimiter is named ""."""
    delimiter: str
    free: frozenset[str]
    fits: Mapping[str, CellReader]
    """The reader of each column that does not accept every text."""

    @property
    def last(self) -> int:
        return len(self.names) - 1

    @functools.cached_property
    def lead(self) -> int:
        """The number of columns before the first that may contain a newline."""
        return next((i for i, name in enumerate(self.names) if name in self.free), self.last)

    @functools.cached_property
    def _checks(self) -> list[tuple[int, CellReader]]:
        columns = enumerate(self.names[: max(self.lead, 1)])
        return [(i, self.fits[name]) for i, name in columns if name in self.fits][:MAX_CHECKS]

    def begins(self, line: str) -> bool:
        if not self._checks:
            return True
        cells = line.split(self.delimiter, self._checks[-1][0] + 1)
        return all(_takes(reader, cells[column]) for column, reader in self._checks)

    def accepts(self, column: int, cell: str) -> bool:
        reader = self.fits.get(self.names[column])
        return reader is None or _takes(reader, cell)


def _takes(reader: CellReader, cell: str) -> bool:
    try:
        reader(cell)
    except (DataError, ValueError):
        return False
    return True


def split_header(line: str, delimiter: str | None = None) -> tuple[tuple[str, ...], str]:
    """Split the header line; the delimiter is its first character not allowed in names.

    A leading byte order mark, as editors write, is ignored. Raises DataError if there are several
    names without a delimiter.
    """
    line = line.removeprefix("\ufeff")
    if delimiter is None:
        first = _NAME.match(line)
        end = first.end() if first else 0
        delimiter = line[end : end + 1]
        if not delimiter and " " in line.strip():
            raise DataError(f"no delimiter between the names of the columns: {line!r:.80}")
    names = line.split(delimiter) if delimiter else [line]
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{len(names)} columns, more than {MAX_COLUMNS}")
    return unique(name.strip().lower() for name in names), delimiter or "|"


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Distinguish columns of the same name: the second ``jobid`` is ``jobid#2``."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(found)


class ColumnBlock(NamedTuple):
    """Some rows, by column; cells are as printed."""

    columns: tuple[Sequence[str], ...]
    lines: Sequence[int]
    """The number of each row's first line, from 1."""
    rejected: list[RejectedRow]
    is_utf8: bool = True
    """If not, invalid bytes are lone surrogates."""
    is_plain: bool = False
    """Whether each line has as many delimiters as the header, so that no row was aligned."""


class RowSplitter:
    """Splits chunks of bytes into rows, buffering at most one row."""

    def __init__(self, header: Header, *, line: int = 1) -> None:
        self.header = header
        self._line = line
        self._rest = b""
        self._skips = False
        self._is_utf8 = True

    def feed(self, chunk: bytes, *, is_last: bool = False) -> ColumnBlock:
        """Return the complete rows; after the last chunk, also the buffered ones."""
        lines = self._complete_lines(chunk, is_last=is_last)
        is_too_long = len(self._rest) > MAX_RECORD
        block = self._rows(lines, is_last=is_last or is_too_long)
        if is_too_long:
            reason = f"row of more than {MAX_RECORD} bytes"
            block.rejected.append(RejectedRow(self._line, reason, self._rest[:MAX_RECORD]))
            self._rest, self._skips = b"", True
        return block

    def _rows(self, lines: list[str], *, is_last: bool) -> ColumnBlock:
        rows = [line.split(self.header.delimiter) for line in lines]
        sizes = [len(row) for row in rows]
        if sizes.count(len(self.header.names)) < len(sizes):
            return self._irregular_rows(lines, [size - 1 for size in sizes], is_last=is_last)
        taken = len(lines) if is_last else max(len(lines) - 1, 0)
        self._push_back(lines[taken:])
        numbers = range(self._line, self._line + taken)
        self._line += taken
        return ColumnBlock(self._columns(rows[:taken]), numbers, [], self._is_utf8, is_plain=True)

    def realign(self, block: ColumnBlock) -> ColumnBlock:
        """Align each row of a block; some may be incomplete despite their delimiters."""
        if not (block.is_plain and block.lines):
            return block
        lines = [self.header.delimiter.join(row) for row in zip(*block.columns, strict=True)]
        counts = [self.header.last] * len(lines)
        splitter = RowSplitter(self.header, line=block.lines[0])
        found = splitter._irregular_rows(lines, counts, is_last=True)
        return found._replace(is_utf8=block.is_utf8, rejected=block.rejected + found.rejected)

    def _complete_lines(self, chunk: bytes, *, is_last: bool) -> list[str]:
        if self._skips:  # the rest of an oversized line
            end = chunk.find(b"\n") + 1
            if not end and not is_last:
                return []
            self._skips, self._line = False, self._line + 1
            chunk = chunk[end:] if end else b""
        payload = self._rest + chunk
        end = len(payload) if is_last else payload.rfind(b"\n") + 1
        self._rest = payload[end:]
        if not end:
            return []
        try:
            text = payload[:end].decode()
            self._is_utf8 = True
        except UnicodeDecodeError:
            text = payload[:end].decode("utf-8", "surrogateescape")
            self._is_utf8 = False
        return text.removesuffix("\n").split("\n")

    def _push_back(self, lines: Sequence[str]) -> None:
        if lines:
            held = "".join(f"{line}\n" for line in lines)
            self._rest = held.encode("utf-8", "surrogateescape") + self._rest

    def _columns(self, rows: Sequence[Sequence[str]]) -> tuple[Sequence[str], ...]:
        return tuple(zip(*rows, strict=True)) if rows else ((),) * len(self.header.names)

    def _irregular_rows(self, lines: list[str], counts: list[int], *, is_last: bool) -> ColumnBlock:
        groups: list[tuple[int, int]] = []
        row = _Row(self.header)
        begin = 0
        for position, (line, delimiters) in enumerate(zip(lines, counts, strict=True)):
            if position > begin and row.ends_before(line, delimiters):
                groups.append((begin, position))
                row, begin = _Row(self.header), position
            row.add(line, delimiters)
        if is_last and begin < len(lines):
            groups.append((begin, len(lines)))
            begin = len(lines)
        self._push_back(lines[begin:])
        block = self._aligned(lines, groups)
        self._line += begin
        return block

    def _aligned(self, lines: list[str], groups: list[tuple[int, int]]) -> ColumnBlock:
        rows, starts, rejected = [], [], []
        for begin, end in groups:
            original = "\n".join(lines[begin:end]).rstrip("\n")
            try:
                if cells := align(original, self.header):
                    rows.append(cells)
                    starts.append(self._line + begin)
            except DataError as error:
                start = original_bytes(original[:MAX_RECORD])
                rejected.append(RejectedRow(self._line + begin, str(error), start))
        return ColumnBlock(self._columns(rows), starts, rejected, self._is_utf8)


class _Row:
    """The lines of a row that may be incomplete."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.lines: list[str] = []
        self.delimiters = 0
        self.size = 0
        self.attempts = 0

    def add(self, line: str, delimiters: int) -> None:
        self.lines.append(line)
        self.delimiters += delimiters
        self.size += len(line) + 1

    def ends_before(self, line: str, delimiters: int) -> bool:
        """Whether the next line, with that many delimiters, belongs to another row."""
        header = self.header
        if self.size > MAX_RECORD:
            return True
        if self.delimiters < header.last and delimiters < header.last:
            return False
        if delimiters >= header.lead and header.begins(line):
            return True
        return header.names[-1] not in header.free and self._is_whole()

    def _is_whole(self) -> bool:
        if self.delimiters < self.header.last or self.attempts == MAX_ATTEMPTS:
            return False
        self.attempts += 1
        try:
            cells = align("\n".join(self.lines), self.header)
        except DataError:
            return False
        return all(self.header.accepts(column, cell) for column, cell in enumerate(cells))


def original_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def align(original: str, header: Header) -> list[str]:
    """Split a row into cells, even if texts contain delimiters; no cells for an empty line.

    Raises DataError if there are too few delimiters, or excess ones could be in several columns
    that are not all text.
    """
    if len(original) > MAX_RECORD:
        raise DataError(f"row of more than {MAX_RECORD} bytes")
    if not original:
        return []
    cells = original.split(header.delimiter)
    extra = len(cells) - len(header.names)
    if extra == 0:
        return cells
    if extra < 0:
        raise DataError(f"expected {len(header.names)} fields, got {len(cells)}")
    if extra > MAX_EXTRA:
        raise DataError(f"{extra} more delimiters than the header has")
    return _merged(cells, header, _offsets(cells, header, extra))


def _offsets(cells: list[str], header: Header, extra: int) -> list[set[int]]:
    """Return, for each column, at how many cells beyond its position it can begin.

    A pass from the left finds the offsets that the columns before allow, a pass from the right
    keeps those that the columns behind allow.
    """
    width = len(header.names)
    is_free = [name in header.free for name in header.names]
    reached = [{0}]
    for column in range(width):
        before = reached[-1]
        if is_free[column]:
            reached.append(set(range(min(before), extra + 1)) if before else set())
        else:
            reached.append({x for x in before if header.accepts(column, cells[column + x])})
    reached[width] &= {extra}
    for column in reversed(range(width)):
        after = reached[column + 1]
        if is_free[column]:
            last = max(after, default=-1)
            reached[column] = {x for x in reached[column] if x <= last}
        else:
            reached[column] &= after
    return reached


def _merged(cells: list[str], header: Header, offsets: list[set[int]]) -> list[str]:
    if not all(offsets):
        raise DataError(
            f"expected {len(header.names)} fields, got {len(cells)}, and no text column contains"
            " the excess delimiters"
        )
    merged: list[str] = []
    column = 0
    while column < len(header.names):
        end = column + 1
        while len(offsets[end]) > 1:
            end += 1
        ambiguous = header.names[column:end]
        if len(ambiguous) > 1 and not header.free.issuperset(ambiguous):
            raise DataError(
                f"expected {len(header.names)} fields, got {len(cells)}: the excess"
                f" delimiters could be in more than one of the columns {', '.join(ambiguous):.200}"
            )
        first, beyond = column + min(offsets[column]), end + min(offsets[end])
        merged.append(header.delimiter.join(cells[first:beyond]))
        merged += [""] * (len(ambiguous) - 1)
        column = end
    return merged
