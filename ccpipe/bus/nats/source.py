"""Messages from NATS: through a durable JetStream consumer or a plain subscription."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Literal, Self

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.identity import HeldToSubject
from ccpipe.bus.codecs.line import JOINED_BYTES, LineCodec
from ccpipe.bus.nats.connection import PENDING_BYTES, Connection, Delivery, check
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.message_ids import give_ids
from ccpipe.bus.nats.partitions import Partition
from ccpipe.bus.nats.replicas import Replicas
from ccpipe.bus.nats.stream import (
    ensure_consumer,
    ensure_stream,
    refuse_others,
    require_unpartitioned,
)
from ccpipe.bus.nats.unread import UnreadWatch
from ccpipe.bus.subjects import DEFAULT_SUBJECTS, Subjects
from ccpipe.config import Duration, Site
from ccpipe.errors import UnavailableError
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

PULL = 500
"""Messages asked for at once; also how many may wait here undecoded."""
PULL_BYTES = 16 * 2**20
PULL_SECONDS = 3.0
"""How long the broker keeps a request open while it has no messages."""


class NatsSource(Source):
    """Hands over messages; small ones that wait together come as one batch.

    With a `durable` name it reads the cluster's stream: the broker remembers what was
    acknowledged, hands the rest over again after a crash, and several bridges of one name share
    the work. Without one it is a plain subscription that hears only what is said from now on.
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
        """Listen to `subjects`: names of ``subjects.TEMPLATES`` or subjects as they are.

        Without a codec messages hold line protocol. Subjects are ``metrics``, ``events`` and
        ``log``, or ``sonar`` for Sonar's codec, where none are given.
        `ack_wait` is after how long the broker hands a message to another bridge when this one
        has died; while it lives it says so. `drain` is how long to go on reading, after being
        told to stop, until the stream is empty. `queue` shares a plain subscription.
        `identity` is what says who published a record: its tags, or the subject, to which the tags
        are then held; see ``docs/security.md``.
        """
        self.site = site
        self.telemetry = telemetry
        self.codec = codec or LineCodec()
        self.gives = self.codec.records
        subjects = subjects or list(DEFAULT_SUBJECTS[self.gives.name])
        self.patterns = Subjects.of(site).patterns(subjects)
        if identity == "subject":
            self.codec = HeldToSubject(self.codec, Subjects.of(site), subjects)
        self.durable = durable
        self.queue = queue
        self.ack_wait = float(ack_wait)
        self.drain = float(drain)
        self.bus = Connection(site.bus, name=durable or "bridge", telemetry=telemetry)
        self._waiting: deque[Delivery] = deque()
        self._waiting_bytes = 0
        self._unacknowledged: dict[str, None] = {}
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()  # messages wait, or the end is reached
        self._emptied = asyncio.Event()  # there is room for more
        self._served = asyncio.Event()  # the open request needs no more waiting for
        self._asked = 0  # messages that the open request may still bring
        self._is_empty = False  # the stream, when it was last asked
        self._inbox = ""
        self._stream = ""
        self._consumer = ""  # what the numbers of messages belong to
        self._owner = ""  # of an exclusive consumer: this process
        self._unread = UnreadWatch(self.bus, durable, telemetry)
        self._tasks: list[asyncio.Task[None]] = []
        self._partition = Partition(durable)
        self._is_ours = True  # the connection
        self.shares_by_node = bool(durable) and site.bus.stream_partitions > 1
        self._replicas: Replicas | None = None

    def _of_partition(self, partition: Partition) -> "NatsSource":
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
        elif self.durable:
            if self.exclusive:
                self._owner = f"{self.site.hostname} pid {os.getpid()}"
            self._inbox = self.bus.new_inbox()
            await self.bus.subscribe(self._inbox, self._receive)
            work = {
                "pull": self._pull(),
                "alive": self._stay_alive(),
                "unread": self._unread.run(lambda: self._stream),
            }
            self._tasks = [asyncio.create_task(w, name=f"ccpipe-{n}") for n, w in work.items()]
            for task in self._tasks:
                task.add_done_callback(lambda _: self._changed.set())
        else:
            for pattern in self.patterns:
                await self.bus.subscribe(pattern, self._receive, self.queue)
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the connection; what was not acknowledged is delivered again."""
        if self._replicas is not None:
            await self._replicas.__aexit__(None, None, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._is_ours:
            await self.bus.__aexit__(None, None, None)

    async def check(self) -> None:
        """Check that the broker accepts our credentials; takes no message."""
        await check(self.site.bus, self.telemetry)

    def stop(self) -> None:
        """End the iteration when what was received has been handed over; see `drain`."""
        if self._replicas is not None:
            self._replicas.stop()
        self._stopped.set()
        self._changed.set()
        self._served.set()
        self._emptied.set()

    def release(self) -> None:
        """End as ``stop`` does, but only when the open request has brought what it may bring."""
        self._stopped.set()
        self._emptied.set()

    @property
    def is_acknowledged(self) -> bool:
        """Whether all messages that came were acknowledged."""
        return not self._unacknowledged

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches until stopped."""
        if self._replicas is not None:
            async for batch in self._replicas:
                yield batch
            return
        while True:
            while self._waiting:
                for batch in self._batches(self._take()):
                    yield batch
            self._emptied.set()
            if self._has_ended() and not self._waiting:
                return
            self._changed.clear()
            await self._changed.wait()

    def _take(self) -> list[Delivery]:
        """Take what waits, up to what is decoded at once."""
        taken: list[Delivery] = []
        size = 0
        while self._waiting and size < JOINED_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1].payload)
        self._waiting_bytes -= size
        return taken

    def _batches(self, deliveries: list[Delivery]) -> Iterator[Batch]:
        first = 0
        for batch, count in self.codec.decode(deliveries):
            if self.durable:
                replies = [delivery.reply for delivery in deliveries[first : first + count]]
                batch.ack = functools.partial(self._acknowledge, replies)
                give_ids(batch, self._consumer, replies)
            first += count
            yield batch

    def _has_ended(self) -> bool:
        if not self._tasks:
            return self._stopped.is_set()
        for task in self._tasks:
            if task.done():
                task.result()  # raises what ended it
        return self._tasks[0].done()

    @property
    def dead_letter_sink(self) -> NatsDeadLetterSink:
        """Dead letters go back to the broker."""
        return NatsDeadLetterSink(self.bus, self.site)

    async def _acknowledge(self, replies: list[str]) -> None:
        # An acknowledgement lost with the connection means one more delivery, never one less.
        with contextlib.suppress(UnavailableError):
            for reply in replies:
                self._unacknowledged.pop(reply, None)
                await self.bus.publish(reply, b"+ACK")

    def _receive(self, delivery: Delivery) -> None:
        if not self.durable:
            self._receive_unasked(delivery)
            return
        if status := delivery.headers.get("Status"):
            self._end_request(status, delivery.headers.get("Description", ""))
            return
        if prefix := self._partition.prefix:
            delivery = delivery._replace(subject=delivery.subject.removeprefix(prefix))
        self._waiting.append(delivery)
        self._waiting_bytes += len(delivery.payload)
        self._unacknowledged[delivery.reply] = None
        self._asked -= 1
        if self._asked <= 0:
            self._served.set()
        self._changed.set()

    def _receive_unasked(self, delivery: Delivery) -> None:
        """Keep what a plain subscription brings; beyond the bound it is dropped and counted."""
        if self._waiting_bytes + len(delivery.payload) > PENDING_BYTES:
            self.telemetry.count(self.telemetry.bus_errors, "slow_consumer")
            return
        self._waiting.append(delivery)
        self._waiting_bytes += len(delivery.payload)
        self._changed.set()

    def _end_request(self, status: str, description: str) -> None:
        """Note that the broker closed our request, and why."""
        if status == "503" or "deleted" in description.lower():
            self._stream = ""  # the broker lost it, with its disk perhaps: make it again
        elif status == "404":  # the answer to a request that does not wait
            self._is_empty = True
        elif status not in ("408", "409"):
            log.warning("NATS at %s: %s %s", self.bus.url, status, description)
        self._asked = 0
        self._served.set()

    async def _pull(self) -> None:
        """Ask for messages whenever there is room; told to stop, empty the stream first."""
        while not self._stopped.is_set():
            if await self._is_prepared():
                await self._ask({"expires": int(PULL_SECONDS * 1e9)}, PULL_SECONDS + 1)
            if len(self._waiting) >= PULL:
                self._emptied.clear()
                await self._emptied.wait()
        deadline = time.monotonic() + self.drain
        self._is_empty = False
        while self._stream and not self._is_empty and time.monotonic() < deadline:
            self._served.clear()
            await self._ask({"no_wait": True}, deadline - time.monotonic())

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
                await self._unread.poll(stream)  # what was dropped while no bridge was running
                self._stream = stream
                return True
        except UnavailableError as error:
            log.warning("%s; trying again", error)
        await wait_for_event(self._stopped, 1.0)
        return False

    async def _ask(self, how: dict[str, object], seconds: float) -> None:
        """Send one request and wait until it is served, closed by the broker or lost."""
        request = {"batch": PULL, "max_bytes": PULL_BYTES, **how}
        subject = f"{self.bus.api_prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self.durable}"
        if not self._stopped.is_set():
            self._served.clear()
        self._asked = PULL
        try:
            await self.bus.publish(subject, json.dumps(request).encode(), reply=self._inbox)
        except UnavailableError:
            await wait_for_event(self._stopped, 0.1)
        else:
            await wait_for_event(self._served, seconds)

    async def _stay_alive(self) -> None:
        """Report unacknowledged messages as in progress, so that none is redelivered."""
        while True:
            await asyncio.sleep(self.ack_wait / 3)
            with contextlib.suppress(UnavailableError):
                for reply in list(self._unacknowledged):
                    await self.bus.publish(reply, b"+WPI")
                if self._owner and self._stream:
                    stream = self.bus.jetstream()
                    await refuse_others(stream, self._stream, self.durable, self._owner)
