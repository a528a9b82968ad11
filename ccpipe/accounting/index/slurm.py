"""An index of files with the output of ``sacct -P``: the positions of each run's rows.

One Parquet file for each file of rows, named by a hash of its first two lines, the header and a
row. The last run of a file that may grow is not indexed, since more of its rows may follow: it is
read from the file, together with everything written after indexing.
"""

from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from ccpipe.accounting.files import Files
from ccpipe.accounting.index import (
    Indexed,
    find_file,
    identify,
    known_index,
    read_note,
    replaced,
)
from ccpipe.errors import DataError, UsageError
from ccpipe.formats.files import COMPRESSED, ReadableStream, open_stream, read_piece
from ccpipe.formats.slurm.records import SacctRow, SlurmId
from ccpipe.formats.slurm.table import RowSplitter, split_header
from ccpipe.formats.slurm.text import SacctReader
from ccpipe.terminal import Progress, plural, printable

SUFFIX = ".sacct.parquet"
LINES = 2
"""Lines that identify a file: the header and the first row."""
JOBS = ("job", "array_job", "het_job")
"""Job numbers that find a run: its own, its array's and its heterogeneous job's."""
SCHEMA = pa.schema(
    [*((name, pa.int64()) for name in (*JOBS, "offset", "size", "line")), ("text", pa.binary())]
)
"""The rows of a run, `size` bytes from `offset`; `text` if the file is compressed."""
ROWS = 2**14
MAX_HEADER = 2**16


class RunPosition(NamedTuple):
    """The position of a run's rows."""

    id: SlurmId
    offset: int
    line: int


def has_rows(path: Path) -> bool:
    with open_stream(path) as stream:
        line = stream.read1(MAX_HEADER).partition(b"\n")[0]
    try:
        names, _ = split_header(line.decode("utf-8", "replace"))
    except DataError:
        return False
    return not {"jobid", "jobidraw"}.isdisjoint(names)


def update(path: Path, directory: Path) -> str:
    """Rebuild the index of a file and return a summary.

    Raises DataError if another file begins with the same rows, as one of them is a copy;
    UnavailableError if the index cannot be written.
    """
    identity = identify(path, LINES)
    if identity is None:
        return f"{path}: no row in it yet"
    target = directory / f"{identity}{SUFFIX}"
    known_index(target, path, LINES)
    with replaced(target, SCHEMA, compression="zstd") as parquet:
        writer = _Writer(parquet, is_packed=path.suffix in COMPRESSED)
        with open_stream(path) as stream:
            writer.read(stream)
        found = Indexed(
            target, path.absolute(), identity, writer.size, writer.lines, writer.is_packed
        )
        parquet.add_key_value_metadata(found.note() | {"header": writer.header})
    return f"{path}: {plural(writer.runs, 'run')} in {target.name}"


class _Writer:
    """Writes the position of each run, in bounded memory."""

    def __init__(self, parquet: pq.ParquetWriter, *, is_packed: bool) -> None:
        self.parquet = parquet
        self.is_packed = is_packed
        self.runs = self.size = self.lines = 0
        self.header = ""
        self._text = bytearray()
        """Bytes read from `size` on, if the file is compressed."""
        self._columns: dict[str, list[int | bytes | None]] = {name: [] for name in SCHEMA.names}

    def read(self, stream: ReadableStream) -> None:
        run: RunPosition | None = None
        for place in self._positions(stream):
            if run is not None:
                self._add(run, place.offset)
            run = place
            self.size, self.lines = place.offset, place.line - 1
        if run is not None and self.is_packed:  # a compressed file does not grow
            self._add(run, self._end)
            self.size = self._end
        self._flush()

    def _positions(self, stream: ReadableStream) -> Iterator[RunPosition]:
        """Yield the start of each run; steps and unreadable rows belong to the run before."""
        progress = Progress()
        payload = read_piece(stream)
        while b"\n" not in payload and (piece := read_piece(stream)):
            payload += piece
        line, _, payload = payload.partition(b"\n")
        self.header = line.decode("utf-8", "replace")
        rows = _Rows(self.header, len(line) + 1)
        self.size = self._end = len(line) + 1
        while payload:
            self._end += len(payload)
            if self.is_packed:
                self._text += payload
            yield from rows.feed(payload)
            progress.show(f"{self._end / 2**20:.0f} MiB read")
            payload = read_piece(stream)
        yield from rows.feed(b"", is_last=True)
        progress.clear()

    def _add(self, run: RunPosition, end: int) -> None:
        number = run.id
        text = bytes(self._text[: end - run.offset]) if self.is_packed else None
        del self._text[: end - run.offset]
        numbers = (number.job, number.array_job, number.het_job)
        values = (*numbers, run.offset, end - run.offset, run.line, text)
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        self.runs += 1
        if not self.runs % ROWS:
            self._flush()

    def _flush(self) -> None:
        self.parquet.write_table(pa.table(self._columns, schema=SCHEMA))
        for column in self._columns.values():
            column.clear()


class _Rows:
    """Finds the rows that begin a run, in any chunks of bytes."""

    def __init__(self, header: str, offset: int) -> None:
        reader = SacctReader(zone=UTC)
        reader.feed(f"{header}\n".encode())
        names = reader.header.names
        self._ids = [names.index(name) for name in ("jobid", "jobidraw") if name in names]
        self._splitter = RowSplitter(reader.header, line=LINES)
        self._end = offset
        self._first = LINES
        self._starts = array("q", [offset])
        """Offsets of the lines, starting with line `_first`."""

    def feed(self, payload: bytes, *, is_last: bool = False) -> Iterator[RunPosition]:
        position = payload.find(b"\n")
        while position >= 0:
            self._starts.append(self._end + position + 1)
            position = payload.find(b"\n", position + 1)
        self._end += len(payload)
        block = self._splitter.feed(payload, is_last=is_last)
        for line, *cells in zip(
            block.lines, *(block.columns[place] for place in self._ids), strict=True
        ):
            try:
                number = SlurmId.read(*cells)
            except DataError:
                continue
            if not number.step:
                yield RunPosition(number, self._starts[line - self._first], line)
        if block.lines:
            done = block.lines[-1] - self._first
            self._first += done
            del self._starts[:done]


def look_up(
    directory: Path, paths: Sequence[Path], jobs: Sequence[int], files: Files, zone: tzinfo
) -> Iterator[SacctRow]:
    """Yield the rows of the jobs with these numbers, and all rows not indexed yet.

    `paths` are searched for files that have been moved.
    """
    indexes = sorted(directory.glob(f"*{SUFFIX}"))
    if not indexes:
        raise UsageError(
            f"{directory}: no index of sacct's rows; create it with `ccpipe acct index FILE… --dir"
            f" {directory}`"
        )
    for index in indexes:
        note = read_note(index)
        path = find_file(note, paths, LINES)
        found = pq.read_table(index, filters=[[(name, "in", list(jobs))] for name in JOBS])
        header = pq.read_metadata(index).metadata[b"header"]
        if note.is_packed or path is None:
            for row in found.to_pylist():
                yield from _run(row["text"] or b"", header, row, note, files, zone)
            continue
        with open_stream(path) as stream:
            file = cast("IO[bytes]", stream)
            for row in found.to_pylist():
                file.seek(row["offset"])
                yield from _run(file.read(row["size"]), header, row, note, files, zone)
            file.seek(note.size)
            for reading in _reader(header, zone).read_stream(file):
                yield from reading.records
                for bad in reading.rejected:
                    place = f"{printable(str(path))}:{bad.line + note.lines}"
                    files.report(f"{place}: {printable(bad.reason)}")


def _reader(header: bytes, zone: tzinfo) -> SacctReader:
    names, delimiter = split_header(header.decode())
    return SacctReader(columns=names, delimiter=delimiter, zone=zone)


def _run(
    text: bytes, header: bytes, row: dict[str, Any], note: Indexed, files: Files, zone: tzinfo
) -> list[SacctRow]:
    """Read the rows of a run; report it if missing."""
    records = _reader(header, zone).read(text).records
    if records and records[0].id.job == row["job"]:
        return records
    files.report(f"{note.path}: job {row['job']} is not at its position in the index")
    return []
