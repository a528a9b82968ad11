"""The plug: a source, translators and a sink, and ``run()``, which joins them.

``run()`` alone owns queueing, batching, bounded memory, back-pressure, retry, splitting of a
rejected batch, dead letters, acknowledgement after write, flushing and counting. That is why a
store is forty lines, and why a publisher and a bridge are the same program with other parts.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import tenacity

from ccpipe.errors import CcpipeError, EncodeError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, encode
from ccpipe.message import Message
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

Records = Lines | Sequence[Message]
"""What travels: columns where bytes were decoded, messages where they were made."""


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


class Source(Protocol):
    """Hands over batches. One that holds a connection is an async context manager too."""

    def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches until the source ends or is stopped."""
        ...

    def stop(self) -> None:
        """Ask for the end: hand over what is in hand, fetch nothing new."""
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
        """Make the records safe, or raise; never retry, log or count.

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
        """Make the letters safe; raises UnavailableError where that must be tried again."""
        ...


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is gathered before it is written, and how much is held at most."""

    lines: int = 50_000
    bytes: int = 4 * 2**20
    age: float = 1.0
    """Seconds that the oldest record waits at most."""
    memory: int = 64 * 2**20
    """Bytes held at most, written or not: beyond, the source is not read (back-pressure)."""
    grace: float = 3.0
    """Seconds that a sink which fails is still tried after the pipe was told to stop."""
    backoff: float = 30.0
    """Longest pause between two tries, in seconds; pauses grow from 0.1 s and are jittered."""


async def run(
    source: Source,
    sink: Sink,
    *,
    translators: Sequence[Translator] = (),
    cemetery: Cemetery | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Carry everything from `source` through `translators` to `sink`, until the source ends.

    Setting `stop` asks the source to end; what it has handed over by then is still written, for
    ``limits.grace`` seconds if the sink fails. Records that had no one upstream to hand them over
    again are then buried rather than lost.

    Raises
    ------
    UnavailableError
        where records could not be written within that time; they were not acknowledged.
    CcpipeError
        where source or sink cannot work at all.

    """
    limits, telemetry = limits or Limits(), telemetry or Telemetry()
    pipe = _Pipe(source, sink, translators, cemetery, limits, telemetry, stop or asyncio.Event())
    async with contextlib.AsyncExitStack() as stack:
        parts: list[object] = [cemetery, sink, source]
        for part in parts:
            if isinstance(part, contextlib.AbstractAsyncContextManager):
                await stack.enter_async_context(part)
        watcher = asyncio.create_task(pipe.watch_stop(), name="ccpipe-stop")
        telemetry.ready = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(pipe.read(), name="ccpipe-read")
                tasks.create_task(pipe.write(), name="ccpipe-write")
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1 and isinstance(group.exceptions[0], CcpipeError):
                raise group.exceptions[0] from None
            raise
        finally:
            telemetry.ready = False
            watcher.cancel()


@dataclass(slots=True)
class _Item:
    batch: Batch
    size: int
    born: float = field(default_factory=time.monotonic)


class _Queue:
    """Batches between reader and writer, bounded in bytes."""

    def __init__(self, limits: Limits, telemetry: Telemetry) -> None:
        self.limits = limits
        self.telemetry = telemetry
        self.items: deque[_Item] = deque()
        self.lines = self.size = 0  # of what waits
        self.held = 0  # bytes of what waits and of what is being written
        self.ended = False
        self.changed = asyncio.Condition()

    async def put(self, item: _Item) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.held < self.limits.memory)
            self.items.append(item)
            self.lines += len(item.batch.records)
            self.size += item.size
            self.hold(item.size)

    def hold(self, size: int) -> None:
        self.held += size
        self.telemetry.queued_bytes.set(self.held)
        self.changed.notify_all()

    async def release(self, items: Sequence[_Item]) -> None:
        async with self.changed:
            self.hold(-sum(item.size for item in items))

    async def end(self) -> None:
        async with self.changed:
            self.ended = True
            self.changed.notify_all()

    async def take(self) -> list[_Item]:
        """Wait for a full batch, an old one or the end; an empty list is the end."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.items or self.ended)
            while self.items and not self.ended and not self.is_full():
                wait = self.items[0].born + self.limits.age - time.monotonic()
                if wait <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), wait)
            return self.gather()

    def is_full(self) -> bool:
        return (
            self.size >= self.limits.bytes
            or self.lines >= self.limits.lines
            or self.held >= self.limits.memory
        )

    def gather(self) -> list[_Item]:
        """Take the oldest items up to the limits, at least one."""
        taken: list[_Item] = []
        lines = size = 0
        while self.items:
            item = self.items[0]
            lines += len(item.batch.records)
            size += item.size
            if taken and (lines > self.limits.lines or size > self.limits.bytes):
                break
            taken.append(self.items.popleft())
            self.lines -= len(item.batch.records)
            self.size -= item.size
        return taken


class _Pipe:
    """What one ``run()`` knows."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        translators: Sequence[Translator],
        cemetery: Cemetery | None,
        limits: Limits,
        telemetry: Telemetry,
        stop: asyncio.Event,
    ) -> None:
        self.source = source
        self.sink = sink
        self.translators = translators
        self.cemetery = cemetery
        self.limits = limits
        self.telemetry = telemetry
        self.stop = stop
        self.stopped_at = 0.0
        self.queue = _Queue(limits, telemetry)

    async def watch_stop(self) -> None:
        await self.stop.wait()
        self.stopped_at = time.monotonic()
        self.source.stop()

    async def read(self) -> None:
        async for batch in self.source:
            self.telemetry.count(self.telemetry.read, self.source, len(batch.records))
            await self.bury(_unreadable(batch))
            for translator in self.translators:
                batch.records = translator.feed(batch.records)
            await self.queue.put(_Item(batch, _size(batch.records)))
        for position, translator in enumerate(self.translators, 1):
            held = translator.flush()
            for later in self.translators[position:]:
                held = later.feed(held)
            if held:
                await self.queue.put(_Item(Batch(held), _size(held)))
        await self.queue.end()

    async def write(self) -> None:
        while items := await self.queue.take():
            try:
                await self.deliver(
                    join([item.batch.records for item in items]), items[0].batch.origin
                )
            except UnavailableError as error:
                await self.keep([*items, *self.queue.items], str(error))
                raise
            for item in items:
                await item.batch.ack()
            await self.queue.release(items)

    async def deliver(self, records: Records, origin: str) -> None:
        """Write records; halve a rejected batch down to the bad record, which is buried."""
        if not len(records):
            return
        try:
            await self.insist(lambda: self.sink.write(records), self.sink)
        except (RejectedError, EncodeError) as error:
            if len(records) == 1:
                await self.bury([_refused(records[0], str(error), origin)])
            elif bad := set(getattr(error, "indices", None) or ()):
                await self.bury([_refused(records[i], str(error), origin) for i in sorted(bad)])
                await self.deliver([r for i, r in enumerate(records) if i not in bad], origin)
            else:
                half = len(records) // 2
                await self.deliver(records[:half], origin)
                await self.deliver(records[half:], origin)
        else:
            self.telemetry.wrote(self.sink, len(records))

    async def keep(self, items: Sequence[_Item], reason: str) -> None:
        """Bury what was not delivered and what nobody upstream would hand over again."""
        lost = [item for item in items if item.batch.ack is _nothing_to_acknowledge]
        if self.cemetery is not None:
            await self.cemetery.bury(
                [
                    _refused(record, f"not delivered: {reason}", item.batch.origin)
                    for item in lost
                    for record in item.batch.records
                ]
            )

    async def bury(self, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        for letter in letters[:_LOGGED]:
            log.warning("%s", letter)
        if len(letters) > _LOGGED:
            log.warning("… and %d more dead letters", len(letters) - _LOGGED)
        if self.cemetery is not None:
            cemetery = self.cemetery
            await self.insist(lambda: cemetery.bury(letters), cemetery)
        self.telemetry.count(self.telemetry.dead, self.source, len(letters))

    async def insist(self, attempt: Callable[[], Awaitable[None]], part: object) -> None:
        """Try until it works; once the pipe was told to stop, only for the grace that is left."""

        def note(state: tenacity.RetryCallState) -> None:
            self.telemetry.failed(part)
            error = state.outcome.exception() if state.outcome else None
            log.warning("%s: %s; trying again", type(part).__name__, error)

        async for trial in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=self.limits.backoff),
            stop=self.is_out_of_grace,
            sleep=self.pause,
            before_sleep=note,
            reraise=True,
        ):
            with trial:
                await attempt()

    def is_out_of_grace(self, _: tenacity.RetryCallState) -> bool:
        return self.stop.is_set() and time.monotonic() > self.stopped_at + self.limits.grace

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than a moment once the pipe was told to stop."""
        if self.stop.is_set():
            await asyncio.sleep(min(seconds, 0.1))
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), seconds)


_LOGGED = 10


def join(parts: Sequence[Records]) -> Records:
    """Join records into one batch; columns stay columns."""
    lines = [part for part in parts if isinstance(part, Lines)]
    if len(lines) == len(parts):
        return Lines.concat(lines)
    return [record for part in parts for record in part]


def _size(records: Records) -> int:
    """Estimate the bytes that records hold; a message takes about half a kilobyte."""
    return records.size if isinstance(records, Lines) else 512 * len(records)


def _unreadable(batch: Batch) -> list[DeadLetter]:
    rejected = batch.records.rejected if isinstance(batch.records, Lines) else []
    return [
        DeadLetter(bad.original, str(bad.rule), batch.origin, bad.line, bad.offset)
        for bad in rejected
    ]


def _refused(record: Message, reason: str, origin: str) -> DeadLetter:
    """Spell a record that could be read but not written, as a line if it can be one."""
    try:
        original = encode([record], precision="auto").rstrip(b"\n")
    except EncodeError:
        original = repr(record).encode()
    return DeadLetter(original, reason, origin)
