"""Selected accounting records: columns find them, and only those found are parsed in full."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ccpipe.accounting.files import BEGIN, Block, Files, Start
from ccpipe.formats.gridengine import Accounting, Reading, parse, read

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.selection import Selection

MAX_SEARCHED = 4
MIN_SEARCHED = 1000
"""More job numbers, or smaller ones, which are in most lines, are not searched for as bytes."""


def read_records(
    paths: Sequence[Path], selection: "Selection", files: Files, start: Start = BEGIN
) -> Iterator[Accounting]:
    """Yield the selected records in the order of the files."""

    def find(block: Block) -> Reading:
        return find_records(block, selection)

    for block, found in files.each_block(paths, find, start):
        for record in found.records:
            origin = record.origin
            place = msgspec.structs.replace(origin, line=origin.line + block.before)
            yield msgspec.structs.replace(record, origin=place)


def find_records(block: Block, selection: "Selection") -> Reading:
    """Return the selected records of a block, and its lines that are not records.

    Line numbers count from the start of the block. Where jobs are selected by number, a bad line
    is returned only if it holds one of the numbers.
    """
    if not selection.columns:
        return read(block.payload, file=block.name, offset=block.offset)
    jobs = () if selection.names else selection.jobs
    if 0 < len(jobs) <= MAX_SEARCHED and min(jobs) >= MIN_SEARCHED:
        return _search(block, selection)
    found = _select(block, selection)
    if jobs:
        found.rejected = [bad for bad in found.rejected if lines_with(bad.original, jobs)]
    return found


def _select(block: Block, selection: "Selection") -> Reading:
    """Read the columns of all lines, then the whole records that are selected."""
    from ccpipe.formats.gridengine.columns import PLACE, read_columns

    payload, name, offset, _ = block
    part = read_columns(payload, selection.columns, offset=offset)
    found = Reading(rejected=part.rejected, lines=part.lines)
    if not selection.apply(part.table).num_rows:
        return found
    part = read_columns(payload, (*selection.columns, *PLACE), offset=offset)
    for row in selection.apply(part.table).select(PLACE).to_pylist():
        text = line_at(payload, row["offset"] - offset)
        if record := parse(text, name, row["offset"], row["line"]):
            found.records.append(record)
    return found


def _search(block: Block, selection: "Selection") -> Reading:
    """Do the same with the few lines that hold the digits of a job number."""
    payload, name, offset, _ = block
    starts = lines_with(payload, selection.jobs)
    lines = b"".join(line_at(payload, start) + b"\n" for start in starts)
    found = _select(Block(lines, name, 0), selection)
    found.lines = payload.count(b"\n") + (not payload.endswith(b"\n"))

    def place(line: int) -> dict[str, int]:
        start = starts[line - 1]
        return {"offset": offset + start, "line": payload.count(b"\n", 0, start) + 1}

    found.rejected = [bad._replace(**place(bad.line)) for bad in found.rejected]
    found.records = [
        msgspec.structs.replace(
            record, origin=msgspec.structs.replace(record.origin, **place(record.origin.line))
        )
        for record in found.records
    ]
    return found


def lines_with(payload: bytes, numbers: Sequence[int]) -> list[int]:
    """Return where the lines begin that hold one of these numbers, written in digits."""
    starts = set()
    for number in numbers:
        digits = b"%d" % number
        at = payload.find(digits)
        while at >= 0:
            end = at + len(digits)
            before = payload[at - 1 : at]
            if payload[end : end + 1].isdigit() or (before.isdigit() and before != b"0"):
                at = payload.find(digits, at + 1)
                continue
            starts.add(payload.rfind(b"\n", 0, at) + 1)
            end = payload.find(b"\n", end)
            at = payload.find(digits, end) if end >= 0 else -1
    return sorted(starts)


def line_at(payload: bytes, start: int) -> bytes:
    """Return the line that begins there, without its line end."""
    end = payload.find(b"\n", start)
    return payload[start : end if end >= 0 else len(payload)]
