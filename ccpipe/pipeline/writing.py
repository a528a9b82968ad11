"""The writing half of a pipe: from the queue, in batches, to the sink, then acknowledged."""

import asyncio
import contextlib
import functools
import logging
import math
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ccpipe.errors import CcpipeError, OutputError, TimedOutError, UnavailableError
from ccpipe.pipeline.delivery import LAST_SECONDS, Attempts, Portion, SinkWriter, now, portions
from ccpipe.pipeline.interfaces import A_contra, Sink
from ccpipe.pipeline.limits import Limits
from ccpipe.pipeline.stages import Item, commit
from ccpipe.process.background import wait_for_own_event
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""Minimum time between two questions to the store."""


class Queue:
    """Batches between one reader and one writer.

    Neither side awaits between checking the state and waiting for a change, so that no wake-up is
    lost and no lock is needed.
    """

    def __init__(self, limits: Limits, telemetry: Telemetry) -> None:
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
        item.born = now()
        while self.held and self.held >= self.limits.max_memory:
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
        self.ended = True
        self._due.set()

    async def take(self, until: float | None = None) -> list[Item]:
        """Wait for a full batch, an old one or the end; an empty list means the end.

        With `until`, it also means that this time has passed; the end is then not reported.
        """
        while not self._is_due() or not (self.items or until is None):
            if until is not None and now() >= until:
                return []
            self._due.clear()
            old = self.items[0].born + self.limits.max_wait if self.items else math.inf
            await wait_for_own_event(self._due, min(old, math.inf if until is None else until))
        return self._gather()

    def _is_due(self) -> bool:
        if not self.items:
            return self.ended
        return (
            self.ended
            or self.flush_now
            or self._is_full()
            or now() >= self.items[0].born + self.limits.max_wait
        )

    def _is_full(self) -> bool:
        return (
            self.size >= self.limits.max_bytes
            or self.lines >= self.limits.max_records
            or self.held >= self.limits.max_memory
        )

    def _gather(self) -> list[Item]:
        """Take the oldest items up to the limits, at least one."""
        taken: list[Item] = []
        lines = size = 0
        while self.items:
            item = self.items[0]
            lines += len(item.records)
            size += item.size
            if taken and (lines > self.limits.max_records or size > self.limits.max_bytes):
                break
            taken.append(self.items.popleft())
            self.lines -= len(item.records)
            self.size -= item.size
        return taken


@dataclass(slots=True)
class _Written:
    """Items of one write."""

    items: Sequence[Item]
    began: float
    """When the write began, or the earliest of several."""
    due: float
    """When the store has them on its disk, unless it was restarted since."""


class UnsyncedSink(Sink[A_contra]):
    """A sink of a store that answers before its disk has the records."""

    safe_after: float
    """Seconds after a write until it has them; then, if it was not restarted, they are safe."""

    @abstractmethod
    async def uptime(self) -> float:
        """Return for how many seconds the store runs; raises UnavailableError without an answer."""


class Confirmation:
    """Delays the acknowledgement of written items for ``safe_after`` seconds, in order.

    A store that was restarted meanwhile may have lost them: they are written again.
    """

    def __init__(self, sink: Sink[Records], attempts: Attempts) -> None:
        """Query the uptime of the store of `sink`, if it answers before records are safe."""
        self.sink = sink if isinstance(sink, UnsyncedSink) else None
        self.safe_after = self.sink.safe_after if self.sink else 0.0
        self.attempts = attempts
        self._written = deque[_Written]()
        self._next = 0.0  # no question before

    @property
    def is_needed(self) -> bool:
        """Whether the sink's store answers before its disk has the records."""
        return self.safe_after > 0

    @property
    def due(self) -> float | None:
        """When to call ``confirm`` again; None if nothing is held back."""
        return max(self._written[0].due, self._next) if self._written else None

    def __bool__(self) -> bool:
        return bool(self._written)

    def __iter__(self) -> Iterator[Sequence[Item]]:
        """Yield the items that are held back, by write."""
        return (each.items for each in self._written)

    def add(self, items: Sequence[Item], began: float) -> None:
        """Delay the acknowledgement of items just written; their first write began at `began`."""
        if items:
            self._written.append(_Written(items, began, now() + self.safe_after))

    async def confirm(self, write: Callable[[Sequence[Item]], Awaitable[float]]) -> list[Item]:
        """Return the oldest items if they are safe; write again what the store may have lost.

        `write` returns when its first write began.

        Raises
        ------
        UnavailableError
            if the store does not answer within the grace period.

        """
        asked = now()
        if self.due is None or asked < self.due:
            return []
        started = await self._started()
        lost = [each for each in self._written if each.began < started]
        if lost:
            records = sum(len(item.records) for each in lost for item in each.items)
            log.warning("the store was restarted: writing %d records again", records)
        for each in lost:
            each.began = await write(each.items)
            each.due = now() + self.safe_after
        self._next = now() + CHECK_SECONDS
        safe: list[Item] = []
        while self._written and self._written[0].due <= asked:
            safe += self._written.popleft().items
        return safe

    async def _started(self) -> float:
        """Return when the store was started; rather too late than too early."""
        sink, uptime = self.sink, 0.0
        assert sink is not None

        async def ask() -> None:
            nonlocal uptime
            uptime = await sink.uptime()

        await self.attempts.retry(ask, sink)
        return now() - uptime


ACKNOWLEDGE_SECONDS = 60.0
"""Maximum time for acknowledging what was written."""


class PipeWriter:
    """Writes what is in the queue until it ends, and acknowledges what is safe."""

    def __init__(
        self,
        queue: Queue,
        delivery: SinkWriter,
        confirmation: Confirmation,
        begin_shutdown: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.delivery = delivery
        self.confirmation = confirmation
        self.begin_shutdown = begin_shutdown
        self.attempts = delivery.attempts
        self._is_upstream_silent = False  # acknowledgements after the grace period do not wait

    async def write(self) -> None:
        """Write until the queue ends; if writing fails, keep what could not be written."""
        delivery, items = self.delivery, list[Item]()
        try:
            while (items := await self.queue.take(self.confirmation.due)) or self.confirmation:
                delivery.take(items)
                while items:
                    await delivery.write()
                    done = items[: delivery.complete(items)]
                    await delivery.write_dead_letters_of(done)
                    await self._finish(done)
                    items = items[len(done) :]
                await self._release(await self.confirmation.confirm(self._write_again))
        except (BrokenPipeError, OutputError):
            self.begin_shutdown()  # a command whose output is closed has no reader for the rest
            raise
        except Exception as error:
            self.begin_shutdown()
            held = list(self.confirmation)
            rest = delivery.unwritten if items else []
            again = [portion for each in reversed(held) for portion in portions(each)]
            await self._keep(
                [*chain.from_iterable(held), *items], rest + again, f"not delivered: {error}"
            )
            raise

    async def _finish(self, items: Sequence[Item]) -> None:
        """Acknowledge written items, or delay that until the store has them on its disk."""
        if not self.confirmation.is_needed:
            await self._release(items)
            return
        self.confirmation.add(items, min(self.delivery.since, now()))
        if not self.delivery.unwritten:
            self.delivery.since = math.inf

    async def _write_again(self, items: Sequence[Item]) -> float:
        """Write items that a store may have lost; return when that began."""
        began = now()
        self.delivery.take(items)
        while self.delivery.unwritten:
            await self.delivery.write()
        await self.delivery.write_dead_letters_of(items)
        self.delivery.since = math.inf
        return began

    async def _release(self, items: Sequence[Item]) -> None:
        """Acknowledge items that are safe, and forget them."""
        await self._acknowledge(items)
        self.queue.release(items)

    async def _acknowledge(self, items: Sequence[Item]) -> None:
        """Acknowledge completed batches; at the end, do not wait for an unresponsive upstream."""
        complete = [receipt for item in items for receipt in item.complete]
        try:
            commit(complete)
            if acks := [receipt.ack for receipt in complete if receipt.ack is not None]:
                await self.attempts.bounded(
                    functools.partial(_call_each, acks),
                    ACKNOWLEDGE_SECONDS,
                    last=0.0 if self._is_upstream_silent else LAST_SECONDS,
                )
        except TimedOutError:
            self._is_upstream_silent = True
            log.warning("the source cannot acknowledge; written records will be redelivered")
        except UnavailableError as error:
            log.warning("%s; written records will be redelivered", error)

    async def _keep(self, items: list[Item], unwritten: list[Portion], reason: str) -> None:
        """Make dead letters of records without an upstream, until the source has ended too."""
        self.queue.flush_now = True
        deadline = now() + self.attempts.limits.stop_timeout
        while items:
            letters = [bad for item in items if not item.is_redelivered for bad in item.letters]
            letters += [
                portion.dead_letter(i, reason)
                for portion in reversed(unwritten)
                for i in range(len(portion.records))
                if not portion.item(i).is_redelivered
            ]
            try:
                await self.delivery.letters.write(letters)
            except CcpipeError as error:
                log.error("%d dead letters are lost: %s", len(letters), error)  # noqa: TRY400
            self.queue.release(items)
            items = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    items = await self.queue.take()
            unwritten = portions(items)

    def close(self) -> None:
        """Give the sink its configured time limit back."""
        self.delivery.time_limit.reset()


async def _call_each(acks: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Acknowledge batches in order; one that cannot be is delivered again."""
    for ack in acks:
        try:
            await ack()
        except UnavailableError as error:
            log.warning("%s; it will be redelivered", error)
