"""Messages from NATS: through a durable JetStream consumer or a plain subscription."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal, NamedTuple, Self

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.identity import HeldToSubject
from ccpipe.bus.codecs.line import JOINED_BYTES, LineCodec
from ccpipe.bus.nats.client import end_tasks
from ccpipe.bus.nats.connection import PENDING_BYTES, Connection, Delivery, check
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.message_ids import give_ids
from ccpipe.bus.nats.protocol.frames import stored_as
from ccpipe.bus.nats.streams.jetstream import consumer_of
from ccpipe.bus.nats.streams.partitions import StreamPartition
from ccpipe.bus.nats.streams.redelivery import Redelivery
from ccpipe.bus.nats.streams.replicas import Replicas
from ccpipe.bus.nats.streams.stream import (
    ensure_consumer,
    ensure_stream,
    refuse_others,
    require_unpartitioned,
)
from ccpipe.bus.nats.streams.unread import UnreadWatch
from ccpipe.bus.subjects import Subjects, default_subjects
from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.process.background import background
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

PULL = 5000
"""Maximum number of messages per request, and of undecoded messages or bytes held here."""
PULL_BYTES = 16 * 2**20
PULL_SECONDS = 3.0
"""How long the broker keeps a request open while there are no messages."""
SILENT_SECONDS = 5.0
"""Without an answer for this long the broker counts as unreachable, and shutdown does not wait."""
PROBE_SECONDS = 10.0
"""Interval at which a plain subscription checks that the broker responds."""
STUCK_SECONDS = 30.0
"""Time without an answer from the broker after which ``/ready`` reports no progress."""
REMEMBERED = 5000
"""Maximum number of acknowledgements that are repeated on a new connection."""
SETTLE_SECONDS = 1.0
"""How much longer than `ack_wait` a redelivery by the broker may take."""
REFUSED_SECONDS = (0.5, 10.0)
"""Minimum and maximum pause after requests that the broker refuses in a row."""


class _Refused(NamedTuple):
    """A message that is not decoded; see ``pipeline.interfaces.Rejected``."""

    original: bytes
    reason: str
    line: int = 0
    offset: int = 0


def _size(deliveries: list[Delivery]) -> int:
    return sum([len(delivery.payload) for delivery in deliveries])


class NatsSource(Source):
    """Yields messages; small ones that arrive together form one batch.

    With a `durable` name it reads the cluster's stream: the broker records what was acknowledged,
    redelivers the rest after a crash, and several bridges with the same name share the work.
    Without one it is a plain subscription, which receives only messages published from now on.
    """

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        codec: Codec | None = None,
        subjects: list[str] | None = None,
        durable: str = "",
        queue: str = "",
        ack_wait: Duration = Duration(20),
        drain: Duration = Duration(0),
        identity: Literal["tags", "subject"] = "tags",
    ) -> None:
        """Subscribe to `subjects`: names of ``subjects.TEMPLATES`` or literal subjects.

        The default codec is line protocol. Default subjects are ``metrics``, ``events`` and
        ``log``, or ``sonar`` with Sonar's codec. `ack_wait` is the time after which the broker
        redelivers the messages of a dead bridge to another one; a live bridge keeps extending it.
        `drain` is how long to continue reading after a stop, until the stream is empty. `queue`
        shares a plain subscription. `identity` says how the publisher of a record is identified:
        by the record's tags, or by the subject, with which the tags must then agree; see
        ``docs/operations/security.md``.
        """
        for option, name in (("durable", durable), ("queue", queue)):
            if unfit := re.search(r"[\s.*>/\\]", name):
                raise ConfigError(f"{option}: {name!r}: {unfit[0]!r} cannot be in such a name")
        self.site = site
        self.telemetry = telemetry
        self.codec = codec or LineCodec()
        self.gives = self.codec.records
        subjects = subjects or default_subjects(self.gives.name, "subjects")
        self.patterns = Subjects.of(site).patterns(subjects)
        if identity == "subject":
            self.codec = HeldToSubject(self.codec, Subjects.of(site), subjects)
        self.durable = durable
        self.queue = queue
        self.ack_wait = float(ack_wait)
        self.drain = float(drain)
        self.bus = Connection(site.bus, name=durable or "bridge", telemetry=telemetry)
        self._waiting: deque[tuple[list[Delivery], int]] = deque()  # each with its bytes
        self._waiting_count = self._waiting_bytes = 0
        self._taken: list[Delivery] = []  # being decoded and handed over
        self._handed_over: dict[int, list[str]] = {}  # reply subjects for acknowledgement, by batch
        self._acknowledged = deque[str](maxlen=REMEMBERED)  # sent, or could not be sent
        self._redelivery = Redelivery(self._known)
        self._settled = -1  # connection number since which no older message can arrive
        self._identity = ""  # of the consumer
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()  # messages are waiting, or the end is reached
        self._emptied = asyncio.Event()  # there is room for more
        self._served = asyncio.Event()  # the open request is done
        self._asked = 0  # messages that the open request may still bring
        self._is_empty = False  # the stream, as of the last query
        self._refusal = ""  # of the last request that was refused
        self._refused = 0  # requests in a row
        self._inbox = ""
        self._stream = ""
        self._consumer = ""  # identifies the consumer that numbers belong to
        self._owner = ""  # of an exclusive consumer: this process
        self._unread = UnreadWatch(self.bus, durable, telemetry)
        self._tasks: list[asyncio.Task[None]] = []
        self._partition = StreamPartition(durable)
        self._is_ours = True  # the connection
        self.shares_by_node = bool(durable) and site.bus.stream_partitions > 1
        self._replicas: Replicas | None = None

    def _of_partition(self, partition: StreamPartition) -> "NatsSource":
        """Return a source that reads one partition over the same connection."""
        reader = NatsSource(
            site=self.site, telemetry=self.telemetry, durable=partition.consumer,
            ack_wait=Duration(self.ack_wait), drain=Duration(self.drain),
        )  # fmt: skip
        reader.bus, reader._is_ours = self.bus, False
        reader._unread = UnreadWatch(self.bus, partition.consumer, self.telemetry)
        reader.codec, reader.patterns = self.codec, self.patterns
        reader._partition, reader.shares_by_node = partition, False
        return reader

    async def __aenter__(self) -> Self:
        """Connect and subscribe."""
        if self._is_ours:
            await self.bus.__aenter__()
        if self.shares_by_node:
            self._replicas = Replicas(
                self.bus, self.site, self.durable, self.patterns, self.ack_wait,
                self._of_partition, exclusive=self.exclusive, sticky=self.keeps_nodes,
            )  # fmt: skip
            await self._replicas.__aenter__()
            return self
        self.telemetry.expect(self, STUCK_SECONDS)
        if self.durable:
            if self.exclusive:
                self._owner = f"{self.site.hostname} pid {os.getpid()}"
            self._inbox = self.bus.new_inbox()
            await self.bus.subscribe_lists(self._inbox, self._receive)
            work = {
                "pull": self._pull(),
                "alive": self._stay_alive(),
                "unread": self._unread.run(lambda: self._stream),
            }
        else:
            for pattern in self.patterns:
                await self.bus.subscribe_lists(pattern, self._receive_unasked, self.queue)
            work = {"probe": self._probe()}
        self._tasks = [asyncio.create_task(w, name=f"ccpipe-{n}") for n, w in work.items()]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the connection; unacknowledged messages are redelivered."""
        if self._replicas is not None:
            await self._replicas.__aexit__(None, None, None)
        await end_tasks(self._tasks)
        if self._stream:
            await self._unread.poll_last(self._stream)
        self.telemetry.expect_nothing(self)
        if self._is_ours:
            await self.bus.__aexit__(None, None, None)

    async def check(self) -> None:
        """Check that the broker accepts our credentials; takes no message."""
        await check(self.site.bus, self.telemetry)

    def stop(self) -> None:
        """End the iteration once all received messages were handed over; see `drain`."""
        if self._replicas is not None:
            self._replicas.stop()
        self._stopped.set()
        self._changed.set()
        self._served.set()
        self._emptied.set()

    def release(self) -> None:
        """End like ``stop``, but only after the messages of the open request have arrived."""
        self._stopped.set()
        self._emptied.set()

    @property
    def is_acknowledged(self) -> bool:
        """Whether all received messages were acknowledged."""
        return not (self._waiting or self._taken or self._handed_over)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches until stopped."""
        if self._replicas is not None:
            async for batch in self._replicas:
                yield batch
            return
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

    def _take(self) -> list[Delivery]:
        """Take waiting messages, up to about the size that is decoded at once."""
        taken: list[Delivery] = []
        size = 0
        while self._waiting and size < JOINED_BYTES:
            together, more = self._waiting.popleft()
            size += more
            taken = taken + together if taken else together
        self._waiting_count -= len(taken)
        self._waiting_bytes -= size
        return taken

    def _batches(self, deliveries: list[Delivery]) -> Iterator[Batch]:
        first = 0
        for batch, count in self._decode(deliveries):
            if self.durable:
                replies = [delivery.reply for delivery in deliveries[first : first + count]]
                self._handed_over[id(replies)] = replies
                batch.ack = functools.partial(self._acknowledge, replies)
                give_ids(batch, self._consumer, replies)
            first += count
            yield batch

    def _decode(self, deliveries: list[Delivery]) -> Iterator[tuple[Batch, int]]:
        """Decode messages; one that violates the protocol becomes a dead letter."""
        flawed = [place for place, delivery in enumerate(deliveries) if delivery.flaw]
        first = 0
        for place in flawed:
            yield from self.codec.decode(deliveries[first:place])
            delivery = deliveries[place]
            records: Any = self.gives.of(())
            records.rejected = [_Refused(delivery.payload, delivery.flaw)]
            yield Batch(records, origin=delivery.subject), 1
            first = place + 1
        yield from self.codec.decode(deliveries[first:] if flawed else deliveries)

    def _has_ended(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()  # raises the error that ended it
        return self._tasks[0].done() if self.durable else self._stopped.is_set()

    @property
    def dead_letter_sink(self) -> NatsDeadLetterSink:
        """Dead letters go back to the broker."""
        return NatsDeadLetterSink(self.bus, self.site)

    async def _acknowledge(self, replies: list[str]) -> None:
        # If it cannot be sent, it must not count as in progress: no redelivery would follow.
        self._handed_over.pop(id(replies), None)
        self._acknowledged += replies
        # An acknowledgement lost with the connection causes one more delivery, never one less.
        with contextlib.suppress(UnavailableError):
            await self.bus.publish_each(replies, b"+ACK")

    def _receive(self, deliveries: list[Delivery]) -> None:
        """Keep the messages of our request, and handle the server's status messages.

        A message with a reply subject that JetStream did not choose is dropped: acknowledging it
        would publish on a subject of its sender's choice.
        """
        messages = [each for each in deliveries if each.reply.startswith("$JS.ACK.")]
        if len(messages) < len(deliveries):
            for delivery in deliveries:
                code, words = delivery.status
                if code:
                    self._end_request(code, words)
            if foreign := sum(bool(each.reply) for each in deliveries) - len(messages):
                self.telemetry.count(self.telemetry.bus_errors, "malformed", foreign)
        messages, repeated = self._redelivery.split(messages)
        if repeated:
            self._asked -= len(repeated)
            self._drop(repeated)
        if prefix := self._partition.prefix:
            messages = [m._replace(subject=m.subject.removeprefix(prefix)) for m in messages]
        self._keep(messages, _size(messages))
        self._asked -= len(messages)
        if self._asked <= 0:
            self._served.set()

    def _drop(self, repeated: list[Delivery]) -> None:
        """Acknowledge messages that the broker has delivered again, but those that are held."""
        log.info("%s: dropped %d messages, delivered again", self.durable, len(repeated))
        held = set(map(stored_as, self._held()))  # acknowledged later, by their first replies
        replies = [each.reply for each in repeated if stored_as(each.reply) not in held]
        background(self._acknowledge(replies), "ccpipe-acknowledge")

    def _receive_unasked(self, deliveries: list[Delivery]) -> None:
        """Keep messages of a plain subscription; beyond the limit they are dropped and counted."""
        size = _size(deliveries)
        if self._waiting_bytes + size > PENDING_BYTES:
            self.telemetry.count(self.telemetry.bus_errors, "slow_consumer", len(deliveries))
            return
        self._keep(deliveries, size)

    def _keep(self, deliveries: list[Delivery], size: int) -> None:
        if deliveries:
            self._waiting.append((deliveries, size))
            self._waiting_count += len(deliveries)
            self._waiting_bytes += size
            self._changed.set()

    @property
    def _is_full(self) -> bool:
        """Whether the limit on undecoded messages is reached."""
        return self._waiting_count >= PULL or self._waiting_bytes >= PULL_BYTES

    def _end_request(self, status: str, description: str) -> None:
        """Record that the broker closed our request, and why."""
        if status == "503" or "deleted" in description.lower():
            # The broker lost the consumer, perhaps with its disk: recreate it.
            self._stream, self._refusal = "", f"{status} {description}".strip()
        elif status == "404":  # the answer to a request that does not wait
            self._is_empty = True
        elif status not in ("408", "409"):
            log.warning("NATS at %s: %s %s", self.bus.url, status, description)
        self._asked = 0
        self._served.set()

    async def _pull(self) -> None:
        """Request messages whenever there is room; after a stop, drain the stream first."""
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
        self._refused = 0 if self._stream else self._refused + 1
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
        order is guaranteed.
        """
        deadline = time.monotonic() + self.ack_wait + SETTLE_SECONDS
        is_reported = False
        while not self._stopped.is_set() and time.monotonic() < deadline:
            with contextlib.suppress(UnavailableError):
                found = await consumer_of(self.bus.jetstream(), self._stream, self.durable)
                if found is None:
                    self._stream = ""
                    return
                self.telemetry.expect(self, STUCK_SECONDS)
                await self._acknowledge_again(found.identity)
                missing = found.num_ack_pending - len(self._held())
                if missing <= 0 or found.num_waiting:
                    break
                if not is_reported:
                    log.info(
                        "%s: %d messages are redelivered, then newer ones", self.durable, missing
                    )
                    is_reported = True
            await wait_for_event(self._stopped, 0.2)
        self._settled = connection

    async def _acknowledge_again(self, identity: str) -> None:
        """Repeat acknowledgements that may have been lost with a connection or a killed broker.

        Not for a recreated consumer, which assigns the same numbers to other messages.
        """
        if self._identity == identity:
            self._redelivery.expect(self._known())
            await self.bus.publish_each(list(self._acknowledged), b"+ACK")
        else:
            self._redelivery.clear()
        self._acknowledged.clear()
        self._identity = identity

    async def _empty(self, deadline: float) -> None:
        """Read until the stream is empty; an unreachable broker is not waited for."""
        self._is_empty = False
        answered = time.monotonic()
        while self._stream and not self._is_empty and (now := time.monotonic()) < deadline:
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
        """Find or create stream and consumer; return whether they exist."""
        if self._stream:
            return True
        jetstream = self.bus.jetstream()
        subjects = Subjects.of(self.site)
        try:
            if self.bus.is_connected:
                stream = await ensure_stream(jetstream, self.site.bus, subjects, self.patterns)
                if self.exclusive:
                    await refuse_others(jetstream, stream, self.durable)
                if self._is_ours:
                    await require_unpartitioned(jetstream, stream)
                stored = self._partition.stored(self.patterns)
                self._consumer = await ensure_consumer(
                    jetstream, stream, self.durable, stored, self.ack_wait, owner=self._owner
                )
                await self._unread.poll(stream)  # what was deleted while no bridge was running
                self._stream = stream
                return True
        except UnavailableError as error:
            log.warning("%s; retrying", error)
        await wait_for_event(self._stopped, 1.0)
        return False

    async def _ask(self, how: dict[str, object], seconds: float) -> None:
        """Send one request and wait until it is fulfilled, closed by the broker or lost."""
        request = {"batch": PULL, "max_bytes": PULL_BYTES, **how}
        subject = f"{self.bus.api_prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self.durable}"
        if not self._stopped.is_set():
            self._served.clear()
        self._asked = PULL
        try:
            await self.bus.publish(subject, json.dumps(request).encode(), reply=self._inbox)
        except UnavailableError:
            await asyncio.sleep(0.1)
        else:
            await wait_for_event(self._served, seconds)
            if self._served.is_set() and self._stream:
                self.telemetry.expect(self, STUCK_SECONDS)

    async def _probe(self) -> None:
        """Check periodically, until stopped, that the broker still responds."""
        while not self._stopped.is_set():
            with contextlib.suppress(UnavailableError):
                await self.bus.flush()
                self.telemetry.expect(self, STUCK_SECONDS)
            await wait_for_event(self._stopped, PROBE_SECONDS)

    def _held(self) -> list[str]:
        """Return the reply subjects of messages that are held here."""
        waiting = [self._taken, *(together for together, _ in self._waiting)]
        replies = [delivery.reply for each in waiting for delivery in each]
        return replies + [reply for each in self._handed_over.values() for reply in each]

    def _known(self) -> list[str]:
        """Return the reply subjects of messages that are held, or were acknowledged lately."""
        return [*self._acknowledged, *self._held()]

    async def _stay_alive(self) -> None:
        """Report unacknowledged messages as in progress, so that they are not redelivered."""
        while True:
            await asyncio.sleep(self.ack_wait / 3)
            with contextlib.suppress(UnavailableError):
                await self.bus.publish_each(self._held(), b"+WPI")
                if self._owner and self._stream:
                    stream = self.bus.jetstream()
                    await refuse_others(stream, self._stream, self.durable, self._owner)
