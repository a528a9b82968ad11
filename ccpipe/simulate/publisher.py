"""Publishes the payloads of a simulated cluster, many at once."""

import asyncio
import time
from array import array
from typing import Self

import msgspec

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.publisher import MESSAGE_ID
from ccpipe.bus.nats.streams.stream import ensure_stream
from ccpipe.bus.subjects import KEPT, Subjects
from ccpipe.config import Site
from ccpipe.errors import CcpipeError, UnavailableError
from ccpipe.simulate.cluster import Payload

WINDOW = 1024  # maximum number of unacknowledged messages
ACK_SECONDS = 30.0  # time without any acknowledgement after which publishing fails


class _Ack(msgspec.Struct):
    seq: int = 0
    error: dict[str, object] | None = None


class Times:
    """Publication time of each message, by its sequence in the stream."""

    def __init__(self) -> None:
        self.sequences = array("q")  # sequences, in the order of acknowledgement
        self.published = array("q")
        """When each was handed to the connection, in nanoseconds since the epoch."""


class PayloadPublisher:
    """Publishes payloads in order; with JetStream each is acknowledged by the broker.

    Unlike a client's own publish it keeps no future for each message: acknowledgements are matched
    by the number in their subject.
    """

    def __init__(
        self,
        bus: Connection,
        site: Site,
        subjects: Subjects,
        *,
        run: str,
        times: Times | None = None,
    ) -> None:
        """Publish over an open connection; `run` makes message ids unique.

        `times` records when each message was published, if JetStream acknowledges it.
        """
        self.bus = bus
        self.site = site
        self.subjects = subjects
        self.run = run
        self.messages = self.lines = self.broken = 0
        self.times = times
        self._waiting: dict[int, int] = {}  # publication time of unacknowledged messages, by number
        self._room = asyncio.Event()
        self._error: CcpipeError | None = None
        self._inbox = bus.new_inbox()

    async def __aenter__(self) -> Self:
        """Create the stream if missing; raises UnavailableError."""
        if self.site.bus.jetstream:
            patterns = self.subjects.patterns(KEPT)
            await ensure_stream(self.bus.jetstream(), self.site.bus, self.subjects, patterns)
            await self.bus.subscribe(f"{self._inbox}.*", self._acknowledged)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exit_: object) -> None:
        if kind is None:
            await self.flush()

    async def publish(self, payload: Payload) -> None:
        """Publish a payload, once the limit allows it; raises UnavailableError."""
        number = self.messages
        self.messages += 1
        self.lines += payload.lines
        self.broken += payload.broken
        if not self.site.bus.jetstream:
            await self.bus.publish(payload.subject, payload.body)
            return
        await self._wait_below(WINDOW)
        self._waiting[number] = time.time_ns()
        await self.bus.publish(
            payload.subject,
            payload.body,
            reply=f"{self._inbox}.{number}",
            headers={MESSAGE_ID: f"{self.run}-{number}"},
        )

    async def flush(self) -> None:
        await self._wait_below(1)
        await self.bus.flush()

    async def _wait_below(self, count: int) -> None:
        while self._error is None and len(self._waiting) >= count:
            self._room.clear()
            try:
                async with asyncio.timeout(ACK_SECONDS):
                    await self._room.wait()
            except TimeoutError:
                raise UnavailableError(
                    f"{self.bus.url}: no message was acknowledged for {ACK_SECONDS:g} s"
                ) from None
        if self._error is not None:
            raise self._error

    def _acknowledged(self, delivery: Delivery) -> None:
        try:
            ack = msgspec.json.decode(delivery.payload, type=_Ack)
        except msgspec.MsgspecError:  # the server itself replies if no stream stores a subject
            ack = _Ack(error={"description": "no stream stores what is published"})
        if ack.error is not None:
            reason = ack.error.get("description", ack.error)
            self._error = UnavailableError(f"{self.bus.url}: {reason}")
        published = self._waiting.pop(int(delivery.subject.rpartition(".")[2]), None)
        if published is not None and self.times is not None:
            self.times.sequences.append(ack.seq)
            self.times.published.append(published)
        self._room.set()
