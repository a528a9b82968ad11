"""Updates the live state from the bus."""

import asyncio
import functools
import logging
import time
from collections.abc import Sequence
from typing import Any, Self

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.state import streams_and_consumers
from ccpipe.bus.nats.streams.stored import read_stored
from ccpipe.bus.subjects import Subjects, matches
from ccpipe.config import Site
from ccpipe.dashboard.health import ConsumerHealth, Health, StreamHealth
from ccpipe.dashboard.jobs import KnownJobs
from ccpipe.dashboard.journal import Journal
from ccpipe.dashboard.nodes import MAX_SERIES, Nodes
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.node.sampling.metrics import declared
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

DECODE_SECONDS = 0.25
"""Payloads within this time are decoded together, which costs a fraction of decoding each alone."""
MAX_PENDING_BYTES = 64 * 2**20
"""Limit on undecoded data; beyond it, payloads are dropped and counted."""
MAX_TEXTS = 2000
"""Maximum number of texts per decoding round; a flood of log messages loses the rest."""
POLL_SECONDS = 5.0
"""Interval at which streams and consumers are queried."""
FORGET_TICKS = 30
REPLAY = {"events": (86400.0, 20_000), "log": (3600.0, 1000), "dead": (86400.0, 1000)}
"""History read from the streams at the start: seconds, and maximum number of messages."""
REPLAY_SECONDS = 20.0
OVERLAP_SECONDS = 5.0
"""Tolerated lag of the broker's clock: newer stored messages may also arrive live."""


class DashboardFeed:
    """Subscribes to all clusters, as an async context manager, and holds the live state."""

    def __init__(self, site: Site, telemetry: Telemetry, *, max_series: int = MAX_SERIES) -> None:
        """Prepare; nothing is connected yet."""
        self.site = site
        self.telemetry = telemetry
        self.bus = Connection(site.bus, name="dashboard", telemetry=telemetry)
        self.nodes = Nodes(max_series=max_series)
        self.jobs = KnownJobs()
        self.journal = Journal()
        self.health = Health()
        self.ticked = asyncio.Condition()
        """Notified once a second, when the state is up to date."""
        self._codec = LineCodec(lenient=True)
        self._pending: list[Delivery] = []
        self._pending_dead: list[Delivery] = []
        self._replayed: set[tuple[str, bytes]] = set()
        self._pending_bytes = 0
        self._is_replaying = True
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        """Start connecting; if no server is reachable yet, continue in the background."""
        rows = await asyncio.to_thread(declared)  # it imports every collector
        self.nodes.known = {row.name: row for row in rows}
        work = {"listen": self._listen(), "tick": self._tick(), "poll": self._poll()}
        self._tasks = [asyncio.create_task(w, name=f"ccpipe-{n}") for n, w in work.items()]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        while left := [task for task in self._tasks if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1)  # the client may swallow a cancellation

    @property
    def is_live(self) -> bool:
        """Whether it is subscribed, and the stored messages were read."""
        return not self._is_replaying

    async def run(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set; raises errors that end the feed, such as DeniedError."""
        waiting = asyncio.create_task(stop.wait())
        tasks = {waiting, *self._tasks}
        try:
            while not waiting.done():
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            waiting.cancel()

    async def _listen(self) -> None:
        async with self.bus:
            began = time.time()
            subjects = Subjects.of(self.site)
            patterns = subjects.patterns(("metrics", "events", "log"), "*")
            for place, pattern in enumerate(patterns):
                receive = functools.partial(self._receive, patterns[:place])
                await self.bus.subscribe(pattern, receive)
            [dead] = subjects.patterns(("dead",), "*")
            await self.bus.subscribe(dead, self._receive_dead)
            try:
                if self.site.bus.jetstream:
                    async with asyncio.timeout(REPLAY_SECONDS):
                        for name in REPLAY:
                            await self._replay(name, began)
            except (UnavailableError, DeniedError, TimeoutError) as error:
                why = str(error) or "it takes too long"
                log.warning("stored data of the last day is not shown: %s", why)
            finally:
                self._begin_live()
            await asyncio.Event().wait()  # until cancelled

    async def _replay(self, name: str, began: float) -> None:
        """Read what the streams of our cluster store of one kind; nothing if there is none."""

        def receive(delivery: Delivery) -> None:
            if delivery.arrival >= (began - OVERLAP_SECONDS) * 1e9:
                self._replayed.add((delivery.subject, delivery.payload))
            if name == "dead":
                self.health.feed_dead(delivery, delivery.arrival / 1e9)
                return
            for batch, _ in self._codec.decode([delivery]):
                if isinstance(batch.records, Lines):
                    self._take_texts(batch.records, MAX_TEXTS)

        seconds, maximum = REPLAY[name]
        since = int((began - seconds) * 1e9)
        patterns = Subjects.of(self.site).patterns((name,))
        await read_stored(self.bus, patterns, receive, since=since, maximum=maximum)

    def _begin_live(self) -> None:
        """Continue with live messages, without those already read from the streams."""
        seen, self._replayed = self._replayed, set()
        for waiting in (self._pending, self._pending_dead):
            waiting[:] = [each for each in waiting if (each.subject, each.payload) not in seen]
        self._is_replaying = False

    def _receive(self, earlier: Sequence[str], delivery: Delivery) -> None:
        if any(matches(pattern, delivery.subject) for pattern in earlier):
            return  # received on that pattern too
        if self._pending_bytes > MAX_PENDING_BYTES:
            self.health.dropped += 1
            return
        self._pending.append(delivery)
        self._pending_bytes += len(delivery.payload)

    def _receive_dead(self, delivery: Delivery) -> None:
        if len(self._pending_dead) < MAX_TEXTS:
            self._pending_dead.append(delivery)
        else:
            self.health.dropped += 1

    def _decode(self) -> None:
        """Decode what has arrived since the last call."""
        if self._is_replaying:  # a job's start must be processed before its stop
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        health = self.health
        now = time.time()
        for delivery in self._pending_dead:
            health.feed_dead(delivery, now)
        self._pending_dead.clear()
        texts = MAX_TEXTS
        for batch, count in self._codec.decode(pending):
            lines = batch.records
            assert isinstance(lines, Lines)
            health.payloads += count
            health.bytes += len(lines.payload)
            health.lines += len(lines)
            health.rejected += len(lines.rejected)
            self.nodes.feed(lines, now)
            texts -= self._take_texts(lines, texts)

    def _take_texts(self, lines: Lines, maximum: int) -> int:
        """Process events and log messages; return their number."""
        if ValueType.TEXT not in lines.types:
            return 0
        rows = [row for row, kind in enumerate(lines.types) if kind == ValueType.TEXT]
        self.health.dropped += max(0, len(rows) - maximum)
        now = time.time()
        for row in rows[: max(0, maximum)]:
            message = lines[row]
            self.journal.feed(message, now)
            self.jobs.feed(message)
        return len(rows)

    async def _tick(self) -> None:
        pause = DECODE_SECONDS
        count = 0
        while True:
            await asyncio.sleep(pause - time.time() % pause)
            self._decode()
            count += 1
            if count % round(1 / pause):
                continue
            now = time.time()
            self.nodes.tick(now)
            self.health.tick(now)
            if count % (FORGET_TICKS * round(1 / pause)) == 0:
                self.nodes.forget()
            async with self.ticked:
                self.ticked.notify_all()

    async def _poll(self) -> None:
        """Query streams and consumers periodically."""
        health = self.health
        while True:
            if self.bus.is_connected and self.site.bus.jetstream:
                try:
                    streams, consumers = await streams_and_consumers(self.bus)
                except (UnavailableError, DeniedError) as error:
                    health.problem = str(error)
                else:
                    health.problem = ""
                    health.streams = [
                        StreamHealth(
                            str(each.config.name),
                            each.state.messages,
                            each.state.bytes,
                            (each.config.subjects or [])[:20],
                        )
                        for each in streams
                    ]
                    health.consumers = [
                        ConsumerHealth(
                            each.stream_name,
                            each.name,
                            each.num_pending or 0,
                            each.num_ack_pending or 0,
                            each.num_redelivered or 0,
                        )
                        for each in consumers
                    ]
            await asyncio.sleep(POLL_SECONDS if health.streams or health.problem else 1.0)
