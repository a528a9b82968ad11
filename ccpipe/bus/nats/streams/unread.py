"""Messages that a stream is about to delete before they are read, or has deleted."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.streams.jetstream import Consumer, Stream, consumer_of, consumers_of, stream_of
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import format_duration

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
NEAR_SECONDS = 1.0
"""Interval while the stream is about to delete unread messages: a kill hides later deletions."""
LAST_SECONDS = 1.0
"""Time limit for the last poll of a process that ends."""
WARN_SHARE = 0.75
"""Share of a stream's limits used by unread messages above which a warning is logged."""
REPEAT_SECONDS = 300.0
"""Interval at which the same warning is repeated."""


class UnreadWatch:
    """Watches how far the durable consumer of one bridge lags behind.

    It warns before the stream deletes unread messages, for this bridge and for those that are not
    running; messages deleted unread are counted in ``telemetry.dropped_messages`` and logged.
    """

    def __init__(self, bus: Connection, durable: str, telemetry: Telemetry) -> None:
        self._bus = bus
        self._durable = durable
        self._telemetry = telemetry
        telemetry.declare(telemetry.dropped_messages, durable)
        self._before: Consumer | None = None
        self._counted = 0  # stream sequence up to which drops are counted
        self._warned: dict[str, float] = {}
        self._is_last = False

    async def run(self, stream: Callable[[], str]) -> None:
        """Poll forever the stream named by `stream`; an empty name means none yet."""
        while True:
            is_near = self._durable in self._warned
            await asyncio.sleep(NEAR_SECONDS if is_near else POLL_SECONDS)
            if name := stream():
                await self.poll(name)

    async def poll_last(self, name: str) -> None:
        """Count once more before this process ends; a silent broker is not waited for.

        Only what was deleted before the last delivered message: the next process counts the rest.
        """
        self._is_last = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self.poll(name)

    async def poll(self, name: str) -> None:
        """Poll once; errors are ignored until the next poll."""
        if not self._bus.is_connected:
            return
        with contextlib.suppress(UnavailableError, DeniedError):
            jetstream = self._bus.jetstream()
            # In this order: messages deleted in between are counted by the next poll.
            stream = await stream_of(jetstream, name)
            own = await consumer_of(jetstream, name, self._durable)
            if stream is None or own is None:
                self._before, self._counted = None, 0  # recreated: sequences start over
                return
            self._count(stream, own)
            self._warn(stream, own)
            async for other in consumers_of(jetstream, name):
                if not other.num_waiting and other.name != self._durable:
                    self._warn(stream, other)

    def _count(self, stream: Stream, own: Consumer) -> None:
        self._telemetry.pending_messages.set(own.num_pending, self._durable)
        dropped = self._dropped(stream, own)
        self._before = own
        if dropped:
            # Stream sequences do not reveal the subject of a deleted message.
            about = "up to " if own.subjects and set(stream.subjects) - set(own.subjects) else ""
            self._telemetry.count(self._telemetry.dropped_messages, self._durable, dropped)
            log.error(
                "the stream %s has deleted %s%d messages that %s had not read: it keeps %s",
                stream.name, about, dropped, self._durable, limits(stream),
            )  # fmt: skip

    def _dropped(self, stream: Stream, own: Consumer) -> int:
        """Count messages deleted since the last poll that were not delivered before."""
        before = self._before or own
        start = max(before.delivered.stream_seq, self._counted)
        end = stream.state.first_seq - 1
        if end <= start:
            return 0
        self._counted = end
        # Messages delivered meanwhile also lie between the two positions.
        delivered = max(0, own.delivered.consumer_seq - before.delivered.consumer_seq)
        reached = own.delivered.stream_seq if self._is_last else max(end, own.delivered.stream_seq)
        return max(0, reached - start - delivered)

    def _warn(self, stream: Stream, consumer: Consumer) -> None:
        share, left = forecast(stream, consumer)
        now = time.monotonic()
        if share < WARN_SHARE:
            self._warned.pop(consumer.name, None)
        elif now - self._warned.get(consumer.name, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._warned[consumer.name] = now
            absent = "" if consumer.num_waiting else ", and no bridge of that name is running"
            when = f"in about {format_duration(left)}" if math.isfinite(left) else "soon"
            what = "refuses new messages" if is_refusing(stream) else "deletes the oldest unread"
            log.warning(
                "%s has %d unread messages, %.0f %% of what the stream %s keeps (%s)%s: %s it %s",
                consumer.name, consumer.num_pending, 100 * share, stream.name, limits(stream),
                absent, when, what,
            )  # fmt: skip


def is_refusing(stream: Stream) -> bool:
    return bool(stream.config.get("discard") == "new")


def limits(stream: Stream) -> str:
    size = f"{stream.max_bytes} bytes" if stream.max_bytes else "any number of bytes"
    return size + (f" for {format_duration(stream.max_age)}" if stream.max_age else "")


def forecast(stream: Stream, consumer: Consumer) -> tuple[float, float]:
    """Return the share of the limits used by unread messages, and seconds until they are reached.

    The position of the oldest unread message in time and bytes is interpolated from its sequence.
    """
    state = stream.state
    if not consumer.num_pending or not state.messages:
        return 0.0, math.inf
    span = state.last_seq - state.first_seq + 1
    unread = min(1.0, (state.last_seq - consumer.delivered.stream_seq) / span)
    share, left = 0.0, math.inf
    if stream.max_bytes:
        taken = unread * state.bytes
        share = taken / stream.max_bytes
        left = (stream.max_bytes - taken) / stream.rate if stream.rate else math.inf
    if stream.max_age and stream.ts:
        first = state.first_ts + (1 - unread) * (state.last_ts - state.first_ts)
        age = (stream.ts - first).total_seconds()
        share = max(share, age / stream.max_age)
        left = min(left, max(0.0, stream.max_age - age))
    return share, left
