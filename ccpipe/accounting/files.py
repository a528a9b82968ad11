"""The accounting files that ``ccpipe acct`` reads, block by block and in their order."""

import gzip
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple, Protocol, TypeVar, cast

from ccpipe.errors import DataError, UsageError
from ccpipe.formats.files import open_stream
from ccpipe.formats.gridengine import Rejected, blocks
from ccpipe.terminal import Progress, note, plural, printable

BLOCK = 2**22
"""Bytes that are read at once."""


class Block(NamedTuple):
    """Whole lines of a file."""

    payload: bytes
    name: str
    """The file's."""
    offset: int
    """Bytes before it in the file."""
    before: int = 0
    """Lines before it in the file; known when it was read, and not while it is."""


class Start(NamedTuple):
    """Where a file begins to matter."""

    offset: int = 0
    lines: int = 0
    """Lines before that."""


BEGIN = Start()


class Part(Protocol):
    """What was read of a block."""

    rejected: list[Rejected]
    """Lines are counted from the block's begin."""
    lines: int


T = TypeVar("T", bound=Part)


class Files:
    """Reads files, tells what is bad in them, and counts it."""

    def __init__(self) -> None:
        """Begin with nothing bad."""
        self.bad = 0
        self._size = self._lines = 0
        self._progress = Progress()

    def each_block(
        self, paths: Sequence[Path], read: Callable[[Block], T], start: Start = BEGIN
    ) -> Iterator[tuple[Block, T]]:
        """Yield each block with what `read` makes of it; that works ahead in threads.

        Lines that are no records are told.
        """
        workers = min(4, os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as threads:
            waiting: deque[tuple[Block, Future[T]]] = deque()
            for block in self._blocks(paths, start.offset):
                waiting.append((block, threads.submit(read, block)))
                if len(waiting) > workers:
                    yield self._next_of(waiting, start)
            while waiting:
                yield self._next_of(waiting, start)
        self._progress.clear()

    def _next_of(self, waiting: deque[tuple[Block, Future[T]]], start: Start) -> tuple[Block, T]:
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

    def _blocks(self, paths: Sequence[Path], offset: int) -> Iterator[Block]:
        for path in paths:
            name = "stdin" if str(path) == "-" else str(path)
            start = offset
            try:
                with open_stream(path) as stream:
                    file = cast("IO[bytes]", stream)
                    if start:
                        file.seek(start)
                    for payload in blocks(file, BLOCK):
                        yield Block(payload, name, start)
                        start += len(payload)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.complain(f"{name}: damaged gzip data: {error}")
            except OSError as error:
                self.complain(f"{name}: cannot be read: {error.strerror}")

    def _reject(self, block: Block, rejected: Sequence[Rejected]) -> None:
        for bad in rejected:
            place = f"{printable(block.name)}:{block.before + bad.line}: offset {bad.offset}"
            self.complain(f"{place}: {printable(bad.reason)}")

    def complain(self, text: str) -> None:
        """Tell what is bad, and count it."""
        self._progress.clear()
        note(text, "red")
        self.bad += 1

    def finish(self) -> None:
        """Raise DataError where something was bad."""
        if self.bad:
            raise DataError(f"{plural(self.bad, 'problem')}, told above; all else was counted")


def default_files() -> list[Path]:
    """Return the files of the cell that the environment names; raises UsageError."""
    root, cell = os.environ.get("SGE_ROOT"), os.environ.get("SGE_CELL", "default")
    names = ("accounting", "accounting.jsonl")
    found = [Path(root, cell, "common", name) for name in names] if root else []
    files = [path for path in found if path.exists()]
    if not files:
        where = f"there is none in {found[0].parent}" if found else "$SGE_ROOT is not set"
        raise UsageError(f"which accounting files? `ccpipe acct FILE…`: {where}")
    return files
