"""The queue between reader and writer: forms batches and bounds memory."""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ccpipe.pipeline.dead_letters import DeadLetter
from ccpipe.pipeline.limits import Limits
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry


def now() -> float:
    """Return the time of the clock that timers use, in seconds."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class Receipt:
    """What is left of a batch while its records are under way: its acknowledgement."""

    ack: Callable[[], Awaitable[None]] | None = None
    commits: list[tuple[Callable[[int], None], int]] = field(default_factory=list)
    """Called before `ack`: ``HoldingTranslator.commit`` of each translator, with its feed."""


@dataclass(slots=True)
class Item:
    """Records in the queue, and the batches that are complete once they are written."""

    records: Records
    origin: str = ""
    """Where records come from whose provenance is unknown."""
    letters: list[DeadLetter] = field(default_factory=list)
    """Dead letters to write before the batches are acknowledged."""
    complete: list[Receipt] = field(default_factory=list)
    is_redelivered: bool = False
    """Whether what is not acknowledged is delivered again."""
    size: int = field(init=False)
    """Approximate size in memory, in bytes."""
    born: float = field(default_factory=now)

    def __post_init__(self) -> None:
        letters = sum(len(letter.original) for letter in self.letters)
        self.size = _OVERHEAD + self.records.size + letters


class Queue:
    """Batches between one reader and one writer.

    Neither side awaits between checking the state and waiting for a change, so that no wake-up is
    lost and no lock is needed.
    """

    def __init__(self, limits: Limits, telemetry: Telemetry) -> None:
        """Start empty."""
        self.limits = limits
        self.telemetry = telemetry
        self.items: deque[Item] = deque()
        self.lines = self.size = 0  # of the waiting items
        self.held = 0  # bytes of waiting items and of the running write
        self.ended = False
        self.flush_now = False
        """Set by a writer that does not want to wait for a full batch."""
        self._due = asyncio.Event()  # wakes the writer
        self._room = asyncio.Event()  # wakes the reader

    async def put(self, item: Item) -> None:
        """Add an item, once memory use is below the limit."""
        while self.held and self.held >= self.limits.memory:
            self._room.clear()
            await self._room.wait()
        self.items.append(item)
        self.lines += len(item.records)
        self.size += item.size
        self._hold(item.size)
        if len(self.items) == 1 or self._is_full():
            self._due.set()
            await asyncio.sleep(0)  # a source that never blocks must not starve the writer

    def release(self, items: Sequence[Item]) -> None:
        """Stop counting items that were taken and are now written."""
        self._hold(-sum(item.size for item in items))
        self._room.set()

    def _hold(self, size: int) -> None:
        self.held += size
        self.telemetry.queued_bytes.set(self.held)

    def end(self) -> None:
        """Mark the end: nothing more will be put."""
        self.ended = True
        self._due.set()

    async def take(self, until: float | None = None) -> list[Item]:
        """Wait for a full batch, an old one or the end; an empty list means the end.

        If a time is given it means that this time has come; the end is then not reported.
        """
        while not self._is_due() or not (self.items or until is None):
            if until is not None and now() >= until:
                return []
            self._due.clear()
            old = self.items[0].born + self.limits.age if self.items else math.inf
            when = min(old, math.inf if until is None else until)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if when == math.inf else when):
                    await self._due.wait()
        return self._gather()

    def _is_due(self) -> bool:
        if not self.items:
            return self.ended
        return (
            self.ended
            or self.flush_now
            or self._is_full()
            or now() >= self.items[0].born + self.limits.age
        )

    def _is_full(self) -> bool:
        return (
            self.size >= self.limits.bytes
            or self.lines >= self.limits.lines
            or self.held >= self.limits.memory
        )

    def _gather(self) -> list[Item]:
        """Take the oldest items up to the limits, at least one."""
        taken: list[Item] = []
        lines = size = 0
        while self.items:
            item = self.items[0]
            lines += len(item.records)
            size += item.size
            if taken and (lines > self.limits.lines or size > self.limits.bytes):
                break
            taken.append(self.items.popleft())
            self.lines -= len(item.records)
            self.size -= item.size
        return taken


_OVERHEAD = 512
"""Bytes of an item without its records."""
