"""Interfaces of a pipe's parts: records, batches, sources, translators and sinks.

Parts subclass ``Source``, ``Translator`` or ``Sink`` and declare their capabilities as attributes,
which is all that ``run()`` relies on. What travels between them implements ``Records``, whatever
its format.
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
        """Its original bytes."""

    @property
    def reason(self) -> str:
        """Why it could not be read."""

    @property
    def line(self) -> int:
        """Line number in the payload, from 1."""

    @property
    def offset(self) -> int:
        """Byte offset in the payload, from 0."""


class Records(Protocol):
    """Some records of one format, such as ``Lines``, ``Messages`` or ``Envelopes``."""

    def __len__(self) -> int:
        """Return the number of records."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the records."""

    def __getitem__(self, index: Any, /) -> Any:
        """Return one record, or several for a slice."""

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""

    @property
    def rejected(self) -> Sequence[Rejected]:
        """Pieces of the payload that could not be read."""

    def original(self, index: int) -> bytes:
        """Return the bytes of one record for a dead letter."""


class RecordType(Protocol):
    """A type of records: the class of a ``Records`` implementation."""

    @property
    def name(self) -> str:
        """Name in error messages."""

    def of(self, records: Iterable[Any]) -> Records:
        """Convert records to this type; those that implement ``Records`` are returned unchanged."""

    def concat(self, parts: Sequence[Any]) -> Records:
        """Concatenate records in order."""


async def _nothing_to_acknowledge() -> None:
    pass


@dataclass(slots=True)
class Batch:
    """Records that are acknowledged together."""

    records: Any
    """``Records``, or any sequence, which is wrapped as ``Source.gives``."""
    ack: Callable[[], Awaitable[None]] = _nothing_to_acknowledge
    """Called once, when the records are stored or kept as dead letters."""
    origin: str = ""
    """Origin for dead letters: a subject, a file."""
    origin_of: Callable[[int], str] | None = None
    """Origin of one record by its index, if the batch has several."""
    ends_of: "Callable[[Any], array[int] | None] | None" = None
    """End row of each of its messages; None for a batch of one message.

    Called with what the translators made of the records; returns None if it cannot be determined.
    """
    ids_of: Callable[[Any], MessageIds | None] | None = None
    """Ids of its messages, called like ``ends_of``; None if they are unknown."""
    commits: list[tuple["Translator", int]] = field(default_factory=list)
    """Translators to call with a feed number before ``ack``; see ``Translator.commit``."""

    @property
    def has_upstream(self) -> bool:
        """Whether the batch is redelivered if it is not acknowledged."""
        return self.ack is not _nothing_to_acknowledge


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Input or a record that nothing downstream accepts, with the reason."""

    original: bytes
    reason: str
    origin: str = ""
    line: int = 0
    """Line number in the payload, from 1; 0 for a record rejected by a store."""
    offset: int = 0
    lines: int = 1
    """Number of rejected lines or records in it."""

    def __str__(self) -> str:
        where = f" line {self.line}, offset {self.offset}" if self.line else ""
        return (
            f"dead letter from {self.origin or '?'}{where}: {self.reason}: {self.original!r:.120}"
        )


class _Part:
    """What sources and sinks override if they hold a connection or a file."""

    async def __aenter__(self) -> Self:
        """Open the part; called by ``run()`` before the first batch."""
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close it."""

    async def check(self) -> None:
        """Check address and credentials, for ``ccpipe validate --connect``.

        By default the part is opened and closed. A part that would change something by that, such
        as taking the port of a running bridge, does less.
        """
        async with self:
            pass


class DeadLetterSink(_Part, ABC):
    """Where dead letters are kept; writing one twice is harmless."""

    @abstractmethod
    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Store the dead letters, or raise as ``Sink.write`` does."""


class Source(_Part, ABC):
    """Yields batches."""

    gives: RecordType
    """The type of the records."""
    exclusive: bool = False
    """Whether no other process may share the work, as bridges with the same durable name do.

    ``run()`` sets it before entering the source if a translator is stateful. A source whose work
    can be shared then raises ConfigError if another process takes part.
    """
    shares_by_node: bool = False
    """Whether, when processes share the work, each sees all messages of its nodes."""
    keeps_nodes: bool = False
    """Whether a process keeps its nodes until it ends; set by ``run()`` like `exclusive`."""

    @property
    def dead_letter_sink(self) -> DeadLetterSink | None:
        """Default destination of its dead letters; None if the source has none."""
        return None

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches until the source ends or is stopped."""

    @abstractmethod
    def stop(self) -> None:
        """Ask the source to end: yield what was already received, fetch nothing new, then end.

        May be called before the first batch is requested, and after the end.
        """


class Translator(ABC):
    """Turns records into other records; synchronous and without I/O.

    If no state is needed, a plain function from records to records is sufficient. ``run()``
    numbers the feeds of each translator from 1; ``oldest_held`` and ``commit`` use these numbers.
    """

    takes: RecordType
    gives: RecordType
    is_stateful: bool = False
    """Whether its output depends on earlier records, so that it must see all of them."""
    is_per_node: bool = False
    """Whether its output depends on earlier records of the same node only."""

    @abstractmethod
    def feed(self, records: Any) -> Any:
        """Process records and return those that are ready.

        While something is held back it is called every second, without records if none arrived.
        """

    def flush(self) -> Any:
        """Return what is still held back; called at the end."""
        return ()

    def take_rejected(self) -> list[tuple[Any, str]]:
        """Return the records rejected since the last call, with reasons."""
        return []

    @property
    def oldest_held(self) -> int | None:
        """Number of the oldest feed of which something is held back, or None.

        Batches are acknowledged only when everything made from them was written.
        """
        return None

    def commit(self, feed: int) -> None:  # noqa: B027 - optional
        """Called when everything returned up to this feed is stored downstream.

        A translator that persists its state in a ``StateStore`` returns uncommitted records again
        with the first feed of the next process.

        Raises
        ------
        UnavailableError
            if that could not be noted: the batch is then not acknowledged.

        """


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on batches, on memory and on retries."""

    lines: int = 50_000
    """Maximum number of records per write."""
    bytes: int = 4 * 2**20
    """Maximum size of the records of a write, in memory, approximately."""
    age: float = 1.0
    """Maximum time that a record waits, in seconds."""
    memory: int = 64 * 2**20
    """Maximum bytes in memory, including a running write; beyond it, the source is not read."""
    grace: float = 3.0
    """Time in seconds for which writes are retried after a stop was requested."""
    timeout: float = 30.0
    """Timeout of a write in seconds, after which it is retried with half of the records.

    It grows while even small writes take longer. 0 if a write cannot be abandoned, such as a disk
    write in a thread.
    """
    backoff: float = 30.0
    """Maximum pause between attempts, in seconds; pauses grow from 0.1 s, with jitter."""


class Sink(_Part, ABC):
    """Writes records."""

    takes: RecordType
    """The type of records that it writes."""
    limits: Limits = Limits()
    """Default limits, overridden by the recipe."""
    stores_once: bool = False
    """Whether it can detect stored messages by their ids: see ``write_once``."""
    resumes: bool = False
    """Whether repeating a write stores only what the previous attempt did not.

    A write that times out is then retried unchanged, not with half of the records.
    """
    time_limit: float = 0.0
    """Its own time limit, in seconds, after which it raises TimedOutError; 0 if it has none.

    ``run()`` raises it while the store takes longer even for small writes.
    """
    safe_after: float = 0.0
    """Seconds after a write in which a killed store may lose its records; 0 if it does not.

    The records are acknowledged after this time if the store, by its ``uptime``, was not restarted
    since the write, and otherwise written again.
    """

    @abstractmethod
    async def write(self, records: Any) -> None:
        """Store the records, or raise; must not retry, log, count or wait indefinitely.

        Raises
        ------
        UnavailableError
            if the same write may succeed later.
        RejectedError, EncodeError
            if it never will.

        """

    async def uptime(self) -> float:
        """Return for how many seconds the store has been running; needed with ``safe_after``.

        Raises
        ------
        UnavailableError
            if the store does not answer.

        """
        raise NotImplementedError

    async def write_once(self, records: Any, ids: MessageIds) -> None:
        """Store the records of messages not stored yet, together with the ids of these.

        Called instead of ``write`` if the messages of some records are known. Raises the same
        errors; bad records are reported whether already stored or not.
        """
        raise NotImplementedError


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, or for a time at most: an interruptible sleep.

    ``asyncio.wait_for`` may swallow a cancellation on Python 3.11.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
