"""Reading messages from NATS over an open connection: a plain subscription, and what is shared."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Self

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.line import JOINED_BYTES
from ccpipe.bus.nats.connection import PENDING_BYTES, Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.errors import UnavailableError
from ccpipe.pipeline import Batch, wait_for_event
from ccpipe.process.background import end_tasks
from ccpipe.records import Provenance, Records, RejectedRecord
from ccpipe.telemetry import Telemetry

PROBE_SECONDS = 10.0
"""Interval at which a plain subscription checks that the broker responds."""
STUCK_SECONDS = 30.0
"""Time without an answer from the broker after which ``/ready`` reports no progress."""


class MessageReader:
    """Yields what arrived as batches; a subclass says how it arrives, by tasks that it runs."""

    def __init__(self, bus: Connection, codec: Codec[Any], telemetry: Telemetry) -> None:
        self.bus = bus
        self.codec = codec
        self.telemetry = telemetry
        self._waiting: deque[tuple[list[Delivery], int]] = deque()  # each with its bytes
        self._waiting_count = self._waiting_bytes = 0
        self._taken: list[Delivery] = []  # being decoded and handed over
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()  # messages are waiting, or the end is reached
        self._emptied = asyncio.Event()  # there is room for more
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, **work: Coroutine[Any, Any, None]) -> None:
        """Run tasks until the reader is closed; the error of one ends the iteration."""
        self.telemetry.expect(self, STUCK_SECONDS)
        self._tasks = [asyncio.create_task(w, name=f"ccpipe-{n}") for n, w in work.items()]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._changed.set())

    async def __aexit__(self, *exit_: object) -> None:
        await end_tasks(self._tasks)
        self.telemetry.expect_nothing(self)

    def stop(self) -> None:
        """End the iteration once all received messages were handed over."""
        self._stopped.set()
        self._changed.set()
        self._emptied.set()

    async def batches(self) -> AsyncIterator[Batch[Records]]:
        while True:
            while self._waiting:
                self._taken = self._take()
                for batch in self._batches(self._taken):
                    takes_long = bool(batch.records.rejected)
                    yield batch
                    if takes_long:
                        await asyncio.sleep(0)  # let other tasks run
                self._taken = []
                await asyncio.sleep(0)
            self._emptied.set()
            if self._has_ended() and not self._waiting:
                return
            self._changed.clear()
            await self._changed.wait()

    def _has_ended(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()  # raises the error that ended it
        return self._stopped.is_set()

    def _take(self) -> list[Delivery]:
        taken: list[Delivery] = []
        size = 0
        while self._waiting and size < JOINED_BYTES:
            together, more = self._waiting.popleft()
            size += more
            taken = taken + together if taken else together
        self._waiting_count -= len(taken)
        self._waiting_bytes -= size
        return taken

    def _batches(self, deliveries: list[Delivery]) -> Iterator[Batch[Records]]:
        for records, _ in self._decode(deliveries):
            yield Batch(records)

    def _decode(self, deliveries: list[Delivery]) -> Iterator[tuple[Records, int]]:
        """Decode messages; one that violates the protocol becomes a dead letter."""
        flawed = [place for place, delivery in enumerate(deliveries) if delivery.flaw]
        first = 0
        for place in flawed:
            yield from self.codec.decode(deliveries[first:place])
            delivery = deliveries[place]
            records: Any = self.codec.records()
            records.rejected = [RejectedRecord(delivery.payload, delivery.flaw)]
            records.provenance = Provenance.of_message(delivery.subject, 0)
            yield records, 1
            first = place + 1
        yield from self.codec.decode(deliveries[first:] if flawed else deliveries)

    def _keep(self, deliveries: list[Delivery], size: int) -> None:
        if deliveries:
            self._waiting.append((deliveries, size))
            self._waiting_count += len(deliveries)
            self._waiting_bytes += size
            self._changed.set()


class SubscriptionReader(MessageReader):
    """A plain subscription: only messages published from now on."""

    def __init__(
        self,
        bus: Connection,
        codec: Codec[Any],
        telemetry: Telemetry,
        patterns: list[str],
        queue: str,
    ) -> None:
        super().__init__(bus, codec, telemetry)
        self.patterns = patterns
        self.queue = queue

    async def __aenter__(self) -> Self:
        for pattern in self.patterns:
            await self.bus.subscribe_lists(pattern, self._receive, self.queue)
        self.start(probe=self._probe())
        return self

    def _receive(self, deliveries: list[Delivery]) -> None:
        """Keep messages of a plain subscription; beyond the limit they are dropped and counted."""
        size = size_of(deliveries)
        if self._waiting_bytes + size > PENDING_BYTES:
            self.telemetry.count(self.telemetry.bus_errors, "slow_consumer", len(deliveries))
            return
        self._keep(deliveries, size)

    async def _probe(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(UnavailableError):
                await self.bus.flush()
                self.telemetry.expect(self, STUCK_SECONDS)
            await wait_for_event(self._stopped, PROBE_SECONDS)


def size_of(deliveries: list[Delivery]) -> int:
    return sum([len(delivery.payload) for delivery in deliveries])
