"""The reader of every variant, which recognizes each line by itself, and the search for jobs."""

import contextlib
import functools
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.files import ReadableStream, read_piece
from ccpipe.formats.gridengine.classic import parse_classic
from ccpipe.formats.gridengine.jsonl import parse_jsonl
from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.record import Accounting

BLOCK = 2**20
MAX_LINE_SIZE = 16 * 2**20
"""Bytes of a line; a longer one is rejected, and not kept in memory."""


class RejectedAccountingLine(NamedTuple):
    """A line that is no record of any known form; the lines around it are read all the same."""

    line: int
    """Its number in the file, from 1."""
    offset: int
    """Bytes before it in the file."""
    reason: str
    original: bytes


@dataclass(slots=True)
class ParsedChunk:
    """The records of a part of a file."""

    records: list[Accounting] = field(default_factory=list)
    rejected: list[RejectedAccountingLine] = field(default_factory=list)
    size: int = 0
    """Bytes of the part."""
    lines: int = 0
    """Lines of the part, comments and empty ones included."""


def parse(line: bytes, file: str = "", offset: int = 0, number: int = 0) -> Accounting | None:
    """Read one line without its line end; None if it is no record and need not be one.

    That is a comment, a line of at most one character, and other lines of a reporting file. A byte
    order mark in front, which editors write, is not part of it. File, offset and line number become
    the record's origin.

    Raises DataError if the line is no record, with the reason.
    """
    line = line.removeprefix(BOM_UTF8).rstrip(b"\r")
    if len(line) <= 1 or line.startswith(b"#"):
        return None
    if line.startswith(b"{"):
        return parse_jsonl(line, file, offset, number)
    try:
        return parse_classic(line.decode("utf-8", "surrogateescape"), file, offset, number)
    except DataError:
        if _OTHER_REPORT.match(line):
            return None
        raise


def parse_last(line: bytes, file: str = "", offset: int = 0, number: int = 0) -> Accounting | None:
    """Read a last line without a line end as ``parse`` does, and like qacct if it is cut off.

    If only ``maxvmem`` or the reservation is missing, it counts, and what is missing is 0.
    """
    try:
        return parse(line, file, offset, number)
    except DataError:
        missing = _COLONS - line.count(b":")
        if 0 <= missing <= _MAX_MISSING:
            rest = b"0" * line.endswith(b":") + b":0" * missing
            with contextlib.suppress(DataError):
                return parse(line + rest, file, offset, number)
        raise


_COLONS = 44  # of a line without colons in its category
_MAX_MISSING = 3  # fields

REPORTS = (
    "new_job", "job_log", "online_usage", "queue", "queue_consumable", "host", "host_consumable",
    "new_ar", "ar_attr", "ar_attribute", "ar_log", "ar_acct", "sharelog",
)  # fmt: skip
"""Types of lines in a reporting file other than ``acct``."""

_OTHER_REPORT = re.compile(rf"[0-9]+:(?:{'|'.join(REPORTS)}):".encode())


def read(payload: bytes, *, file: str = "", offset: int = 0, line: int = 1) -> ParsedChunk:
    """Read the lines of a payload, which begins at `offset` of a file with its line `line`.

    The last line may lack its line end, see ``parse_last``.
    """
    reading = ParsedChunk(size=len(payload))
    lines = split_lines(payload)
    complete = payload.count(b"\n")
    for i, text in enumerate(lines):
        try:
            record = (parse if i < complete else parse_last)(text, file, offset, line + i)
        except DataError as error:
            reading.rejected.append(RejectedAccountingLine(line + i, offset, str(error), text))
        else:
            if record is not None:
                reading.records.append(record)
        offset += len(text) + 1
    reading.lines = len(lines)
    return reading


def split_lines(payload: bytes) -> list[bytes]:
    """Split at LF and nowhere else; the line ends are removed."""
    lines = payload.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def read_stream(stream: ReadableStream, *, file: str = "") -> Iterator[ParsedChunk]:
    """Read a whole file, in blocks of whole lines, in bounded memory.

    Raises DataError if the rest of the file cannot be read, after all that could be.
    """
    offset, line = 0, 1
    for block in blocks(functools.partial(read_piece, stream)):
        reading = read(block, file=file, offset=offset, line=line)
        offset += reading.size
        line += reading.lines
        yield reading


def blocks(read: Callable[[int], bytes], size: int = BLOCK) -> Iterator[bytes]:
    """Yield a file's bytes in blocks that end with a line, except the last.

    A line longer than ``MAX_LINE_SIZE`` comes in pieces, none of which is read as a record.

    Raises DataError as `read` does, after everything before the damage.
    """
    held = b""
    damage = None
    while True:
        try:
            chunk = read(size)
        except DataError as error:
            chunk, damage = b"", error
        if not chunk:
            break
        end = chunk.rfind(b"\n") + 1
        if not end and len(held) + len(chunk) <= MAX_LINE_SIZE:
            held += chunk
        else:
            end = end or len(chunk)
            yield b"".join((held, memoryview(chunk)[:end]))
            held = chunk[end:]
    if held:
        yield held
    if damage:
        raise damage


_NUMBERED = re.compile(
    rb'(?:\{"job_number":(?P<json>0|[1-9][0-9]{0,14}),)'
    rb"|(?!\{\"job_number\":)(?![^:]*:acct:)(?:[^:]*:){5}(?P<classic>0|[1-9][0-9]{0,14}):"
)
"""A line that begins with a job number in its usual place and spelling."""


def lines_of_jobs(payload: bytes, jobs: Collection[int]) -> tuple[list[int], list[int], int]:
    """Find the lines that may be records of these jobs, without reading whole lines.

    >>> lines_of_jobs(b"a.q:n1:g:anna:sim:17:x\\na.q:n1:g:anna:sim:18:x\\n", [18])
    ([23], [2], 2)

    These are all lines except those whose job number is plainly another one: comments and damaged
    lines are among them.

    Returns the offsets of these lines, their numbers from 1, and the number of all lines.
    """
    if KERNEL is not None:
        found: tuple[list[int], list[int], int] = KERNEL.search(payload, jobs)
        return found
    return search_in_python(payload, jobs)


def search_in_python(payload: bytes, jobs: Collection[int]) -> tuple[list[int], list[int], int]:
    """Do the same line by line; what the compiled kernel must agree with."""
    starts, numbers = [], []
    offset = number = 0
    for number, line in enumerate(split_lines(payload), 1):
        found = _NUMBERED.match(line) if offset + len(line) < len(payload) else None
        if found is None or int(found[1] or found[2]) in jobs:
            starts.append(offset)
            numbers.append(number)
        offset += len(line) + 1
    return starts, numbers, number
