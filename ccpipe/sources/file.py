"""Line protocol, JSON lines or CSV from files, each read once from its beginning to its end."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, cast

from ccpipe.errors import ConfigError, DataError, MissingInputError
from ccpipe.formats.files import COMPRESSED, UNREADABLE, ReadableStream, open_file, read_blocks
from ccpipe.formats.lineprotocol import Lines, Precision, decode
from ccpipe.formats.rows import read_csv, read_json
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.process.background import call_blocking

STDIN = "-"

Format = Literal["line", "json", "csv"]
"""Formats that the sink ``file`` writes."""

_FORMATS: dict[str, Format] = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
"""By suffix of the file name, after the compression's suffix is removed; default: line protocol."""


def format_of(path: str) -> Format:
    suffixes = [each for each in Path(path).suffixes if each not in COMPRESSED]
    return _FORMATS.get(suffixes[-1], "line") if suffixes else "line"


class FileSource(Source[Lines]):
    """Reads files in bounded memory, compressed ones by their suffix.

    Each is read up to its size at the start, so that one that is being written has an end.
    """

    gives = Lines

    def __init__(
        self,
        *,
        paths: list[str],
        format: Format | Literal["auto"] = "auto",  # noqa: A002 - as in the sink
        precision: Precision | Literal["auto"] = "auto",
        lenient: bool = False,
        rate: int = 0,
    ) -> None:
        """Choose files.

        Parameters
        ----------
        paths
            The files, in the order in which they are read; ``-`` is standard input. Files with the
            suffix .gz, .bz2, .xz or .zst are decompressed.
        format
            ``line`` for line protocol, ``json`` and ``csv`` for what the sink ``file`` writes as
            such; ``auto`` decides by the suffix: .csv, .json, .jsonl, .ndjson, else ``line``.
        precision
            The unit of the timestamps in line protocol; ``auto`` infers it from each value's
            magnitude.
        lenient
            Accept known deviations from the grammar of line protocol.
        rate
            Maximum lines per second; 0 for no limit.

        """
        if not paths:
            raise ConfigError("paths is empty")
        if rate < 0:
            raise ConfigError(f"rate is {rate}: must not be negative")
        self.paths = paths
        self.format = format
        self.precision = precision
        self.lenient = lenient
        self.rate = rate
        self._stopped = asyncio.Event()
        self._sizes: dict[str, int] = {}  # of the files when the source began

    async def check(self) -> None:
        for path in self.paths:
            if path != STDIN and not os.access(path, os.R_OK):
                raise ConfigError(f"{path} cannot be read")

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        """Yield the lines of all files; a line without a timestamp keeps none.

        Raises MissingInputError if a file cannot be opened, DataError if its rest cannot be read.
        """
        self._sizes = sizes_of(self.paths)
        for path in self.paths:
            blocks = self._blocks(path)
            name = "stdin" if path == STDIN else path
            while (found := await self._next(blocks)) is not None:
                yield Batch(found, origin=name)
                await self._pause(len(found))
            if self._stopped.is_set():
                return

    async def _next(self, blocks: Iterator[Lines]) -> Lines | None:
        """Return the next block; None at the end, or after a stop."""
        reading = asyncio.create_task(call_blocking(lambda: next(blocks, None)))
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() and not self._stopped.is_set() else None
        finally:
            reading.cancel()
            stopping.cancel()

    async def _pause(self, lines: int) -> None:
        if self.rate:
            await wait_for_event(self._stopped, lines / self.rate)

    def _blocks(self, path: str) -> Iterator[Lines]:
        size = min(_BLOCK, max(1024, self.rate * 16)) if self.rate else _BLOCK
        try:
            with _open(path) as file:
                size_now = self._sizes.get(path)
                stream = file if size_now is None else _BoundedFile(file, size_now)
                match format_of(path) if self.format == "auto" else self.format:
                    case "json":
                        yield from read_json(stream, block=size)
                    case "csv":
                        yield from read_csv(stream, block=size)
                    case _:
                        for block in read_blocks(stream, self._decode, block=size):
                            yield block.lines
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        except UNREADABLE as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise MissingInputError(f"{path}: {reason}") from None

    def _decode(self, payload: bytes) -> Lines:
        return decode(payload, precision=self.precision, lenient=self.lenient)


class StdinSource(FileSource):
    """Reads line protocol from standard input, to its end."""

    def __init__(
        self,
        *,
        precision: Precision | Literal["auto"] = "auto",
        lenient: bool = False,
        rate: int = 0,
    ) -> None:
        """Take the options.

        Parameters
        ----------
        precision
            The unit of the timestamps; ``auto`` infers it from each value's magnitude.
        lenient
            Accept known deviations from the grammar of line protocol.
        rate
            Maximum lines per second; 0 for no limit.

        """
        super().__init__(
            paths=[STDIN], format="line", precision=precision, lenient=lenient, rate=rate
        )


_BLOCK = 2**18
"""Bytes read at once; fewer if a rate is given, for an even flow."""


class _Stdin:
    """Standard input without Python's buffer, whose lock a waiting thread would keep at exit."""

    def read1(self, size: int) -> bytes:
        return os.read(0, size)


class _BoundedFile:
    """A file up to a size, and to the end of the line there."""

    def __init__(self, file: ReadableStream, size: int) -> None:
        self._file, self._left = file, size
        self._is_in_line = False

    def read1(self, size: int) -> bytes:
        if self._left:
            piece = self._file.read1(min(size, self._left))
            self._left = self._left - len(piece) if piece else 0
            self._is_in_line = bool(piece) and not piece.endswith(b"\n")
            return piece
        if not self._is_in_line:
            return b""
        piece = self._file.read1(size)
        end = piece.find(b"\n") + 1
        self._is_in_line = bool(piece) and not end
        return piece[: end or None]


def sizes_of(paths: Iterable[str]) -> dict[str, int]:
    """Return the sizes of regular files that are not compressed."""
    found = {}
    for path in paths:
        if Path(path).suffix not in COMPRESSED and path != STDIN:
            with contextlib.suppress(OSError):  # reported when it is opened
                status = Path(path).stat()
                if stat.S_ISREG(status.st_mode) and status.st_size:
                    found[path] = status.st_size
    return found


def _open(path: str) -> AbstractContextManager[ReadableStream]:
    if path == STDIN:
        return nullcontext(_Stdin())
    return cast("AbstractContextManager[ReadableStream]", open_file(Path(path)))
