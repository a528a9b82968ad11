"""The parts of a pipe: a source, translators and a sink; ``run()`` connects them.

They exchange batches of ``Records`` of one type. A part declares the type that it takes or gives;
``run()`` does everything else, from queueing to dead letters.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar

from ccpipe.pipeline.limits import Limits
from ccpipe.records import DeadLetter, Records

R_co = TypeVar("R_co", bound=Records, covariant=True)
A_contra = TypeVar("A_contra", bound=Records, contravariant=True)
B_co = TypeVar("B_co", bound=Records, covariant=True)


@dataclass(frozen=True, slots=True)
class Batch(Generic[R_co]):
    """Records that are acknowledged together."""

    records: R_co
    ack: Callable[[], Awaitable[None]] | None = None
    """Called once, when all are stored or dead letters; None if nothing delivers them again."""
    origin: str = ""
    """Origin of records without provenance: a file, a command."""


class Scope(enum.IntEnum):
    """Which earlier records the output of a translator depends on."""

    RECORD = 0
    NODE = 1
    CLUSTER = 2


class Part:
    """The methods that sources and sinks override if they open a connection or a file."""

    async def __aenter__(self) -> Self:
        """Open the part; called by ``run()`` before the first batch."""
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close it; it may be opened again."""

    async def check(self) -> None:
        """Try address and credentials for ``validate --connect``; not what takes a port."""
        async with self:
            pass


class DeadLetterSink(Part, ABC):
    """Where dead letters are kept; writing one twice is harmless."""

    keeps: ClassVar[bool] = True
    """False if it discards them, and the log must not call them dead letters."""

    @abstractmethod
    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Store the dead letters, or raise as ``Sink.write`` does."""


class Source(Part, ABC, Generic[R_co]):
    """Yields batches."""

    gives: type[R_co]

    @property
    def dead_letter_sink(self) -> DeadLetterSink | None:
        """Default destination of its dead letters; None if the source has none."""
        return None

    @abstractmethod
    def batches(self) -> AsyncIterator[Batch[R_co]]:
        """Yield batches until the source ends or is stopped; an asynchronous generator."""

    @abstractmethod
    def stop(self) -> None:
        """End: yield what was already received and fetch nothing new."""


class SharedSource(Source[R_co]):
    """A source of which several processes may share the work."""

    @abstractmethod
    def batches(self, scope: Scope = Scope.RECORD) -> AsyncIterator[Batch[R_co]]:
        """Yield batches; raise ConfigError if another process may get records of this scope."""


class Translator(ABC, Generic[A_contra, B_co]):
    """Turns records into others, without I/O; a function that keeps their type is one, too."""

    takes: type[A_contra]
    gives: type[B_co]
    scope: Scope = Scope.RECORD

    @abstractmethod
    def feed(self, records: A_contra) -> B_co:
        """Return what is ready; records that it rejects are added to ``rejected``."""


class HoldingTranslator(Translator[A_contra, B_co]):
    """A translator that withholds records; ``run()`` numbers the feeds of each, from 1.

    Meanwhile it is fed every second, without records if none arrived. Batches are acknowledged
    when everything made from them was written.
    """

    @abstractmethod
    def oldest_held(self) -> int | None:
        """Return the number of the oldest feed of which something is held back, or None."""

    @abstractmethod
    def flush(self) -> B_co:
        """Return what is held back; called at the end."""

    def commit(self, feed: int) -> None:
        """Called when what was returned up to this feed is stored; may raise UnavailableError.

        With a ``StateStore`` the next process returns what is not committed with its first feed.
        """


class Sink(Part, ABC, Generic[A_contra]):
    """Writes records."""

    takes: type[A_contra]
    limits: Limits = Limits()

    @abstractmethod
    async def write(self, records: A_contra) -> None:
        """Store the records, or raise; must not retry, log, count or wait indefinitely.

        A sink that knows which messages it has stored, by ``records.provenance``, skips these.
        Raises UnavailableError if the same write may succeed later, else RejectedError or
        EncodeError, with the indices of the records that it can name.
        """
