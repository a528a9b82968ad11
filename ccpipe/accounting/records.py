"""Whole accounting records out of files: columns find them, and only those found are parsed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ccpipe.accounting.files import BEGIN, Block, Files, Start
from ccpipe.errors import DataError
from ccpipe.formats.gridengine import Accounting, Reading, Rejected, parse, read

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.selection import Selection


def read_records(
    paths: Sequence[Path], selection: "Selection", files: Files, start: Start = BEGIN
) -> Iterator[Accounting]:
    """Yield the records that are selected, in the order of the files."""

    def find(block: Block) -> Reading:
        return find_records(block, selection)

    for block, found in files.each_block(paths, find, start):
        for record in found.records:
            origin = record.origin
            place = msgspec.structs.replace(origin, line=origin.line + block.before)
            yield msgspec.structs.replace(record, origin=place)


def find_records(block: Block, selection: "Selection") -> Reading:
    """Return the records of a block that are selected, and the lines that are none.

    Lines are counted from its begin.
    """
    from ccpipe.formats.gridengine.columns import PLACE, read_columns

    payload, name, offset, _ = block
    if not selection.columns:
        return read(payload, file=name, offset=offset)
    part = read_columns(payload, selection.columns, offset=offset)
    if not selection.apply(part.table).num_rows:
        return Reading(rejected=part.rejected, lines=part.lines)
    part = read_columns(payload, (*selection.columns, *PLACE), offset=offset)
    found = Reading(rejected=part.rejected, lines=part.lines)
    for row in selection.apply(part.table).select(PLACE).to_pylist():
        text = line_at(payload, row["offset"] - offset)
        try:
            record = parse(text, name, row["offset"], row["line"])
        except DataError as error:
            found.rejected.append(Rejected(row["line"], row["offset"], str(error), text))
        else:
            if record is not None:
                found.records.append(record)
    return found


def line_at(payload: bytes, start: int) -> bytes:
    """Return the line that begins there, without its end."""
    end = payload.find(b"\n", start)
    return payload[start : end if end >= 0 else len(payload)]
