"""Files of line protocol, decoded block by block, so that memory stays bounded."""

import gzip
import io
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ccpipe.errors import DataError, UsageError
from ccpipe.message import Message
from ccpipe.terminal import note

if TYPE_CHECKING:  # a command that only opens files starts faster without it
    from ccpipe.formats.lineprotocol import Lines

BLOCK = 2**18
"""Bytes read at once."""

MAX_LINE_SIZE = 16 * 2**20
"""Bytes of the longest line, line ends inside its strings included."""


class Stream(Protocol):
    """A readable stream: a file, stdin, a gzip file."""

    def read1(self, size: int, /) -> bytes:
        """Return what is available, up to `size` bytes; nothing at the end."""
        ...


class Block(NamedTuple):
    """Some lines of a file; line numbers in ``lines.rejected`` are those of the file."""

    lines: "Lines"
    before: int
    """Number of lines of the file before these."""

    def numbered(self) -> Iterator[tuple[int, Message]]:
        """Yield the messages, each with the number of its line in the file, from 1."""
        payload, line, position = self.lines.payload, self.before + 1, 0
        for start, message in zip(self.lines.starts, self.lines, strict=True):
            line += payload.count(b"\n", position, start)
            position = start
            yield line, message


@contextmanager
def open_stream(path: Path) -> Iterator[Stream]:
    """Open a file for reading: ``-`` is stdin, ``.gz`` is unpacked; raises UsageError."""
    if str(path) == "-":
        if sys.stdin.isatty():
            note("reading standard input; Ctrl-D ends it")
        yield cast("io.BufferedReader", sys.stdin.buffer)
        return
    if str(path).startswith("-"):
        raise UsageError(f"unknown option {path}; a file of that name is ./{path}")
    try:
        file = path.open("rb")
        file.peek(1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    with file:
        if path.suffix == ".gz":
            yield gzip.GzipFile(fileobj=file)
        else:
            yield file


def read_blocks(
    stream: Stream,
    decode: Callable[[bytes], "Lines"],
    *,
    block: int = BLOCK,
    max_length: int = MAX_LINE_SIZE,
) -> Iterator[Block]:
    """Decode a stream block by block, with the same result as decoding it at once.

    A block ends at a line end that is certain. A string in quotes may contain line ends, so a line
    whose string is still open is kept until more is read; when it is longer than `max_length`, its
    closing quote counts as missing.

    Raises
    ------
    DataError
        where a line is longer than `max_length`, or compressed data are damaged.

    """
    rest, is_open = b"", False
    before = offset = 0
    while True:
        fresh = read_piece(stream, max(block, len(rest)))
        rest += fresh
        if fresh and is_open and b'"' not in fresh and len(rest) < max_length:
            continue  # the string is still open: decoding again would give the same
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
        yield Block(lines, before)
        before += rest.count(b"\n", 0, complete)
        offset += complete
        rest = rest[complete:]
        if not fresh:
            return


def read_piece(stream: Stream, size: int = BLOCK) -> bytes:
    """Return what is available, up to `size` bytes; nothing at the end; raises DataError."""
    try:
        return stream.read1(size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"damaged gzip data: {error}") from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}") from None


def _complete(lines: "Lines", max_length: int) -> int:
    """Return up to which offset more bytes change nothing: the first line with an open string."""
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
    """Return the lines before the offset `end`, where line `before_line` begins."""
    kept = lines[: bisect_left(lines.starts, end)]
    kept.rejected = [bad for bad in lines.rejected if bad.line < before_line]
    return kept


def report_rejected(block: Block, problem: Callable[[str], None]) -> None:
    """Report the lines that could not be read."""
    for bad in block.lines.rejected:
        problem(f":{bad.line}: column {bad.column}: {bad.reason}: {bad.excerpt}")
