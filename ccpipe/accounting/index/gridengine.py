"""An index of Grid Engine's accounting files: the positions of each job's records.

One Parquet file for each accounting file, named by a hash of its first record, so that a renamed
or compressed file is recognized. Rows are in the order of the file: job numbers mostly grow, so
that Parquet's statistics skip nearly all row groups.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ccpipe.accounting.files import FileBlock, Files, Start, line_at, read_records
from ccpipe.accounting.index import (
    Indexed,
    find_file,
    identify,
    known_index,
    read_note,
    replaced,
)
from ccpipe.errors import DataError, UsageError
from ccpipe.formats.files import COMPRESSED, open_stream
from ccpipe.formats.gridengine import Accounting, parse
from ccpipe.formats.gridengine.columns import ParsedTable, from_records, read_columns
from ccpipe.terminal import plural

if TYPE_CHECKING:
    from ccpipe.accounting.gridengine import RecordSelection

SCHEMA = pa.schema(
    [
        ("job_number", pa.int64()),
        ("offset", pa.int64()),
        ("line", pa.int64()),
        ("text", pa.binary()),
    ]
)
"""The positions of a job's records; `text` is the line itself if the file is compressed."""

_ENCODING = {
    "compression": "zstd",
    "use_dictionary": False,
    "column_encoding": dict.fromkeys(("job_number", "offset", "line"), "DELTA_BINARY_PACKED"),
}
"""Delta encoding: the numbers mostly grow slowly."""

_ROWS = {False: 2**18, True: 2**14}
"""Rows per row group; fewer if each contains its line."""


def update(path: Path, directory: Path, files: Files) -> str:
    """Index the new part of a file and return a summary.

    Raises DataError if another file begins with the same record, as one of them is a copy;
    UnavailableError if the index cannot be written.
    """
    identity = identify(path)
    if identity is None:
        return f"{path}: no record in it yet"
    target = directory / f"{identity}.parquet"
    known = known_index(target, path)
    is_packed = path.suffix in COMPRESSED
    if known and known.is_packed != is_packed:
        known = None  # lines must be added or removed
    new = _Writer(path.absolute(), is_packed=is_packed)
    with replaced(target, SCHEMA, **_ENCODING) as parquet:
        if known:
            new.copy(known, parquet)
        new.read(files, parquet)
        found = Indexed(target, new.path, identity, new.size, new.lines, is_packed)
        parquet.add_key_value_metadata(found.note())
    return f"{path}: {plural(new.rows, 'record')} in {target.name}"


class _Writer:
    """Writes the index of one file in row groups, in bounded memory."""

    def __init__(self, path: Path, *, is_packed: bool) -> None:
        self.path = path
        self.is_packed = is_packed
        self.size = self.rows = self.lines = 0
        self._pending: list[pa.Table] = []

    def copy(self, known: Indexed, parquet: pq.ParquetWriter) -> None:
        with pq.ParquetFile(known.file) as old:
            for group in range(old.num_row_groups):
                self._add(old.read_row_group(group), parquet)
        self.size, self.lines = known.size, known.lines

    def read(self, files: Files, parquet: pq.ParquetWriter) -> None:
        start = Start(self.size, self.lines)
        size, lines = self.size, self.lines
        for block, part in files.each_block([self.path], self._read_block, start):
            size += len(block.payload)
            lines += part.lines
            if not block.payload.endswith(b"\n"):
                continue
            lines_of_file = pc.add(part.table["line"], block.before)
            self._add(part.table.set_column(2, SCHEMA.field("line"), lines_of_file), parquet)
            self.size, self.lines = size, lines
        self._flush(parquet)

    def _read_block(self, block: FileBlock) -> ParsedTable:
        names = ("job_number", "offset", "line")
        part = read_columns(block.payload, names, offset=block.offset)
        if not block.payload.endswith(b"\n"):
            part.rejected = []  # incomplete: read it next time
        texts: Any = pa.nulls(part.table.num_rows, pa.binary())
        if self.is_packed:
            starts = (start - block.offset for start in part.table["offset"].to_pylist())
            lines = [line_at(block.payload, start).removesuffix(b"\n") for start in starts]
            texts = pa.array(lines, pa.binary())
        part.table = part.table.append_column("text", texts)
        return part

    def _add(self, table: pa.Table, parquet: pq.ParquetWriter) -> None:
        self._pending.append(table)
        self.rows += table.num_rows
        if sum(part.num_rows for part in self._pending) >= _ROWS[self.is_packed]:
            self._flush(parquet)

    def _flush(self, parquet: pq.ParquetWriter) -> None:
        if self._pending:
            table = pa.concat_tables(self._pending).cast(SCHEMA)
            parquet.write_table(table, row_group_size=_ROWS[self.is_packed])
        self._pending = []


def look_up(
    directory: Path, paths: Sequence[Path], selection: "RecordSelection", files: Files
) -> Iterator[Accounting]:
    """Yield the selected records of requested jobs.

    Lines written after indexing, and `paths` that are not indexed, are read from the files.
    """
    if not selection.jobs or selection.names:
        raise UsageError(
            "--index finds jobs by number: `ccpipe acct gridengine -j NUMBER --index DIR`"
        )
    known = [read_note(index) for index in sorted(directory.glob("*.parquet")) if _is_ours(index)]
    if not known:
        raise UsageError(
            f"{directory}: no index; create it with `ccpipe acct index FILE… --dir {directory}`"
        )
    seen = set()
    for each in known:
        path = find_file(each, paths)
        seen.add(path)
        rows = pq.read_table(each.file, filters=[("job_number", "in", list(selection.jobs))])
        records = list(_records(rows, each, path, files))
        if selection.columns and records:
            places = (*selection.columns, "offset")
            chosen = selection.apply(from_records(records, places))["offset"].to_pylist()
            yield from (record for record in records if record.origin.offset in set(chosen))
        if path is not None and path.stat().st_size > each.size and path.suffix not in COMPRESSED:
            yield from read_records([path], selection, files, Start(each.size, each.lines))
    rest = [path for path in paths if path not in seen]
    if rest:
        yield from read_records(rest, selection, files)


def _is_ours(index: Path) -> bool:
    """Return whether an index is Grid Engine's; Slurm's indexes have another suffix."""
    return "." not in index.stem


def _records(
    rows: pa.Table, known: Indexed, path: Path | None, files: Files
) -> Iterator[Accounting]:
    """Yield the records at these positions; report missing ones."""
    if not rows.num_rows:
        return
    name = str(path or known.path)
    with contextlib.ExitStack() as stack:
        file: IO[bytes] | None = None
        if path is not None and not known.is_packed:
            file = cast("IO[bytes]", stack.enter_context(open_stream(path)))
        for row in rows.to_pylist():
            text = row["text"]
            if file is not None:
                file.seek(row["offset"])
                text = file.readline().removesuffix(b"\n")
            try:
                record = text and parse(text, name, row["offset"], row["line"])
            except DataError:
                record = None
            if record and record.job_number == row["job_number"]:
                yield record
            else:
                files.report(
                    f"{known.path}: job {row['job_number']} is not at its position in the index"
                )
