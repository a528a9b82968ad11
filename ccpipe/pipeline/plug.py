"""The plug: source, translator, sink and cemetery, and what passes between them."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import msgspec

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message

Records = Lines | Sequence[Message]
"""What travels: columns where bytes were decoded, messages where they were made.

Where parts say so (see ``check_fit``) it is Sonar's envelopes instead, as a sequence. Nothing
between source and sink looks into a record, so the plug leaves its type open.
"""


def join(parts: Sequence[Any]) -> Any:
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

    records: Any
    """``Records``, or envelopes."""
    ack: Callable[[], Awaitable[None]] = _nothing_to_acknowledge
    """Called once, when the records are safe downstream or kept as dead letters."""
    origin: str = ""
    """Where they came from, for whoever reads a dead letter: a subject, a file."""
    letters: Sequence["DeadLetter"] = ()
    """What could not be read, beside ``Lines.rejected``."""
    size: int = 0
    """Bytes of the payload, where the records themselves do not tell."""
    notes: list[tuple["Remembering", int]] = field(default_factory=list)
    """Translators that want to hear, before ``ack``, which of their feeds is safe."""

    @property
    def has_upstream(self) -> bool:
        """Whether somebody hands the batch over again if it is not acknowledged."""
        return self.ack is not _nothing_to_acknowledge


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, at most so long: the sleep of a source that may be told to stop.

    ``asyncio.wait_for`` would now and then swallow a cancellation on Python 3.11.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


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
    """Turns records into other records; pure, synchronous, may hold a window.

    One that cannot turn a record puts it into a list ``refused``, with the reason: ``run()``
    makes dead letters of them. One that holds records has an attribute ``holds``; see `Holding`.
    One that outlives its process is `Remembering`.
    """

    def feed(self, records: Any) -> Any:
        """Take records, return those that are ready."""
        ...

    def flush(self) -> Any:
        """Return what is still held; called at the end."""
        ...


@runtime_checkable
class Holding(Protocol):
    """A translator that keeps records from one feed for later.

    What it holds is not safe, so the batches that it came with are acknowledged only when it was
    written. ``run()`` feeds it an empty sequence every second, which is when it lets go of what
    it has held for long enough.
    """

    @property
    def holds(self) -> int:
        """Of how many of the latest feeds it may still hold something; 0 where it holds none."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A translator that outlives its process by a file.

    It keeps what it gave until it is told that it was written, and gives it again after a crash.
    """

    @property
    def given(self) -> int:
        """Number of the latest feed."""
        ...

    def written(self, given: int) -> None:
        """Hear that what feeds up to this number gave is safe downstream, or a dead letter."""
        ...


class Sink(Protocol):
    """Writes records. One that holds a connection is an async context manager too."""

    async def write(self, records: Any) -> None:
        """Make the records safe, or raise; never retry, log, count or wait without end.

        Raises
        ------
        UnavailableError
            where the same write may succeed later.
        RejectedError, EncodeError
            where it never will.

        """
        ...


def check_fit(source: object, translators: Sequence[object], sink: object) -> None:
    """Refuse parts of which one hands over what the next does not take.

    A part says so by the attributes ``takes`` and ``gives``: "lines", which is what those without
    them mean, or "envelopes".

    Raises
    ------
    ConfigError
        naming both parts.

    """
    parts = [source, *translators, sink]
    for before, after in itertools.pairwise(parts):
        given, taken = getattr(before, "gives", "lines"), getattr(after, "takes", "lines")
        if given != taken:
            raise ConfigError(
                f"{type(before).__name__} hands over {given}, and {type(after).__name__} takes "
                f"{taken}: a translator is missing between them"
            )


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


class DeadLetterSink(Protocol):
    """Where dead letters are kept; burying one that is buried already does no harm."""

    async def write(self, letters: Sequence[DeadLetter]) -> None:
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
