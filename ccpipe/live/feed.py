"""Updates the live state from the bus."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.streams.jetstream import all_streams, consumers_of
from ccpipe.bus.nats.streams.stored import read_stored
from ccpipe.bus.subjects import Subjects, matches
from ccpipe.config import Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.live.state import MAX_TEXTS, LiveState
from ccpipe.node.sampling.collector import Metric, declared
from ccpipe.process.background import end_tasks
from ccpipe.telemetry import Telemetry
from ccpipe.translate.sonar.sonar_metrics import GPU

log = logging.getLogger(__name__)

DECODE_SECONDS = 0.25
"""Payloads within this time are decoded together, which costs a fraction of decoding each alone."""
MAX_PENDING_BYTES = 64 * 2**20
"""Limit on undecoded data; beyond it, payloads are dropped and counted."""
MAX_STREAMS = 256
POLL_SECONDS = 5.0
FORGET_TICKS = 30
REPLAY_SECONDS = 20.0
OVERLAP_SECONDS = 5.0
"""Tolerated lag of the broker's clock: newer stored messages may also arrive live."""


class Replay(NamedTuple):
    """Stored data to read from the streams at the start, by kind: seconds and number of messages.

    None reads everything.
    """

    kinds: Mapping[str, tuple[float | None, int | None]]
    cluster: str | None = None
    """``*`` for all clusters, None for our own."""


RECENT = Replay({"events": (86400.0, 20_000), "log": (3600.0, 1000), "dead": (86400.0, 1000)})


def known_metrics() -> dict[str, Metric]:
    """Return the metrics declared by collectors, plug-ins' too, and Sonar's of GPUs, by name.

    It imports every collector: call it in a thread.
    """
    sonar = {row.name: Metric(row.name, row.unit, row.kind, "") for row in GPU}
    return sonar | {row.name: row for row in declared()}


@functools.cache
def averaged_metrics() -> frozenset[str]:
    """Return the known metrics that are averaged over parts of a node: call it in a thread."""
    return frozenset(name for name, metric in known_metrics().items() if metric.is_averaged)


class LiveFeed:
    """Subscribes to all clusters, as an async context manager, and maintains the live state."""

    def __init__(
        self,
        site: Site,
        telemetry: Telemetry,
        state: LiveState | None = None,
        *,
        name: str,
        replay: Replay = RECENT,
        watches_streams: bool = True,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        """Prepare a connection of some name; nothing is connected yet.

        `warn` reports that stored messages cannot be read; watching streams needs permissions.
        """
        self.site = site
        self.state = LiveState() if state is None else state
        self.bus = Connection(site.bus, name=name, telemetry=telemetry)
        self.ticked = asyncio.Condition()
        """Notified once a second, when the state is up to date."""
        self._replay = replay
        self._watches_streams = watches_streams
        self._warn = warn
        self._subjects = Subjects.of(site)
        [self._dead] = self._subjects.patterns(("dead",), "*")
        self._codec = LineCodec(lenient=True)
        self._pending: list[Delivery] = []
        self._pending_dead: list[Delivery] = []
        self._replayed: set[tuple[str, bytes]] = set()
        self._pending_bytes = 0
        self._is_replaying = True
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        """Start connecting; if no server is reachable yet, continue in the background."""
        work = {"listen": self._listen(), "tick": self._tick()}
        if self._watches_streams and self.site.bus.jetstream:
            work["poll"] = self._poll()
        self._tasks = [asyncio.create_task(w, name=f"ccpipe-{n}") for n, w in work.items()]
        return self

    async def __aexit__(self, *_: object) -> None:
        await end_tasks(self._tasks)

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
        loading = asyncio.create_task(asyncio.to_thread(known_metrics))
        async with self.bus:
            began = time.time()
            patterns = self._subjects.patterns(("metrics", "events", "log", "dead"), "*")
            for place, pattern in enumerate(patterns):
                receive = functools.partial(self._receive, patterns[:place])
                await self.bus.subscribe(pattern, receive)
            try:
                if self.site.bus.jetstream:
                    async with asyncio.timeout(REPLAY_SECONDS):
                        for name in self._replay.kinds:
                            await self._read_stored(name, began)
            except (UnavailableError, DeniedError, TimeoutError) as error:
                why = str(error) or "it takes too long"
                self._warn(f"stored data of the last day is not shown: {why}")
            self.state.nodes.known = await loading
            self._begin_live()
            self.bus.telemetry.ready = True
            await asyncio.Event().wait()  # until cancelled

    async def _read_stored(self, name: str, began: float) -> None:
        """Read the stored messages of one kind, if any."""

        def receive(delivery: Delivery) -> None:
            now = delivery.arrival / 1e9
            if now >= began - OVERLAP_SECONDS:
                self._replayed.add((delivery.subject, delivery.payload))
            if name == "dead":
                self.state.feed_dead(delivery, now)
                return
            for lines, _ in self._codec.decode([delivery]):
                self.state.feed_texts(lines, now)

        seconds, maximum = self._replay.kinds[name]
        since = None if seconds is None else int((began - seconds) * 1e9)
        patterns = self._subjects.patterns((name,), self._replay.cluster)
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
        if matches(self._dead, delivery.subject):
            if len(self._pending_dead) >= MAX_TEXTS:
                self.state.health.dropped += 1
            else:
                self._pending_dead.append(delivery)
        elif self._pending_bytes > MAX_PENDING_BYTES:
            self.state.health.dropped += 1
        else:
            self._pending.append(delivery)
            self._pending_bytes += len(delivery.payload)

    def _decode(self) -> None:
        if self._is_replaying:  # the stored part of the journal precedes
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        now = time.time()
        for delivery in self._pending_dead:
            self.state.feed_dead(delivery, now)
        self._pending_dead.clear()
        texts = MAX_TEXTS
        for lines, count in self._codec.decode(pending):
            texts -= self.state.feed(lines, now, payloads=count, max_texts=texts)

    def update(self) -> None:
        self._decode()
        self.state.tick(time.time())

    async def _tick(self) -> None:
        pause = DECODE_SECONDS
        count = 0
        while True:
            await asyncio.sleep(pause - time.time() % pause)
            count += 1
            if count % round(1 / pause):
                self._decode()
                continue
            self.update()
            if count % (FORGET_TICKS * round(1 / pause)) == 0:
                self.state.forget(time.time())
            async with self.ticked:
                self.ticked.notify_all()

    async def _poll(self) -> None:
        health = self.state.health
        while True:
            if self.bus.is_connected:
                jetstream = self.bus.jetstream()
                try:
                    streams = [each async for each in all_streams(jetstream)][:MAX_STREAMS]
                    consumers = [
                        each
                        for stream in streams
                        async for each in consumers_of(jetstream, stream.name)
                    ]
                except (UnavailableError, DeniedError) as error:
                    health.problem = str(error)
                else:
                    health.problem = ""
                    health.streams = streams
                    health.consumers = [c for c in consumers if c.config.get("durable_name")]
            await asyncio.sleep(POLL_SECONDS if health.streams or health.problem else 1.0)
