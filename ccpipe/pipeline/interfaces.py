"""The parts of a pipe: a source, translators and a sink; ``run()`` connects them.

What travels between them are ``Records`` of one type, in batches. A part declares the type that it
takes or gives; everything else, from queueing to dead letters, is the work of ``run()``. Whether a
part implements its interface is checked when it is built, before it carries anything: a misspelt
``write`` would otherwise acknowledge records that nothing has stored.
"""

import enum
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import msgspec

from ccpipe.records import Records

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
    """Where records come from whose provenance is unknown: a file, a command."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Input or a record that nothing downstream accepts, with the reason."""

    original: bytes
    reason: str
    origin: str = ""
    """Where it came from: a subject, a file."""
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


class Scope(enum.IntEnum):
    """Which earlier records the output of a translator depends on."""

    RECORD = 0
    NODE = 1
    CLUSTER = 2


class Part:
    """What sources and sinks override if they hold a connection or a file."""

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
        """Ask the source to end: yield what was already received, fetch nothing new, then end."""


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
    """A translator that holds records back; ``run()`` numbers the feeds of each, from 1.

    While it does it is fed every second, without records if none arrived. Batches are acknowledged
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
    write in a thread. The default of a sink that limits its own steps, and goes on where it was if
    it is repeated, is infinity: whatever is configured, it is repeated with the same records.
    """
    backoff: float = 30.0
    """Maximum pause between attempts, in seconds; pauses grow from 0.1 s, with jitter."""


class Sink(Part, ABC, Generic[A_contra]):
    """Writes records."""

    takes: type[A_contra]
    limits: Limits = Limits()

    @abstractmethod
    async def write(self, records: A_contra) -> None:
        """Store the records, or raise; must not retry, log, count or wait indefinitely.

        A sink that can tell which messages it has stored, by ``records.provenance``, skips these.
        Raises UnavailableError if the same write may succeed later, else RejectedError or
        EncodeError, with the indices of the records that it can name.
        """


class TimedSink(Sink[A_contra]):
    """A sink whose store must give up too: it might store later what is sent again."""

    time_limit: float
    """Seconds after which a write raises TimedOutError.

    ``run()`` raises it while even small writes take longer, and resets it at the end.
    """


class UnsyncedSink(Sink[A_contra]):
    """A sink of a store that answers before its disk has the records."""

    safe_after: float
    """Seconds after a write until it has them; then, if it was not restarted, they are safe."""

    @abstractmethod
    async def uptime(self) -> float:
        """Return for how many seconds the store runs; raises UnavailableError without an answer."""


OPTIONAL = ("__aenter__", "__aexit__", "check", "commit")
"""Methods with a default, which a part may override."""
RECORD_TYPES = ("takes", "gives", "records")
"""Attributes that declare a type of records, where the interface annotates them."""


def fault_of(part: object, interface: type[object]) -> str:
    """Return what is wrong with a part, or with its class before that is built; empty if nothing.

    A part needs no base class if its interface is a protocol.
    """
    cls = part if isinstance(part, type) else type(part)
    name = interface.__name__
    is_protocol = getattr(interface, "_is_protocol", False)
    if not is_protocol and not issubclass(cls, interface):
        return f"it must be derived from {name}"
    required = sorted(getattr(interface, "__abstractmethods__", ()))
    if missing := [method for method in required if _is_missing(getattr(part, method, None))]:
        return f"it has no method {' and no '.join(missing)}, which every {name} needs"
    for method in (*required, *OPTIONAL):
        declared = getattr(interface, method, None)
        if declared is not None and (kind := _mismatch(declared, getattr(part, method))):
            return f"its method {method} must be {kind}"
    return "" if part is cls else _type_fault(part, interface)


def _is_missing(method: object) -> bool:
    return not callable(method) or getattr(method, "__isabstractmethod__", False)


def _mismatch(declared: object, method: object) -> str:
    """Return what a method must be, if calling it as declared would fail; else nothing."""
    is_async = inspect.iscoroutinefunction(method)
    if inspect.iscoroutinefunction(declared):
        return "" if is_async else "an async def without yield"
    if getattr(declared, "__name__", "") == "batches":
        return "an async def that yields batches" if is_async else ""
    return "a def, not an async def" if is_async or inspect.isasyncgenfunction(method) else ""


def _type_fault(part: object, interface: type[object]) -> str:
    """Return which type of records a part does not declare."""
    annotated = {name for cls in interface.__mro__ for name in inspect.get_annotations(cls)}
    for name in annotated.intersection(RECORD_TYPES):
        kind = getattr(part, name, None)
        if not (isinstance(kind, type) and all(hasattr(kind, each) for each in ("name", "concat"))):
            found = f"is {kind!r:.80}" if hasattr(part, name) else "is missing"
            return f"its attribute {name} {found}; expected a type of records, such as Lines"
    return ""
