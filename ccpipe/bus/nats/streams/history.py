"""What JetStream has stored, then new messages: in order, without a durable consumer."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.explain import explain
from ccpipe.bus.nats.streams.jetstream import stream_of
from ccpipe.bus.nats.streams.partitions import published, stored
from ccpipe.errors import UnavailableError
from ccpipe.pipeline import wait_for_event
from ccpipe.process.background import background

DELETE_SECONDS = 2.0
"""Time limit for removing the consumer, which the broker otherwise does by itself."""

HEARTBEAT_SECONDS = 5.0
"""After three missed heartbeats the rest is requested again."""


async def streams_of(jetstream: JetStreamContext, patterns: Sequence[str]) -> dict[str, list[str]]:
    """Return the streams that store any of the patterns, and which of them each one stores.

    Raises
    ------
    UnavailableError, DeniedError
        if JetStream does not answer, or denies access.

    """
    try:
        found = await jetstream.streams_info()
    except (nats.errors.Error, TimeoutError) as error:
        raise explain(error, "listing streams") from None
    streams: dict[str, list[str]] = {}
    for info in found:
        subjects = info.config.subjects or []
        wanted = [p for p in patterns if any(overlap(p, subject) for subject in subjects)]
        if wanted and info.config.name:
            streams[info.config.name] = wanted
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


class StreamHistory:
    """Reads one stream from a point in time, in order and for as long as needed.

    The consumer is kept in the server's memory and needs no acknowledgements; if the connection or
    the server is lost, another one continues after the last message.
    """

    def __init__(
        self,
        bus: Connection,
        stream: str,
        patterns: Sequence[str],
        receive: Callable[[Delivery], None],
        *,
        since: int | None,
    ) -> None:
        """Read `patterns` since a time in nanoseconds; None for everything stored."""
        self.bus = bus
        self.stream = stream
        self.patterns = list(patterns)
        self.receive = receive
        self.since = since
        self._is_live = asyncio.Event()  # everything stored has been received
        self._last = 0
        self._inbox = ""
        self._consumer = ""
        self._is_partitioned = False
        self._heard = time.monotonic()

    async def run(self, *, follow: bool = True) -> None:
        """Read until cancelled or, without `follow`, until everything stored has been received.

        Raises
        ------
        UnavailableError, DeniedError
            if reading cannot start.

        """
        try:
            await self._begin()
            end = asyncio.Event() if follow else self._is_live
            while not end.is_set():
                await wait_for_event(end, HEARTBEAT_SECONDS)
                if time.monotonic() - self._heard > 3 * HEARTBEAT_SECONDS and self.bus.is_connected:
                    with contextlib.suppress(UnavailableError):
                        await self._begin()
        finally:
            await self._end()

    async def _end(self) -> None:
        """Remove the consumer, which would send new messages for as long as we are connected."""
        self._inbox, name = "", self._consumer
        if name and self.bus.is_connected:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                async with asyncio.timeout(DELETE_SECONDS):
                    await self.bus.jetstream().delete_consumer(self.stream, name)

    async def _begin(self) -> None:
        self._heard = time.monotonic()
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
            description="ccpipe tail",
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
            self._is_live.set()

    def _take(self, inbox: str, delivery: Delivery) -> None:
        if inbox != self._inbox:
            return  # from an abandoned consumer
        self._heard = time.monotonic()
        if not delivery.reply.startswith("$JS.ACK."):  # a status message of the server
            if delivery.reply.startswith("$JS.FC."):  # flow control: the server waits for the reply
                background(self._answer(delivery.reply), "ccpipe-flow-control")
            return
        sequence, pending = _position(delivery.reply)
        self._last = sequence or self._last
        if self._is_partitioned:
            delivery = delivery._replace(subject=published(delivery.subject))
        self.receive(delivery)
        if pending == 0:
            self._is_live.set()

    async def _answer(self, reply: str) -> None:
        try:
            await self.bus.publish(reply, b"")
        except UnavailableError:
            return  # after reconnecting, request the rest again


def _position(reply: str) -> tuple[int, int]:
    """Return a message's stream sequence, and how many are still to come.

    Parsed from the reply subject, in its older form or the one with domain and account.
    """
    tokens = reply.split(".")
    old_form = 9
    numbers = tokens[5:9] if len(tokens) == old_form else tokens[7:11]
    try:
        return int(numbers[0]), int(numbers[3])
    except (IndexError, ValueError):
        return 0, -1
