"""The plug: source, translator, sink and cemetery, and what passes between them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message

Records = Lines | Sequence[Message]
"""What travels: columns where bytes were decoded, messages where they were made."""


def join(parts: Sequence[Records]) -> Records:
    """Join records into one batch; columns stay columns."""
    parts = [part for part in parts if len(part)]
    lines = [part for part in parts if isinstance(part, Lines)]
    if lines and len(lines) == len(parts):
        return Lines.concat(lines)
    return [record for part in parts for record in part]


async def _nothing_to_acknowledge() -> None:
    pass


@dataclass(slots=True)
class Batch:
    """Records that belong to one acknowledgement."""

    records: Records
    ack: Callable[[], Awaitable[None]] = _nothing_to_acknowledge
    """Called once, when the records are safe downstream or kept as dead letters."""
    origin: str = ""
    """Where they came from, for whoever reads a dead letter: a subject, a file."""

    @property
    def has_upstream(self) -> bool:
        """Whether somebody hands the batch over again if it is not acknowledged."""
        return self.ack is not _nothing_to_acknowledge


class Source(Protocol):
    """Hands over batches. One that holds a connection is an async context manager too."""

    def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches until the source ends or is stopped."""
        ...

    def stop(self) -> None:
        """Ask for the end: hand over what is in hand, fetch nothing new, then end.

        It may be called before the first batch was asked for, and after the end.
        """
        ...


class Translator(Protocol):
    """Turns records into other records; pure, synchronous, may hold a window."""

    def feed(self, records: Records) -> Records:
        """Take records, return those that are ready."""
        ...

    def flush(self) -> Records:
        """Return what is still held; called at the end."""
        ...


class Sink(Protocol):
    """Writes records. One that holds a connection is an async context manager too."""

    async def write(self, records: Records) -> None:
        """Make the records safe, or raise; never retry, log, count or wait without end.

        Raises
        ------
        UnavailableError
            where the same write may succeed later.
        RejectedError, EncodeError
            where it never will.

        """
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Something that nothing downstream would take, kept with its reason."""

    original: bytes
    reason: str
    origin: str = ""
    line: int = 0
    """Number of the line in its payload, from 1; 0 where a store refused a record."""
    offset: int = 0

    def __str__(self) -> str:
        place = f" line {self.line}, offset {self.offset}" if self.line else ""
        return (
            f"dead letter from {self.origin or '?'}{place}: {self.reason}: {self.original!r:.120}"
        )


class Cemetery(Protocol):
    """Where dead letters are kept; burying one that is buried already does no harm."""

    async def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters safe, or raise as ``Sink.write`` does."""
        ...


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is gathered before it is written, and how much is held at most."""

    lines: int = 50_000
    """Records."""
    bytes: int = 4 * 2**20
    """What the records take in memory, roughly; not on the wire."""
    age: float = 1.0
    """Seconds that the oldest record waits at most."""
    memory: int = 64 * 2**20
    """Bytes held at most, written or not: beyond, the source is not read (back-pressure)."""
    grace: float = 3.0
    """Seconds that a sink which fails is still tried after the pipe was told to stop."""
    backoff: float = 30.0
    """Longest pause between two tries, in seconds; pauses grow from 0.1 s and are jittered."""
