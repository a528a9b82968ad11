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
from ccpipe.formats.gridengine.reader import Rejected, blocks, parse, parse_half, split_lines
from ccpipe.formats.gridengine.record import Origin
from ccpipe.formats.gridengine.table import COLUMNS, PLACE, SCHEMA, from_records
from ccpipe.formats.gridengine.whole_blocks import COLONS, UNUSUAL, whole_classic, whole_jsonl

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

    The result is always that of reading line by line, with one exception: in colon-separated
    lines, fields that are not asked for are not checked either, but for those that tell the
    variant. ``line`` and ``offset`` (see ``PLACE``) are columns that one must ask for.

    Raises
    ------
    KeyError
        for a column that does not exist.

    """
    for name in columns:
        SCHEMA.field(name)
    plain = [name for name in columns if name not in PLACE]
    is_json = payload.startswith(b"{")
    if not is_json and len(plain) == len(columns):  # nobody needs to know where lines begin
        table = _whole(payload, plain)
        if table is not None:
            return Columns(table, [], len(payload), table.num_rows)
    lines = split_lines(payload)
    table = _whole(lines, plain) if is_json and payload.endswith(b"\n") else None
    if table is None:
        return _piecewise(payload, lines, columns, offset, line)
    places = _places(lines, offset, line) if len(plain) < len(columns) else []
    return Columns(_with_places(table, places, columns), [], len(payload), len(lines))


def read_columns_stream(stream: IO[bytes], columns: Sequence[str] = COLUMNS) -> Iterator[Columns]:
    """Read a whole file, block by block, in bounded memory."""
    offset, line = 0, 1
    for block in blocks(stream, BLOCK):
        part = read_columns(block, columns, offset=offset, line=line)
        offset += part.size
        line += part.lines
        yield part


def _whole(block: bytes | list[bytes], columns: Sequence[str]) -> pa.Table | None:
    """Read a block in which every line is a usual one; None where one is not."""
    try:
        if isinstance(block, list):
            return whole_jsonl(block, columns)
        return whole_classic(block, columns) if block.endswith(b"\n") else None
    except UNUSUAL:
        return None


def _places(lines: Sequence[bytes], offset: int, line: int) -> list[Origin]:
    starts = itertools.accumulate((len(text) + 1 for text in lines), initial=offset)
    return [
        Origin("", start, line + i) for i, start in zip(range(len(lines)), starts, strict=False)
    ]


def _with_places(table: pa.Table, places: Sequence[Origin], columns: Sequence[str]) -> pa.Table:
    """Add the columns of a place that are asked for, and put all in the order asked for."""
    for name in PLACE:
        if name in columns:
            values = pa.array([getattr(place, name) for place in places], pa.int64())
            table = table.append_column(SCHEMA.field(name), values)
    return table.select(columns)


def _piecewise(
    payload: bytes, lines: list[bytes], columns: Sequence[str], offset: int, line: int
) -> Columns:
    """Read the lines of the usual length together, the others one by one, and keep their order."""
    places = _places(lines, offset, line)
    ended = len(lines) - (not payload.endswith(b"\n"))
    usual = [i for i, text in enumerate(lines[:ended]) if text.count(b":") == COLONS]
    plain = [name for name in columns if name not in PLACE]
    together = _whole(b"\n".join([*(lines[i] for i in usual), b""]), plain)
    if together is None or together.num_rows != len(usual):
        together, usual = from_records([], plain), []
    result = Columns(together, [], len(payload), len(lines))
    records, order = [], []
    for i in sorted(set(range(len(lines))).difference(usual)):
        try:
            reads = parse if i < ended else parse_half
            record = reads(lines[i], "", places[i].offset, places[i].line)
        except DataError as error:
            place = places[i]
            result.rejected.append(Rejected(place.line, place.offset, str(error), lines[i]))
        else:
            if record is not None:
                records.append(record)
                order.append(i)
    together = _with_places(together, [places[i] for i in usual], columns)
    result.table = pa.concat_tables([from_records(records, columns), together])
    if usual and order:
        positions = sorted(range(len(result.table)), key=[*order, *usual].__getitem__)
        result.table = result.table.take(positions)
    return result
