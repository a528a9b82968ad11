"""Dead-letter files: for each dead letter a comment that describes it, then the original bytes.

::

    # dead letter {"time":1740052800000000000,"reason":"…","size":24,"sum":"…","origin":"…"}
    m,hostname=n1 value=1 5

The file is line protocol, whose readers skip comments. `size` and `sum` (BLAKE2b of the original,
8 bytes) reveal a dead letter truncated by a crash or a full disk: half of ``value=4711234`` is
also a valid number.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

PREFIX = b"# dead letter "
MAX_HEAD_SIZE = 64 * 2**10
"""Maximum length of a comment; a longer one is damaged."""
MAX_SIZE = 64 * 2**20
"""Maximum size of a dead letter; a larger one is damaged."""


class _Head(msgspec.Struct, frozen=True, omit_defaults=True):
    time: int
    reason: str
    size: int
    sum: str
    origin: str = ""
    line: int = 0
    offset: int = 0


class StoredDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter as it is stored."""

    id: str
    """Position and checksum in a file, or sequence number on the bus."""
    time: int
    """When it was stored, in nanoseconds since the epoch."""
    reason: str
    original: bytes
    origin: str = ""
    line: int = 0
    """Line number in the payload, from 1; 0 for a record rejected by a store."""
    offset: int = 0
    cut_from: int = 0
    """Size of the original if only its beginning could be stored, else 0."""


class Damaged(msgspec.Struct, frozen=True):
    """A part of a file that is not a complete dead letter."""

    position: int
    """Bytes before it."""
    reason: str


NOT_DEAD_LETTERS = Damaged(0, "not a dead letter")
"""The only part of a file of something else."""


def encode(
    original: bytes, reason: str, *, time: int, origin: str = "", line: int = 0, offset: int = 0
) -> bytes:
    head = _Head(
        time=time,
        reason=_text(" ".join(reason.split())),
        size=len(original),
        sum=_sum(original),
        origin=_text(origin),
        line=line,
        offset=offset,
    )
    return b"%b%b\n%b\n" % (PREFIX, msgspec.json.encode(head), original)


def read(file: BinaryIO) -> Iterator[StoredDeadLetter | Damaged]:
    """Yield the dead letters of a file in order, and its damaged parts; memory is bounded."""
    position = file.tell()
    while first := file.readline(MAX_HEAD_SIZE):
        letter = _letter(file, position, first)
        if letter is None:
            end = _skip(file, position + len(first))
            is_truncated = first.startswith(PREFIX)
            reason = "truncated or edited" if is_truncated else NOT_DEAD_LETTERS.reason
            yield Damaged(position, reason)
            position = end
        else:
            yield letter
            position = file.tell()


def _letter(file: BinaryIO, position: int, first: bytes) -> StoredDeadLetter | None:
    if not first.startswith(PREFIX):
        return None
    try:
        head = msgspec.json.decode(first[len(PREFIX) :], type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not 0 <= head.size <= MAX_SIZE:
        return None
    body = file.read(head.size + 1)
    original = body[:-1]
    if len(body) != head.size + 1 or body[-1:] != b"\n" or _sum(original) != head.sum:
        return None
    return StoredDeadLetter(
        id=f"{position}-{_sum(first + original)}",
        time=head.time,
        reason=head.reason,
        original=original,
        origin=head.origin,
        line=head.line,
        offset=head.offset,
    )


def _skip(file: BinaryIO, position: int) -> int:
    """Skip to the next comment that begins a dead letter, or to the end; return the position."""
    file.seek(position)
    is_line_start = True
    while line := file.readline(MAX_HEAD_SIZE):
        if is_line_start and _BEGIN.match(line):
            file.seek(position)
            return position
        position += len(line)
        is_line_start = line.endswith(b"\n")
    return position


_BEGIN = re.compile(re.escape(PREFIX) + rb"\{")


def _sum(original: bytes) -> str:
    return hashlib.blake2b(original, digest_size=8).hexdigest()


def _text(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
