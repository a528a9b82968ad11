"""Reading stored messages of JetStream, then new ones: in order, without a durable consumer."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import nats.errors
from nats.js import JetStreamContext, api

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.errors import explain
from ccpipe.bus.nats.protocol.frames import Delivery, ack_tokens, stored_as
from ccpipe.bus.nats.streams.jetstream import all_streams, stream_of
from ccpipe.bus.nats.streams.partitions import published, stored
from ccpipe.errors import UnavailableError
from ccpipe.pipeline import wait_for_event
from ccpipe.process.background import background, end_tasks, uninterrupted

DELETE_SECONDS = 2.0
"""Time limit for removing the consumer, which the broker otherwise does by itself."""

HEARTBEAT_SECONDS = 5.0
"""After three missed heartbeats the rest is requested again."""


async def read_stored(
    bus: Connection,
    patterns: Sequence[str],
    receive: Callable[[Delivery], None],
    *,
    since: int | None = None,
    maximum: int | None = None,
    follow: bool = False,
) -> None:
    """Call `receive` with every message that streams store on some subject patterns.

    Each stream is read from its oldest message; subjects that no stream stores have no messages.
    Nothing is acknowledged, and bridges are not affected. How long this may take is the caller's
    to limit. `since` is in nanoseconds since the epoch; `maximum` applies to each stream; with
    `follow` it continues with new messages until cancelled. Raises UnavailableError or
    DeniedError if reading cannot start.
    """
    found = await _streams_of(bus.jetstream(), patterns)
    tasks = [
        asyncio.create_task(
            _StreamReader(bus, stream, wanted, receive, since, maximum).run(follow=follow)
        )
        for stream, wanted in found.items()
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end_tasks(tasks)


async def stored_patterns(bus: Connection, patterns: Sequence[str]) -> set[str]:
    """Return the patterns of which a stream stores messages.

    Raises UnavailableError or DeniedError.
    """
    found = await _streams_of(bus.jetstream(), patterns)
    return {pattern for wanted in found.values() for pattern in wanted}


async def _streams_of(jetstream: JetStreamContext, patterns: Sequence[str]) -> dict[str, list[str]]:
    """Return the streams that store any of the patterns, and which."""
    streams: dict[str, list[str]] = {}
    async for stream in all_streams(jetstream):
        wanted = [p for p in patterns if any(overlap(p, each) for each in stream.subjects)]
        if wanted:
            streams[stream.name] = wanted
    return streams


def overlap(one: str, other: str) -> bool:
    """Return whether two patterns can match the same subject."""
    left, right = one.split("."), other.split(".")
    for a, b in zip(left, right, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(left) == len(right)


class _StreamReader:
    """Reads one stream in order, for as long as needed.

    The consumer is kept in the server's memory and needs no acknowledgements; if the connection or
    the server is lost, another one continues after the last message.
    """

    def __init__(
        self,
        bus: Connection,
        stream: str,
        patterns: Sequence[str],
        receive: Callable[[Delivery], None],
        since: int | None,
        maximum: int | None,
    ) -> None:
        self.bus = bus
        self.stream = stream
        self.patterns = list(patterns)
        self.receive = receive
        self.since = since
        self._left = maximum
        self._has_ended = asyncio.Event()  # everything stored, or the maximum, has been received
        self._last = 0
        self._inbox = ""
        self._consumer = ""
        self._is_partitioned = False
        self._active = time.monotonic()

    async def run(self, *, follow: bool) -> None:
        try:
            await self._begin()
            end = asyncio.Event() if follow else self._has_ended
            while not end.is_set():
                await wait_for_event(end, HEARTBEAT_SECONDS)
                idle = time.monotonic() - self._active
                if idle > 3 * HEARTBEAT_SECONDS and self.bus.is_connected:
                    with contextlib.suppress(UnavailableError):
                        await self._begin()
        finally:
            await uninterrupted(self._end())

    async def _end(self) -> None:
        """Remove the consumer, which would send new messages for as long as we are connected."""
        self._inbox, name = "", self._consumer
        if name and self.bus.is_connected:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                async with asyncio.timeout(DELETE_SECONDS):
                    await self.bus.jetstream().delete_consumer(self.stream, name)

    async def _begin(self) -> None:
        self._active = time.monotonic()
        inbox = self._inbox = self.bus.new_inbox()
        await self.bus.subscribe(inbox, lambda delivery: self._take(inbox, delivery))
        found = await stream_of(self.bus.jetstream(), self.stream)
        kept = {each: stored(found.config, each) if found else [each] for each in self.patterns}
        self._is_partitioned = any(found != [each] for each, found in kept.items())
        config = api.ConsumerConfig(
            deliver_subject=inbox,
            filter_subjects=[each for found in kept.values() for each in found],
            ack_policy=api.AckPolicy.NONE,
            mem_storage=True,
            num_replicas=1,
            flow_control=True,
            idle_heartbeat=HEARTBEAT_SECONDS,
            description="a reader of stored messages",
        )
        if self._last:
            config.deliver_policy = api.DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = self._last + 1
        elif self.since is not None:
            config.deliver_policy = api.DeliverPolicy.BY_START_TIME
            config.opt_start_time = datetime.fromtimestamp(self.since / 1e9, UTC)
        try:
            info = await self.bus.jetstream().add_consumer(self.stream, config)
        except (nats.errors.Error, TimeoutError) as error:
            raise explain(error, f"reading the stream {self.stream}") from None
        self._consumer = info.name
        if not info.num_pending:
            self._has_ended.set()

    def _take(self, inbox: str, delivery: Delivery) -> None:
        if inbox != self._inbox or self._left == 0:
            return  # from an abandoned consumer, or too many
        self._active = time.monotonic()
        position = stored_as(delivery.reply)
        if position is None:  # a status message of the server
            if delivery.reply.startswith("$JS.FC."):  # flow control: the server waits for the reply
                background(self._answer(delivery.reply), "ccpipe-flow-control")
            return
        self._last = position[0]
        if self._is_partitioned:
            delivery = delivery._replace(subject=published(delivery.subject))
        self.receive(delivery)
        if self._left is not None:
            self._left -= 1
        tokens = ack_tokens(delivery.reply)
        if tokens[-1] == "0" or self._left == 0:
            self._has_ended.set()

    async def _answer(self, reply: str) -> None:
        try:
            await self.bus.publish(reply, b"")
        except UnavailableError:
            return  # after reconnecting, request the rest again
