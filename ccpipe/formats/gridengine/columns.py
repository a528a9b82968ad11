"""Accounting as columns: whole blocks at a time, for those who sum and search.

>>> read_columns(b"# nothing but a comment\\n", ["job_number", "cpu"]).table.num_rows
0
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

import pyarrow as pa

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.plain_lines import KERNEL, MAX_PAYLOAD, Plain, plain_lines
from ccpipe.formats.gridengine.reader import Rejected, blocks, parse, parse_half
from ccpipe.formats.gridengine.record import Origin
from ccpipe.formats.gridengine.table import COLUMNS, PLACE, SCHEMA, from_records

__all__ = ["COLUMNS", "PLACE", "SCHEMA", "Columns", "read_columns", "read_columns_stream"]


BLOCK = 4 * 2**20
"""Bytes read at once: large enough for what each block costs."""


@dataclass(slots=True)
class Columns:
    """What a stretch of a file held."""

    table: pa.Table
    rejected: list[Rejected] = field(default_factory=list)
    size: int = 0
    """Its bytes."""
    lines: int = 0
    """Its lines, with comments and empty ones."""


def read_columns(
    payload: bytes, columns: Sequence[str] = COLUMNS, *, offset: int = 0, line: int = 1
) -> Columns:
    """Read the lines of a payload as ``read`` does, into a table of these columns.

    The result is that of reading line by line. Only the twin in Python, which runs where the
    kernel was not built, has one exception: in colon-separated lines, fields that are not asked
    for are not checked either, but for those that tell the variant. ``line`` and ``offset`` (see
    ``PLACE``) are columns that one must ask for.

    Raises
    ------
    KeyError
        for a column that does not exist.

    """
    for name in columns:
        SCHEMA.field(name)
    if KERNEL is not None and len(payload) <= MAX_PAYLOAD:
        plain = plain_lines(payload, columns, line, offset)
    else:
        from ccpipe.formats.gridengine.whole_blocks import plain_in_python

        plain = plain_in_python(payload, columns, line, offset)
    return with_odd(payload, plain, columns, line, offset)


def read_columns_stream(stream: IO[bytes], columns: Sequence[str] = COLUMNS) -> Iterator[Columns]:
    """Read a whole file, block by block, in bounded memory."""
    offset, line = 0, 1
    for block in blocks(stream, BLOCK):
        part = read_columns(block, columns, offset=offset, line=line)
        offset += part.size
        line += part.lines
        yield part


def with_odd(
    payload: bytes, plain: Plain, columns: Sequence[str], line: int, offset: int
) -> Columns:
    """Read the odd lines one by one, and put their records among the plain ones."""
    result = Columns(plain.table, [], len(payload), plain.lines)
    records, rows = [], []
    for odd in plain.odd:
        text = payload[odd.start : odd.end]
        place = Origin("", offset + odd.start, line + odd.line)
        reads = parse if odd.end < len(payload) else parse_half
        try:
            record = reads(text, "", place.offset, place.line)
        except DataError as error:
            result.rejected.append(Rejected(place.line, place.offset, str(error), text))
        else:
            if record is not None:
                records.append(record)
                rows.append(odd.row)
    if records:
        tables = pa.concat_tables([plain.table, from_records(records, columns)])
        result.table = tables.take(_order(plain.table.num_rows, rows))
    return result


def _order(count: int, rows: Sequence[int]) -> list[int]:
    """Return the order of so many rows and of others behind them, each to go before one."""
    order: list[int] = []
    for number, (after, before) in enumerate(itertools.pairwise([0, *rows])):
        order += (*range(after, before), count + number)
    return [*order, *range(rows[-1], count)]
