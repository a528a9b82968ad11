"""One reader for every variant: it looks at each line and says what it is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.classic import parse_classic
from ccpipe.formats.gridengine.jsonl import parse_jsonl
from ccpipe.formats.gridengine.record import Accounting, Origin

BLOCK = 2**20
"""Bytes read at once from a file."""
LONGEST = 16 * 2**20
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


def parse(line: bytes, origin: Origin) -> Accounting | None:
    """Read one line without its end; None where it holds no record and needs none.

    That is a comment, a line of one character or none, and what else a reporting file tells.

    Raises
    ------
    DataError
        where the line fits nothing, saying why.

    """
    line = line.rstrip(b"\r")
    if len(line) <= 1 or line.startswith(b"#"):
        return None
    if line.startswith(b"{"):
        return parse_jsonl(line, origin)
    try:
        return parse_classic(line.decode("utf-8", "surrogateescape"), origin)
    except DataError:
        if _OTHER_REPORT.match(line):
            return None
        raise


def parse_whole(line: bytes, origin: Origin) -> Accounting | None:
    """Read one line with its end, as ``parse`` does.

    A line without its end may be half written: where it has no closing brace to tell, it is no
    record.
    """
    record = parse(line.removesuffix(b"\n"), origin)
    if record is not None and not line.endswith((b"\n", b"}")):
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

    The last line may lack its end, see ``parse_whole``.
    """
    reading = Reading(size=len(payload))
    for number, raw in enumerate(split_lines(payload)):
        text = raw.removesuffix(b"\n")
        origin = Origin(file, offset, line + number)
        try:
            record = parse_whole(raw, origin)
        except DataError as error:
            reading.rejected.append(Rejected(origin.line, offset, str(error), text))
        else:
            if record is not None:
                reading.records.append(record)
        offset += len(raw)
        reading.lines += 1
    return reading


def split_lines(payload: bytes) -> list[bytes]:
    """Split at LF and nowhere else; each line keeps its end."""
    lines = [line + b"\n" for line in payload.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


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
        if not end and len(held) + len(chunk) <= LONGEST:
            held += chunk
        else:
            end = end or len(chunk)
            yield held + chunk[:end]
            held = chunk[end:]
    if held:
        yield held
