"""Selected accounting records: columns find them, and only those found are parsed in full."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ccpipe.accounting.files import BEGIN, FileBlock, Files, Start
from ccpipe.formats.gridengine import Accounting, ParsedChunk, RejectedAccountingLine, read
from ccpipe.formats.gridengine.reader import lines_of_jobs

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.selection import RecordSelection


def read_records(
    paths: Sequence[Path], selection: "RecordSelection", files: Files, start: Start = BEGIN
) -> Iterator[Accounting]:
    """Yield the selected records in the order of the files."""

    def find(block: FileBlock) -> ParsedChunk:
        return find_records(block, selection)

    for block, found in files.each_block(paths, find, start):
        for record in found.records:
            origin = record.origin
            place = msgspec.structs.replace(origin, line=origin.line + block.before)
            yield msgspec.structs.replace(record, origin=place)


def find_records(block: FileBlock, selection: "RecordSelection") -> ParsedChunk:
    """Return the selected records of a block, and its lines that are not records.

    Line numbers count from the start of the block. Where jobs are selected by number, bad lines
    that plainly are of another job are left out.
    """
    if not selection.columns:
        return read(block.payload, file=block.name, offset=block.offset)
    if selection.jobs and not selection.names:
        return _search(block, selection)
    return _select(block, selection)


def _select(block: FileBlock, selection: "RecordSelection") -> ParsedChunk:
    """Read the columns of all lines, then the whole records that are selected."""
    from ccpipe.formats.gridengine.columns import PLACE, read_columns

    payload, name, offset, _ = block
    part = read_columns(payload, selection.columns, offset=offset)
    found = ParsedChunk(rejected=part.rejected, lines=part.lines)
    if not selection.apply(part.table).num_rows:
        return found
    part = read_columns(payload, (*selection.columns, *PLACE), offset=offset)
    for row in selection.apply(part.table).select(PLACE).to_pylist():
        text = line_at(payload, row["offset"] - offset)
        found.records += read(text, file=name, offset=row["offset"], line=row["line"]).records
    return found


def _search(block: FileBlock, selection: "RecordSelection") -> ParsedChunk:
    """Do the same with the lines that may be of the selected jobs."""
    payload, name, offset, _ = block
    starts, numbers, count = lines_of_jobs(payload, selection.jobs)
    lines = b"".join(line_at(payload, start) for start in starts)
    found = _select(FileBlock(lines, name, 0), selection)
    found.lines = count

    def place(line: int) -> tuple[int, int]:
        return numbers[line - 1], offset + starts[line - 1]

    found.rejected = [RejectedAccountingLine(*place(bad.line), *bad[2:]) for bad in found.rejected]
    for i, record in enumerate(found.records):
        line, start = place(record.origin.line)
        origin = msgspec.structs.replace(record.origin, line=line, offset=start)
        found.records[i] = msgspec.structs.replace(record, origin=origin)
    return found


def line_at(payload: bytes, start: int) -> bytes:
    """Return the line that begins there, with its line end if it has one."""
    return payload[start : payload.find(b"\n", start) + 1 or None]
