"""Accounting as columns, a whole block at a time: for sums and searches.

>>> read_columns(b"# nothing but a comment\\n", ["job_number", "cpu"]).table.num_rows
0
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ccpipe.errors import DataError, MissingExtra
from ccpipe.formats.files import ReadableStream, read_full
from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.plain_lines import MAX_PAYLOAD, plain_lines
from ccpipe.formats.gridengine.reader import RejectedAccountingLine, blocks, parse, parse_last, read
from ccpipe.formats.gridengine.table import COLUMNS, PLACE, SCHEMA, from_records

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

__all__ = ["COLUMNS", "PLACE", "SCHEMA", "ParsedTable", "read_columns", "read_columns_stream"]


BLOCK = 4 * 2**20
"""Bytes read at once; each block has a fixed cost, so a large one is cheaper."""


@dataclass(slots=True)
class ParsedTable:
    """The records of a part of a file."""

    table: pa.Table
    rejected: list[RejectedAccountingLine] = field(default_factory=list)
    size: int = 0
    """Bytes of the part."""
    lines: int = 0
    """Lines of the part, comments and empty ones included."""


def read_columns(
    payload: bytes, columns: Sequence[str] = COLUMNS, *, offset: int = 0, line: int = 1
) -> ParsedTable:
    """Read the lines of a payload as ``read`` does, into a table of these columns.

    Every line is checked as a whole, whichever columns are asked for. `offset` and `line` say
    where in its file the payload begins; the columns of that name (``PLACE``) are read on request.

    Raises KeyError for a column that does not exist.
    """
    for name in columns:
        SCHEMA.field(name)
    if KERNEL is None or len(payload) > MAX_PAYLOAD:
        return read_in_python(payload, columns, line, offset)
    return read_compiled(payload, columns, line, offset)


def read_columns_stream(
    stream: ReadableStream, columns: Sequence[str] = COLUMNS
) -> Iterator[ParsedTable]:
    """Read a whole file, block by block, in bounded memory."""
    offset, line = 0, 1
    for block in blocks(functools.partial(read_full, stream), BLOCK):
        part = read_columns(block, columns, offset=offset, line=line)
        offset += part.size
        line += part.lines
        yield part


def read_in_python(payload: bytes, columns: Sequence[str], line: int, offset: int) -> ParsedTable:
    """Read line by line; what the compiled kernel must agree with."""
    reading = read(payload, offset=offset, line=line)
    table = from_records(reading.records, columns)
    return ParsedTable(table, reading.rejected, reading.size, reading.lines)


def read_compiled(payload: bytes, columns: Sequence[str], line: int, offset: int) -> ParsedTable:
    """Read plain lines with the kernel and the few others one by one, in the order of the file."""
    plain = plain_lines(payload, columns, line, offset)
    result = ParsedTable(plain.table, [], len(payload), plain.lines)
    records, rows = [], []
    for odd in plain.odd:
        text = payload[odd.start : odd.end]
        start, number = offset + odd.start, line + odd.line
        reads = parse if odd.end < len(payload) else parse_last
        try:
            record = reads(text, "", start, number)
        except DataError as error:
            result.rejected.append(RejectedAccountingLine(number, start, str(error), text))
        else:
            if record is not None:
                records.append(record)
                rows.append(odd.row)
    if records:
        tables = pa.concat_tables([plain.table, from_records(records, columns)])
        result.table = tables.take(_order(plain.table.num_rows, rows))
    return result


def _order(count: int, rows: Sequence[int]) -> list[int]:
    """Return the order of `count` rows and further ones behind them, each inserted at its row."""
    order: list[int] = []
    for number, (after, before) in enumerate(itertools.pairwise([0, *rows])):
        order += (*range(after, before), count + number)
    return [*order, *range(rows[-1], count)]
