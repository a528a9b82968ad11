"""Accounting files, read block by block in order, and the selected records in them.

Records are found by columns, and only matching ones are parsed in full.
"""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

import msgspec

from ccpipe.errors import DataError, UsageError
from ccpipe.formats.files import open_stream, read_full
from ccpipe.formats.gridengine import (
    Accounting,
    ParsedChunk,
    RejectedAccountingLine,
    blocks,
    read,
)
from ccpipe.formats.gridengine.reader import lines_of_jobs
from ccpipe.terminal import Progress, note, plural, printable

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.gridengine import RecordSelection

BLOCK = 2**22
MAX_REPORTS = 20
"""Maximum number of problems that are printed: a file of another kind has one in each line."""


class FileBlock(NamedTuple):
    """Whole lines of a file."""

    payload: bytes
    name: str
    offset: int
    before: int = 0
    """Line offset in the file; known only after the block was read."""


class Start(NamedTuple):
    """Position at which to start reading."""

    offset: int = 0
    lines: int = 0
    """Lines before the offset."""


BEGIN = Start()


class BlockResult(Protocol):
    """The result of reading a block."""

    rejected: list[RejectedAccountingLine]
    """Line numbers count from the start of the block."""
    lines: int


T = TypeVar("T", bound=BlockResult)


class Files:
    """Reads files; reports and counts unreadable parts."""

    def __init__(self) -> None:
        self.problems = 0
        self._size = self._lines = 0
        self._progress = Progress()

    def each_block(
        self, paths: Sequence[Path], read: Callable[[FileBlock], T], start: Start = BEGIN
    ) -> Iterator[tuple[FileBlock, T]]:
        """Yield each block with the result of `read`, which runs ahead in threads.

        Lines that are not records are reported.
        """
        workers = min(4, os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as threads:
            waiting: deque[tuple[FileBlock, Future[T]]] = deque()
            for block in self._blocks(paths, start.offset):
                waiting.append((block, threads.submit(read, block)))
                if len(waiting) > workers:
                    yield self._next_of(waiting, start)
            while waiting:
                yield self._next_of(waiting, start)
        self._progress.clear()

    def _next_of(
        self, waiting: deque[tuple[FileBlock, Future[T]]], start: Start
    ) -> tuple[FileBlock, T]:
        block, future = waiting.popleft()
        part = future.result()
        if block.offset == start.offset:
            self._lines = start.lines
        block = block._replace(before=self._lines)
        self._lines += part.lines
        self._reject(block, part.rejected)
        self._size += len(block.payload)
        self._progress.show(f"{printable(block.name)}: {self._size / 2**20:.0f} MiB read")
        return block, part

    def _blocks(self, paths: Sequence[Path], offset: int) -> Iterator[FileBlock]:
        for path in paths:
            name = "stdin" if str(path) == "-" else str(path)
            start = offset
            try:
                with open_stream(path) as stream:
                    if start:
                        cast("IO[bytes]", stream).seek(start)
                    for payload in blocks(functools.partial(read_full, stream), BLOCK):
                        yield FileBlock(payload, name, start)
                        start += len(payload)
            except DataError as error:
                self.report(f"{name}: {error}")

    def _reject(self, block: FileBlock, rejected: Sequence[RejectedAccountingLine]) -> None:
        for bad in rejected:
            position = f"{printable(block.name)}:{block.before + bad.line}: offset {bad.offset}"
            self.report(f"{position}: {printable(bad.reason)}")

    def report(self, text: str) -> None:
        """Print a problem; beyond ``MAX_REPORTS`` it is only counted."""
        self.problems += 1
        if self.problems <= MAX_REPORTS:
            self._progress.clear()
            note(text, "red")

    def finish(self) -> None:
        """Raise DataError if there was any problem."""
        if self.problems:
            problems = plural(self.problems, "problem")
            which = f"the first {MAX_REPORTS} " if self.problems > MAX_REPORTS else ""
            raise DataError(f"{problems}, {which}reported above; all other records were counted")


def default_files() -> list[Path]:
    """Return the accounting files of the cell set in the environment; raises UsageError."""
    root, cell = os.environ.get("SGE_ROOT"), os.environ.get("SGE_CELL", "default")
    names = ("accounting", "accounting.jsonl")
    found = [Path(root, cell, "common", name) for name in names] if root else []
    files = [path for path in found if path.exists()]
    if not files:
        where = f"there is none in {found[0].parent}" if found else "$SGE_ROOT is not set"
        raise UsageError(f"FILE is missing: {where}; see ccpipe acct gridengine --help")
    return files


def read_records(
    paths: Sequence[Path], selection: "RecordSelection", files: Files, start: Start = BEGIN
) -> Iterator[Accounting]:
    """Yield the selected records in the order of the files."""

    def find(block: FileBlock) -> ParsedChunk:
        return find_records(block, selection)

    for block, found in files.each_block(paths, find, start):
        for record in found.records:
            origin = record.origin
            position = msgspec.structs.replace(origin, line=origin.line + block.before)
            yield msgspec.structs.replace(record, origin=position)


def find_records(block: FileBlock, selection: "RecordSelection") -> ParsedChunk:
    """Return the selected records of a block, and its lines that are not records.

    Line numbers count from the start of the block. If jobs are selected by number, bad lines that
    clearly belong to other jobs are omitted.
    """
    if not selection.columns:
        return read(block.payload, file=block.name, offset=block.offset)
    if selection.jobs and not selection.names:
        return _search(block, selection)
    return _select(block, selection)


def _select(block: FileBlock, selection: "RecordSelection") -> ParsedChunk:
    """Read the columns of all lines, then the selected records in full."""
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
    """Select from the lines that may belong to the selected jobs."""
    payload, name, offset, _ = block
    starts, numbers, count = lines_of_jobs(payload, selection.jobs)
    lines = b"".join(line_at(payload, start) for start in starts)
    found = _select(FileBlock(lines, name, 0), selection)
    found.lines = count

    def position(line: int) -> tuple[int, int]:
        return numbers[line - 1], offset + starts[line - 1]

    found.rejected = [
        RejectedAccountingLine(*position(bad.line), *bad[2:]) for bad in found.rejected
    ]
    for i, record in enumerate(found.records):
        line, start = position(record.origin.line)
        origin = msgspec.structs.replace(record.origin, line=line, offset=start)
        found.records[i] = msgspec.structs.replace(record, origin=origin)
    return found


def line_at(payload: bytes, start: int) -> bytes:
    """Return the line that begins at an offset, with its line end if any."""
    return payload[start : payload.find(b"\n", start) + 1 or None]
