"""The interface between the parts of a pipe: records, batches, sources, translators and sinks.

Parts subclass ``Source``, ``Translator`` or ``Sink`` and say by their attributes what they can do;
``run()`` asks for nothing else. What travels between them meets ``Records``, whatever its format.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import msgspec

from ccpipe.pipeline.message_ids import MessageIds


class Rejected(Protocol):
    """A piece of a payload that could not be read."""

    @property
    def original(self) -> bytes:
        """Its bytes."""

    @property
    def reason(self) -> str:
        """Why it could not be read."""

    @property
    def line(self) -> int:
        """Number of the line in its payload, from 1."""

    @property
    def offset(self) -> int:
        """Position in its payload, from 0."""


class Records(Protocol):
    """Some records of one format, such as ``Lines``, ``Messages`` or ``Envelopes``."""

    def __len__(self) -> int:
        """Return the number of records."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the records."""

    def __getitem__(self, index: Any, /) -> Any:
        """Return one record, or some of them for a slice."""

    @property
    def size(self) -> int:
        """Bytes that they take in memory, roughly."""

    @property
    def rejected(self) -> Sequence[Rejected]:
        """What of their payload could not be read."""

    def original(self, index: int) -> bytes:
        """Return one record as a dead letter holds it."""


class RecordType(Protocol):
    """A format of records: the class that holds them, not an instance."""

    @property
    def name(self) -> str:
        """What error messages call it."""

    def of(self, records: Iterable[Any]) -> Records:
        """Return records as this type: as they are where they meet ``Records`` already."""

    def concat(self, parts: Sequence[Any]) -> Records:
        """Join records in their order."""


async def _nothing_to_acknowledge() -> None:
    pass


@dataclass(slots=True)
class Batch:
    """Records that belong to one acknowledgement."""

    records: Any
    """``Records``; a source may hand over any sequence, which ``Source.gives`` then wraps."""
    ack: Callable[[], Awaitable[None]] = _nothing_to_acknowledge
    """Called once, when the records are safe downstream or kept as dead letters."""
    origin: str = ""
    """Where they came from, for the reader of a dead letter: a subject, a file."""
    origin_of: Callable[[int], str] | None = None
    """The origin of one record by its index, where a batch has several."""
    ends_of: "Callable[[Any], array[int] | None] | None" = None
    """Where the records of each of its messages end; None for a batch of one message.

    Called with what translators made of the records; returns None if that cannot be told.
    """
    ids_of: Callable[[Any], MessageIds | None] | None = None
    """The messages of its records, called as ``ends_of`` is; None if nobody knows them."""
    commits: list[tuple["Translator", int]] = field(default_factory=list)
    """Translators to call with a feed's number before ``ack``; see ``Translator.commit``."""

    @property
    def has_upstream(self) -> bool:
        """Whether somebody hands the batch over again if it is not acknowledged."""
        return self.ack is not _nothing_to_acknowledge


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Something that nothing downstream accepts, kept with its reason."""

    original: bytes
    reason: str
    origin: str = ""
    line: int = 0
    """Number of the line in its payload, from 1; 0 where a store rejected a record."""
    offset: int = 0
    lines: int = 1
    """How many rejected lines and records it holds."""

    def __str__(self) -> str:
        where = f" line {self.line}, offset {self.offset}" if self.line else ""
        return (
            f"dead letter from {self.origin or '?'}{where}: {self.reason}: {self.original!r:.120}"
        )


class _Part:
    """What sources and sinks may override where they hold a connection or a file."""

    async def __aenter__(self) -> Self:
        """Open what the part needs; ``run()`` does it before the first batch."""
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close it."""

    async def check(self) -> None:
        """Check address and credentials, for ``ccpipe validate --connect``."""


class DeadLetterSink(_Part):
    """Where dead letters are kept; writing one again does no harm."""

    @abstractmethod
    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters safe, or raise as ``Sink.write`` does."""


class Source(_Part):
    """Hands over batches."""

    gives: RecordType
    """The type of the records."""
    exclusive: bool = False
    """Whether no other process may share the work, as several bridges of one durable name do.

    ``run()`` sets it where a translator is stateful, before the source is entered. A source that
    could share its work then raises ConfigError if another process takes part.
    """
    shares_by_node: bool = False
    """Whether of several processes that share the work each sees all messages of its nodes."""
    keeps_nodes: bool = False
    """Whether a process keeps its nodes until it ends; ``run()`` sets it as it sets `exclusive`."""

    @property
    def dead_letter_sink(self) -> DeadLetterSink | None:
        """Where dead letters of its records belong; None if the source does not care."""
        return None

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches until the source ends or is stopped."""

    @abstractmethod
    def stop(self) -> None:
        """Ask for the end: hand over what is in hand, fetch nothing new, then end.

        It may be called before the first batch was asked for, and after the end.
        """


class Translator(ABC):
    """Turns records into other records; synchronous, without input or output.

    Where one needs no state, a plain function from records to records does as well. ``run()``
    numbers the feeds of each translator from 1; the last two members speak of those numbers.
    """

    takes: RecordType
    gives: RecordType
    is_stateful: bool = False
    """Whether what it gives depends on earlier records, so that it must see all of them."""
    is_per_node: bool = False
    """Whether it depends on records of the same node only: of those it must see all."""

    @abstractmethod
    def feed(self, records: Any) -> Any:
        """Take records, return those that are ready.

        While something is held back it is called every second, with no records where none came.
        """

    def flush(self) -> Any:
        """Return what is still held back; called at the end."""
        return ()

    def take_rejected(self) -> list[tuple[Any, str]]:
        """Return the records that could not be turned since the last call, with reasons."""
        return []

    @property
    def oldest_held(self) -> int | None:
        """The number of the oldest feed of which something is held back; None for none.

        Batches are acknowledged only when all that came of them was written.
        """
        return None

    def commit(self, feed: int) -> None:  # noqa: B027 - few translators need it
        """Learn that all that was returned up to this feed is safe downstream.

        A translator that outlives its process by a ``StateStore`` returns what was not committed
        again, with the first feed of the next process.

        Raises
        ------
        UnavailableError
            if that could not be noted: the batch is then not acknowledged.

        """


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
    """Seconds for which writes are still retried after the pipe was told to stop."""
    timeout: float = 30.0
    """Seconds that a write may take; then it is given up and tried again with half of the records.

    0 where a write cannot be given up, such as one to a disk in a thread.
    """
    backoff: float = 30.0
    """Longest pause between two tries, in seconds; pauses grow from 0.1 s and are jittered."""


class Sink(_Part):
    """Writes records."""

    takes: RecordType
    """The type of records that it writes."""
    limits: Limits = Limits()
    """Batch sizes that suit it, where the recipe does not say others."""
    stores_once: bool = False
    """Whether it can tell what it has stored by the messages' ids: see ``write_once``."""
    resumes: bool = False
    """Whether the same write again stores only what the one before left.

    One that takes too long is then tried again as it is, not with half of the records.
    """

    @abstractmethod
    async def write(self, records: Any) -> None:
        """Make the records safe, or raise; never retry, log, count or wait without end.

        Raises
        ------
        UnavailableError
            if the same write may succeed later.
        RejectedError, EncodeError
            if it never will.

        """

    async def write_once(self, records: Any, ids: MessageIds) -> None:
        """Make those records safe whose messages are not stored yet, and their ids with them.

        Called instead of ``write`` where the messages of some records are known. The errors are
        those of ``write``; bad records are named whether they are stored or not.
        """
        raise NotImplementedError


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, at most so long: the sleep of a source that may be stopped.

    ``asyncio.wait_for`` would now and then swallow a cancellation on Python 3.11.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
