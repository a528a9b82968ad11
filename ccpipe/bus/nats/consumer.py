"""Reading messages from NATS: the base of all readers, and a durable consumer of JetStream."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Self

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.line import JOINED_BYTES
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Deliveries, Redelivery, all_stored, stored_as
from ccpipe.bus.nats.protocol.splitter import concatenated, stored
from ccpipe.bus.nats.streams.jetstream import consumer_of
from ccpipe.bus.nats.streams.partitions import StreamPartition
from ccpipe.bus.nats.streams.stream import (
    ensure_consumer,
    ensure_stream,
    refuse_others,
    require_unpartitioned,
)
from ccpipe.bus.nats.streams.unread import UnreadWatch
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.pipeline import Batch, wait_for_event
from ccpipe.process.background import background, end_tasks
from ccpipe.records import Provenance, Records, RejectedRecord
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.01
"""How long messages wait for others that are on their way: a batch of many costs less."""
STUCK_SECONDS = 30.0
"""Time without an answer from the broker after which ``/ready`` reports no progress."""
PULL = 5000
"""Maximum number of messages per request, and of undecoded messages or bytes held here."""
PULL_BYTES = 16 * 2**20
PULL_SECONDS = 3.0
"""How long the broker keeps a request open without messages."""
SILENT_SECONDS = 5.0
"""Without an answer for this long the broker counts as unreachable, and shutdown does not wait."""
REMEMBERED_BYTES = 400_000
"""Maximum size of the acknowledgements that are repeated on a new connection: some 5000."""
SETTLE_SECONDS = 1.0
"""How much longer than `ack_wait` a redelivery by the broker may take."""
REFUSED_SECONDS = (0.5, 10.0)
"""Minimum and maximum pause after requests that the broker refuses in a row."""


class MessageReader:
    """Yields received messages as batches; the tasks of a subclass receive them."""

    def __init__(self, bus: Connection, codec: Codec[Any], telemetry: Telemetry) -> None:
        self.bus = bus
        self.codec = codec
        self.telemetry = telemetry
        self._waiting: deque[Deliveries] = deque()
        self._waiting_count = self._waiting_bytes = 0
        self._taken = Deliveries([])  # being decoded and handed over
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()  # messages are waiting, or the end is reached
        self._emptied = asyncio.Event()  # more can be received
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
                self._taken = Deliveries([])
                await asyncio.sleep(0)
            self._emptied.set()
            if self._has_ended() and not self._waiting:
                return
            self._changed.clear()
            await self._changed.wait()
            if self._waiting_bytes < JOINED_BYTES and not self._stopped.is_set():
                await asyncio.sleep(GATHER_SECONDS)

    def _has_ended(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()  # raises the error that ended it
        return self._stopped.is_set()

    def _take(self) -> Deliveries:
        parts: list[Deliveries] = []
        size = 0
        while self._waiting and size < JOINED_BYTES:
            parts.append(self._waiting.popleft())
            size += parts[-1].size
        taken = concatenated(parts)
        self._waiting_count -= len(taken)
        self._waiting_bytes -= size
        return taken

    def _batches(self, deliveries: Deliveries) -> Iterator[Batch[Records]]:
        for records, _ in self._decode(deliveries):
            yield Batch(records)

    def _decode(self, deliveries: Deliveries) -> Iterator[tuple[Records, int]]:
        """Decode messages; one that violates the protocol becomes a dead letter."""
        first = 0
        for place in deliveries.flawed:
            yield from self.codec.decode(deliveries[first:place])
            delivery = deliveries[place]
            records: Any = self.codec.records()
            records.rejected = [RejectedRecord(delivery.payload, delivery.flaw)]
            records.provenance = Provenance.of_message(delivery.subject, 0)
            yield records, 1
            first = place + 1
        yield from self.codec.decode(deliveries[first:] if first else deliveries)

    def _keep(self, deliveries: Deliveries) -> None:
        if deliveries:
            self._waiting.append(deliveries)
            self._waiting_count += len(deliveries)
            self._waiting_bytes += deliveries.size
            self._changed.set()


class ConsumerReader(MessageReader):
    """Reads one durable consumer, alone or sharing the work with other processes."""

    def __init__(
        self,
        bus: Connection,
        codec: Codec[Any],
        telemetry: Telemetry,
        *,
        site: Site,
        partition: StreamPartition,
        patterns: list[str],
        ack_wait: float,
        drain: float = 0.0,
        exclusive: bool = False,
        is_whole: bool = True,
    ) -> None:
        """Read the consumer of `partition`, which gets what is published on `patterns`.

        If `exclusive` no other process may read it. If it `is_whole` the stream must have no
        partitions. See ``NatsSource`` for the other options.
        """
        super().__init__(bus, codec, telemetry)
        self.site = site
        self.partition = partition
        self.durable = partition.consumer
        self.patterns = patterns
        self.ack_wait = ack_wait
        self.drain = drain
        self.is_whole = is_whole
        self.stream = ""
        """Name of the stream; empty until it was found."""
        self.handed_over: dict[int, bytes] = {}
        """Reply subjects of each batch that is not acknowledged yet, with a space between two."""
        # A process may have several readers: one for each of its recipes.
        self._owner = (
            f"{site.hostname} pid {os.getpid()} {secrets.token_hex(3)}" if exclusive else ""
        )
        self._acknowledged = deque[bytes]()  # reply subjects: sent, or could not be sent
        self._acknowledged_bytes = 0
        self._redelivery = Redelivery(self._known)
        self._settled = -1  # connection number since which no older message can arrive
        self._unsorted: Deliveries | None = None  # delivered again, until all have arrived
        self._identity = ""  # of the consumer
        self._served = asyncio.Event()  # the open request is done
        self._asked = 0  # messages that the open request may still bring
        self._is_empty = False  # the stream, as of the last query
        self._refusal = ""  # of the last request that was refused
        self._refused = 0  # requests in a row
        self._inbox = ""
        self._consumer = ""  # identifies the consumer that numbers belong to
        self._unread = UnreadWatch(bus, self.durable, telemetry)
        self._prefix = partition.prefix  # of stored subjects

    async def __aenter__(self) -> Self:
        self._inbox = self.bus.new_inbox()
        await self.bus.subscribe_lists(self._inbox, self._receive)
        unread = self._unread.run(lambda: self.stream)
        self.start(pull=self._pull(), alive=self._stay_alive(), unread=unread)
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await super().__aexit__()
        if self.stream:
            await self._unread.poll_last(self.stream)

    def stop(self) -> None:
        super().stop()
        self._served.set()

    def release(self) -> None:
        """End like ``stop``, but only after the messages of the open request have arrived."""
        self._stopped.set()
        self._emptied.set()

    @property
    def is_acknowledged(self) -> bool:
        return not (self._waiting or self._taken or self.handed_over)

    def _has_ended(self) -> bool:
        super()._has_ended()
        return self._tasks[0].done()  # the task that requests messages may drain the stream first

    def _batches(self, deliveries: Deliveries) -> Iterator[Batch[Records]]:
        first = 0
        for records, count in self._decode(deliveries):
            replies = deliveries[first : first + count].replies
            if records.provenance and (found := stored(replies)):
                records.provenance = records.provenance.identified(self._consumer, *found)
            self.handed_over[id(replies)] = replies
            yield Batch(records, functools.partial(self._acknowledge, replies))
            first += count

    async def _acknowledge(self, replies: bytes) -> None:
        # If it cannot be sent, it must not count as in progress: no redelivery would follow.
        self.handed_over.pop(id(replies), None)
        self._acknowledged.append(replies)
        self._acknowledged_bytes += len(replies)
        while self._acknowledged_bytes > REMEMBERED_BYTES and len(self._acknowledged) > 1:
            self._acknowledged_bytes -= len(self._acknowledged.popleft())
        # An acknowledgement lost with the connection causes one more delivery, never one less.
        with contextlib.suppress(UnavailableError):
            await self.bus.publish_each([replies], b"+ACK")

    def _receive(self, deliveries: Deliveries) -> None:
        """Keep the messages of our request, and handle the server's status messages.

        A message with a reply subject that JetStream did not choose is dropped: acknowledging it
        would publish on a subject of its sender's choice.
        """
        messages = deliveries if self._are_new(deliveries) else self._sort_out(deliveries)
        if self._prefix:
            messages = messages.without_prefix(self._prefix)
        if self._unsorted is None:
            self._keep(messages)
        else:
            self._unsorted = concatenated([self._unsorted, messages])
        self._asked -= len(messages)
        if self._asked <= 0:
            self._served.set()

    def _are_new(self, deliveries: Deliveries) -> bool:
        return deliveries.are_first and not self._redelivery.is_expecting

    def _sort_out(self, deliveries: Deliveries) -> Deliveries:
        """Return the new messages; handle status messages and what is delivered again."""
        messages, others = deliveries.by_reply()
        for code, words in [each.status for each in others]:
            if code:
                self._end_request(code, words)
        if self._are_new(messages):
            return messages
        ours = [each for each in messages if each.reply.startswith("$JS.ACK.")]
        if foreign := len(messages) - len(ours):
            self.telemetry.count(self.telemetry.bus_errors, "malformed", foreign)
        new, repeated = self._redelivery.split(ours)
        if repeated:
            self._asked -= len(repeated)
            self._drop(Deliveries(repeated))
        return Deliveries(new)

    def _drop(self, repeated: Deliveries) -> None:
        """Acknowledge messages that the broker has delivered again, but those that are held."""
        log.info("%s: dropped %d messages, delivered again", self.durable, len(repeated))
        held = all_stored(self._held())  # acknowledged later, by their first replies
        unknown = Deliveries([each for each in repeated if stored_as(each.reply) not in held])
        if unknown:
            background(self._acknowledge(unknown.replies), "ccpipe-acknowledge")

    @property
    def _is_full(self) -> bool:
        return self._waiting_count >= PULL or self._waiting_bytes >= PULL_BYTES

    def _end_request(self, status: str, description: str) -> None:
        if status == "503" or "deleted" in description.lower():
            # The broker lost the consumer, perhaps with its disk: recreate it.
            self.stream, self._refusal = "", f"{status} {description}".strip()
        elif status == "404":  # the answer to a request that does not wait
            self._is_empty = True
        elif status not in ("408", "409"):
            log.warning("NATS at %s: %s %s", self.bus.url, status, description)
        self._asked = 0
        self._served.set()

    async def _pull(self) -> None:
        """Request messages whenever the buffer has space; after a stop, drain the stream first."""
        while not self._stopped.is_set():
            if await self._is_prepared():
                if self._settled != self.bus.connects:
                    await self._settle(self.bus.connects)
                await self._ask({"expires": int(PULL_SECONDS * 1e9)}, PULL_SECONDS + 1)
                await self._pause_if_refused()
            if self._is_full:
                self.telemetry.expect_nothing(self)
                self._emptied.clear()
                await self._emptied.wait()
                self.telemetry.expect(self, STUCK_SECONDS)
        await self._empty(time.monotonic() + self.drain)

    async def _pause_if_refused(self) -> None:
        """Wait if the broker refuses requests although stream and consumer were just found."""
        self._refused = 0 if self.stream else self._refused + 1
        if self._refused > 1:
            shortest, longest = REFUSED_SECONDS
            seconds = min(shortest * 2 ** (self._refused - 2), longest)
            log.warning(
                "%s: NATS at %s (nats-server %s) refuses requests for messages: %s; "
                "trying again in %g s",
                self.durable, self.bus.url, self.bus.server_version, self._refusal, seconds,
            )  # fmt: skip
            await wait_for_event(self._stopped, seconds)

    async def _settle(self, connection: int) -> None:
        """On a new connection, wait for the redelivery of messages sent on an earlier one.

        The broker redelivers them after `ack_wait`. Newer messages would overtake them, such as a
        job's stop its start. If other bridges request messages too, they share the work and no
        order is guaranteed. But for `PULL_SECONDS` an open request may be one of the lost
        connection, which the broker still regards as alive.
        """
        begin = time.monotonic()
        deadline = begin + self.ack_wait + SETTLE_SECONDS
        missing = 0
        is_reported = False
        while not self._stopped.is_set() and time.monotonic() < deadline:
            with contextlib.suppress(UnavailableError):
                found = await consumer_of(self.bus.jetstream(), self.stream, self.durable)
                if found is None:
                    self.stream = ""
                    return
                self.telemetry.expect(self, STUCK_SECONDS)
                await self._acknowledge_again(found.identity)
                is_shared = found.num_waiting and time.monotonic() > begin + PULL_SECONDS
                missing = 0 if is_shared else found.num_ack_pending - len(all_stored(self._held()))
                if missing <= 0:
                    break
                if not is_reported:
                    log.info(
                        "%s: %d messages are redelivered, then newer ones", self.durable, missing
                    )
                    is_reported = True
            await wait_for_event(self._stopped, 0.2)
        if missing > 0:
            await self._sort_redelivered(missing)
        self._settled = connection

    async def _sort_redelivered(self, count: int) -> None:
        """Hand over `count` messages that the broker redelivers in the order of the stream.

        It redelivers them as their `ack_wait` ends, which a report of progress postpones for the
        messages that had arrived, not for newer ones on their way: those then come first.
        """
        self._unsorted = Deliveries([])
        try:
            while self._unsorted.size < PULL_BYTES and not self._stopped.is_set():
                arrived = len(self._unsorted)
                batch = min(count - arrived, PULL)
                await self._ask({"expires": int(SETTLE_SECONDS * 1e9)}, PULL_SECONDS, batch)
                if not arrived < len(self._unsorted) < count:
                    break
        finally:
            messages, self._unsorted = self._unsorted, None
            ordered = sorted(messages, key=lambda each: stored_as(each.reply) or (0, 0))
            self._keep(Deliveries(ordered))

    async def _acknowledge_again(self, identity: str) -> None:
        """Repeat acknowledgements that may have been lost with a connection or a killed broker.

        Not for a recreated consumer, which assigns the same numbers to other messages.
        """
        if self._identity == identity:
            self._redelivery.expect(self._known())
            await self.bus.publish_each(self._acknowledged, b"+ACK")
        else:
            self._redelivery.clear()
        self._acknowledged.clear()
        self._acknowledged_bytes = 0
        self._identity = identity

    async def _empty(self, deadline: float) -> None:
        """Read until the stream is empty; an unreachable broker is not waited for."""
        self._is_empty = False
        answered = time.monotonic()
        while self.stream and not self._is_empty and (now := time.monotonic()) < deadline:
            if now - answered >= SILENT_SECONDS:
                log.warning(
                    "NATS at %s does not respond; its messages will be read later", self.bus.url
                )
                return
            self._served.clear()
            await self._ask({"no_wait": True}, min(deadline - now, SILENT_SECONDS))
            if self._is_full:
                self._emptied.clear()
                await wait_for_event(self._emptied, deadline - time.monotonic())
                answered = time.monotonic()
            elif self._served.is_set():
                answered = time.monotonic()

    async def _is_prepared(self) -> bool:
        if self.stream:
            return True
        jetstream = self.bus.jetstream()
        subjects = Subjects.of(self.site)
        try:
            if self.bus.is_connected:
                stream = await ensure_stream(jetstream, self.site.bus, subjects, self.patterns)
                if self._owner:
                    await refuse_others(jetstream, stream, self.durable)
                if self.is_whole:
                    await require_unpartitioned(jetstream, stream)
                stored = self.partition.stored(self.patterns)
                self._consumer = await ensure_consumer(
                    jetstream, stream, self.durable, stored, self.ack_wait, owner=self._owner
                )
                await self._unread.poll(stream)  # counts messages deleted while no bridge ran
                self.stream = stream
                return True
        except UnavailableError as error:
            log.warning("%s; retrying", error)
        await wait_for_event(self._stopped, 1.0)
        return False

    async def _ask(self, how: dict[str, object], seconds: float, batch: int = PULL) -> None:
        """Send one request and wait until it is fulfilled, closed by the broker or lost."""
        request = {"batch": batch, "max_bytes": PULL_BYTES, **how}
        subject = f"{self.bus.api_prefix}.CONSUMER.MSG.NEXT.{self.stream}.{self.durable}"
        if not self._stopped.is_set():
            self._served.clear()
        self._asked = batch
        try:
            await self.bus.publish(subject, json.dumps(request).encode(), reply=self._inbox)
        except UnavailableError:
            await asyncio.sleep(0.1)
        else:
            await wait_for_event(self._served, seconds)
            if self._served.is_set() and self.stream:
                self.telemetry.expect(self, STUCK_SECONDS)

    def _held(self) -> list[bytes]:
        waiting = [self._taken, *self._waiting, self._unsorted or Deliveries([])]
        return [each.replies for each in waiting if each] + [*self.handed_over.values()]

    def _known(self) -> list[bytes]:
        """Return the reply subjects of messages that are held, or were acknowledged lately."""
        return [*self._acknowledged, *self._held()]

    async def _stay_alive(self) -> None:
        """Report unacknowledged messages as in progress, so that they are not redelivered."""
        while True:
            await asyncio.sleep(self.ack_wait / 3)
            with contextlib.suppress(UnavailableError):
                await self.bus.publish_each(self._held(), b"+WPI")
                if self._owner and self.stream:
                    stream = self.bus.jetstream()
                    await refuse_others(stream, self.stream, self.durable, self._owner)
