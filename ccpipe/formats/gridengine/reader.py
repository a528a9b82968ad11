"""One reader for every variant: it looks at each line and says what it is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.classic import parse_classic
from ccpipe.formats.gridengine.jsonl import parse_jsonl
from ccpipe.formats.gridengine.record import Accounting

BLOCK = 2**20
"""Bytes read at once from a file."""
MAX_LINE_SIZE = 16 * 2**20
"""Bytes of a line; a longer one is rejected, and not kept in memory."""


class Rejected(NamedTuple):
    """A line that fits nothing; it costs nobody but itself."""

    line: int
    """Its number in the file, from 1."""
    offset: int
    """Bytes before it in the file."""
    reason: str
    original: bytes


@dataclass(slots=True)
class Reading:
    """What a stretch of a file held."""

    records: list[Accounting] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    size: int = 0
    """Its bytes."""
    lines: int = 0
    """Its lines, with comments and empty ones."""


def parse(line: bytes, file: str = "", offset: int = 0, number: int = 0) -> Accounting | None:
    """Read one line without its end; None where it holds no record and needs none.

    That is a comment, a line of one character or none, and what else a reporting file tells.
    File, offset and line number are put into the record as its origin.

    Raises
    ------
    DataError
        where the line fits nothing, saying why.

    """
    line = line.rstrip(b"\r")
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


def parse_half(line: bytes, file: str = "", offset: int = 0, number: int = 0) -> Accounting | None:
    """Read a line that ends with the file instead of a line end, as ``parse`` does.

    It may be half written: where it has no closing brace to tell, it is no record.
    """
    record = parse(line, file, offset, number)
    if record is not None and not line.endswith(b"}"):
        raise DataError("the line has no end: it may be half written")
    return record


REPORTS = (
    "new_job", "job_log", "online_usage", "queue", "queue_consumable", "host", "host_consumable",
    "new_ar", "ar_attr", "ar_attribute", "ar_log", "ar_acct", "sharelog",
)  # fmt: skip
"""What a reporting file tells beside ``acct``."""

_OTHER_REPORT = re.compile(rf"[0-9]+:(?:{'|'.join(REPORTS)}):".encode())


def read(payload: bytes, *, file: str = "", offset: int = 0, line: int = 1) -> Reading:
    """Read the lines of a payload, which begins at `offset` of a file with its line `line`.

    The last line may lack its end, see ``parse_half``.
    """
    reading = Reading(size=len(payload))
    lines = split_lines(payload)
    ended = len(lines) - (not payload.endswith(b"\n"))
    for i, text in enumerate(lines):
        try:
            record = (parse if i < ended else parse_half)(text, file, offset, line + i)
        except DataError as error:
            reading.rejected.append(Rejected(line + i, offset, str(error), text))
        else:
            if record is not None:
                reading.records.append(record)
        offset += len(text) + 1
    reading.lines = len(lines)
    return reading


def split_lines(payload: bytes) -> list[bytes]:
    """Split at LF and nowhere else; ends are cut off."""
    lines = payload.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def read_stream(stream: IO[bytes], *, file: str = "") -> Iterator[Reading]:
    """Read a whole file, in blocks of whole lines, in bounded memory."""
    offset, line = 0, 1
    for block in blocks(stream):
        reading = read(block, file=file, offset=offset, line=line)
        offset += reading.size
        line += reading.lines
        yield reading


def blocks(stream: IO[bytes], size: int = BLOCK) -> Iterator[bytes]:
    """Yield a file's bytes in blocks that end with a line, but for the last.

    A line that is longer than ``LONGEST`` comes in pieces, which no reader takes for records.
    """
    held = b""
    while chunk := stream.read(size):
        end = chunk.rfind(b"\n") + 1
        if not end and len(held) + len(chunk) <= MAX_LINE_SIZE:
            held += chunk
        else:
            end = end or len(chunk)
            yield b"".join((held, memoryview(chunk)[:end]))
            held = chunk[end:]
    if held:
        yield held
