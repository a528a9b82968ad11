"""Publishes the payloads of a simulated cluster, in batches as the publisher of a node does."""

import asyncio
import time
from array import array
from collections.abc import Iterable
from typing import Self

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.publisher import BATCH, BATCH_BYTES, Outgoing, Publisher
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.process.background import end_tasks
from ccpipe.simulate.cluster import Payload

STORE_SECONDS = 30.0
"""How long a batch that was not stored is sent again before publishing fails."""
RETRY_SECONDS = 1.0


class PayloadPublisher:
    """Publishes payloads in order; a batch is stored while the next one is made."""

    def __init__(
        self,
        bus: Connection,
        site: Site,
        subjects: Subjects,
        *,
        run: str,
        times: "array[int] | None" = None,
    ) -> None:
        """Publish over an open connection; `run` makes message ids unique.

        `times` gets the time at which each message could be sent, in nanoseconds since the epoch.
        """
        self.bus = bus
        self.run = run
        self.messages = self.lines = self.broken = 0
        self.times = times
        self._publisher = Publisher(bus, site.bus, subjects)
        self._next: list[Outgoing] = []
        self._storing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exit_: object) -> None:
        if kind is None:
            await self.flush()
        else:
            await end_tasks([self._storing])

    async def publish(self, payloads: Iterable[Payload]) -> None:
        """Publish payloads; raises as ``Publisher.publish`` does, perhaps at a later call."""
        size = 0
        for subject, body, lines, broken in payloads:
            self._next.append(Outgoing(subject, body, f"{self.run}-{self.messages}"))
            self.messages += 1
            self.lines += lines
            self.broken += broken
            size += len(body)
            if size >= BATCH_BYTES or len(self._next) == BATCH:
                await self._send()
                size = 0
        await self._send()

    async def flush(self) -> None:
        """Wait until the broker has stored everything."""
        if self._storing is not None:
            await self._storing
            self._storing = None

    async def _send(self) -> None:
        """Begin to store the messages made since the last call, once those are stored."""
        messages, self._next = self._next, []
        if self.times is not None:
            self.times.extend(array("q", [time.time_ns()]) * len(messages))
        await self.flush()
        self._storing = asyncio.create_task(self._store(messages), name="ccpipe-simulate")
        await asyncio.sleep(0)  # hands them to the connection

    async def _store(self, messages: list[Outgoing]) -> None:
        deadline = time.monotonic() + STORE_SECONDS
        while True:
            try:
                return await self._publisher.publish(messages)
            except UnavailableError:
                if not self.bus.is_connected or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)
