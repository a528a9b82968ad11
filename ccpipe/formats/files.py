"""Files, compressed or not, and line protocol in them decoded block by block in bounded memory."""

import bz2
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

from ccpipe.errors import DataError, MissingExtra, MissingInputError
from ccpipe.message import Message
from ccpipe.terminal import note

if TYPE_CHECKING:  # commands that only open files start faster without it
    from ccpipe.formats.lineprotocol import Lines

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    try:
        from backports import zstd
    except ImportError:
        zstd = None  # type: ignore[assignment]


def _open_zstd(path: Path) -> Any:
    if zstd is None:
        raise MissingExtra("backports.zstd", "zstd")
    return zstd.open(path)


COMPRESSED: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstd,
}
"""Functions that open and decompress a file, by suffix of its name."""

_DAMAGE: tuple[type[Exception], ...] = (
    zlib.error,
    lzma.LZMAError,
    *((zstd.ZstdError,) if zstd else ()),
)
UNREADABLE: tuple[type[Exception], ...] = (DataError, EOFError, OSError, *_DAMAGE)
"""Errors of opening and reading a file, with or without ``read_piece``."""

BLOCK = 2**18

MAX_LINE_SIZE = 16 * 2**20
"""Maximum line length in bytes, including line ends inside strings."""


class ReadableStream(Protocol):
    """A readable stream: a file, stdin, a decompressed file."""

    def read1(self, size: int, /) -> bytes:
        """Return the available data, up to `size` bytes; empty at the end."""
        ...


class LinesBlock(NamedTuple):
    """Some lines of a file; ``lines.rejected`` has line numbers of the whole file."""

    lines: "Lines"
    before: int
    """Number of preceding lines in the file."""

    def numbered(self) -> Iterator[tuple[int, Message]]:
        """Yield the messages, each with the number of its line in the file, from 1."""
        payload, line, position = self.lines.payload, self.before + 1, 0
        for start, message in zip(self.lines.starts, self.lines, strict=True):
            line += payload.count(b"\n", position, start)
            position = start
            yield line, message


@contextmanager
def open_stream(path: Path) -> Iterator[ReadableStream]:
    """Open a file for reading, decompressed by its suffix (``COMPRESSED``); ``-`` is stdin.

    Raises MissingInputError if the file cannot be opened, or may be endless: a named pipe or a
    device; MissingExtra for ``.zst`` without the library.
    """
    if str(path) == "-":
        if sys.stdin.isatty():
            note("reading standard input; Ctrl-D ends it")
        yield cast("io.BufferedReader", sys.stdin.buffer)
        return
    try:
        _require_end(path)
        file = open_file(path)
    except OSError as error:
        raise MissingInputError(f"{path}: {error.strerror}") from None
    with file:
        yield cast("io.BufferedReader", file)


def _require_end(path: Path) -> None:
    """Reject named pipes, which may have no writer, and devices such as ``/dev/zero``.

    Pipes that are already open, such as ``/dev/fd/63`` of a shell's ``<(command)``, are accepted:
    they end when their writer exits.
    """
    if str(path).startswith(_OPEN_ALREADY) or str(path) == os.devnull or not path.exists():
        return
    mode = path.stat().st_mode
    if stat.S_ISFIFO(mode):
        raise MissingInputError(f"{path}: a named pipe; give it as standard input: - < {path}")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise MissingInputError(f"{path}: a device, not a file")


_OPEN_ALREADY = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed by its suffix; raises OSError or MissingExtra."""
    open_compressed = COMPRESSED.get(path.suffix)
    return path.open("rb") if open_compressed is None else open_compressed(path)


def read_blocks(
    stream: ReadableStream,
    decode: Callable[[bytes], "Lines"],
    *,
    block: int = BLOCK,
    max_length: int = MAX_LINE_SIZE,
) -> Iterator[LinesBlock]:
    """Decode a stream block by block, with the same result as decoding it at once.

    A block ends at a definite line end. A quoted string may contain line ends, so a line with an
    open string is buffered until more is read; beyond `max_length`, its closing quote counts as
    missing. Raises DataError if a line is longer than `max_length`, or compressed data are damaged.
    """
    rest, is_open = b"", False
    before = offset = 0
    while True:
        fresh = read_piece(stream, max(block, len(rest)))
        rest += fresh
        if fresh and is_open and b'"' not in fresh and len(rest) < max_length:
            continue  # the string is still open: decoding again would give the same result
        end = rest.rfind(b"\n") + 1 if fresh else len(rest)
        if end == 0 and len(rest) > max_length:
            raise DataError(f"line {before + 1} is longer than {max_length} bytes")
        lines = decode(rest[:end])
        complete = _complete(lines, max_length) if fresh else end
        is_open = complete < end
        if is_open:
            lines = _cut(lines, complete, before_line=rest.count(b"\n", 0, complete) + 1)
        lines.rejected = [
            bad._replace(line=bad.line + before, offset=bad.offset + offset)
            for bad in lines.rejected
        ]
        yield LinesBlock(lines, before)
        before += rest.count(b"\n", 0, complete)
        offset += complete
        rest = rest[complete:]
        if not fresh:
            return


def read_piece(stream: ReadableStream, size: int = BLOCK) -> bytes:
    """Read available data, up to `size` bytes; empty at the end.

    Raises DataError if reading fails, or a compressed file is truncated or damaged.
    """
    try:
        return stream.read1(size)
    except EOFError:
        raise DataError("the compressed file is truncated") from None
    except _DAMAGE as error:
        raise DataError(f"damaged compressed data: {error}") from None
    except OSError as error:
        if error.errno is None:  # gzip and bz2 raise it for damaged data
            raise DataError(f"damaged compressed data: {error}") from None
        raise DataError(f"cannot be read: {error.strerror}") from None


def read_full(stream: ReadableStream, size: int) -> bytes:
    """Read `size` bytes, fewer at the end of the stream or before damage; nothing at the end.

    Raises DataError like ``read_piece``, after all preceding data were returned.
    """
    pieces: list[bytes] = []
    missing = size
    while missing:
        try:
            piece = read_piece(stream, missing)
        except DataError:
            if not pieces:
                raise
            break  # raised again by the next call
        if not piece:
            break
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _complete(lines: "Lines", max_length: int) -> int:
    """Return the length up to the first open string: more data cannot change that part."""
    from ccpipe.formats.lineprotocol import Rule

    payload = lines.payload
    start, line = 0, 1
    for bad in lines.rejected:
        if bad.rule is Rule.QUOTE:
            while line < bad.line:
                start = payload.find(b"\n", start) + 1
                line += 1
            if len(payload) - start < max_length:
                return start
    return len(payload)


def _cut(lines: "Lines", end: int, before_line: int) -> "Lines":
    kept = lines[: bisect_left(lines.starts, end)]
    kept.rejected = [bad for bad in lines.rejected if bad.line < before_line]
    return kept


def report_rejected(block: LinesBlock, problem: Callable[[str], None]) -> None:
    for bad in block.lines.rejected:
        problem(f":{bad.line}: column {bad.column}: {bad.reason}: {bad.excerpt}")
