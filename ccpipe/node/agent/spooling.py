"""Publishing through the spool: directly to the broker while it responds, else to disk."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.bus.nats.permissions import ForbiddenError
from ccpipe.bus.nats.publisher import Publisher
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.store import IN_FLIGHT
from ccpipe.bus.subjects import matches
from ccpipe.errors import ConfigError, DataError, DeniedError, UnavailableError
from ccpipe.node.agent.spool import Dropped, Spool, Spooled
from ccpipe.pipeline import DeadLetter, DeadLetterSink, Sink
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

DIRECT_SECONDS = 2.0
"""Time limit for the broker, after which a write goes to disk instead."""
RETRY_SECONDS = (0.5, 30.0)
"""Minimum and maximum pause between two attempts of the replay."""
REPORT_SECONDS = 60.0
"""Minimum interval between log lines about dropped messages."""


async def open_replay(
    sink: NatsSink, path: Path, dead_letter_sink: DeadLetterSink, telemetry: Telemetry
) -> "SpoolReplay | None":
    """Open the spool at `path`, configured by ``[publish.spool]``; None if it cannot be used.

    Its messages are replayed through the connection of `sink`.
    """
    options = sink.site.publish.spool
    spool = Spool(path, size=options.size, age=options.age)
    try:
        await asyncio.to_thread(spool.open)
    except ConfigError as error:
        log.warning("%s; without the broker, messages are kept in memory only", error)
        return None
    return SpoolReplay(
        spool,
        Publisher(sink.bus, sink.site.bus, sink.subjects),
        rate=options.rate,
        dead_letter_sink=dead_letter_sink,
        telemetry=telemetry,
    )


class SpoolingSink(Sink):
    """Publishes records; while the broker does not accept them, they go to the spool.

    While the spool is not empty, everything goes through it, so that order is preserved.
    """

    def __init__(self, sink: NatsSink, replay: "SpoolReplay") -> None:
        """Publish like `sink`, else spool for `replay`."""
        self.sink = sink
        self.replay = replay
        self.takes = sink.takes
        self.limits = sink.limits
        self.resumes = sink.resumes
        self.publisher = Publisher(sink.bus, sink.site.bus, sink.subjects)
        self._metrics = sink.subjects.patterns(["metrics", "sonar"])

    async def write(self, records: Any) -> None:
        """Publish the records, or spool those that the broker did not confirm in time."""
        messages = self.sink.encode(records)
        if not self.replay.spool.messages:
            try:
                async with asyncio.timeout(DIRECT_SECONDS):
                    self.sink.bus.require_connected()
                    await self.publisher.publish(messages)
            except (UnavailableError, TimeoutError) as error:
                messages = self.publisher.take_unstored(messages)
                self.replay.report_begin(error)
            except ForbiddenError as error:
                raise self.sink.located(error, records) from None
            else:
                return
        await self.replay.append([(message, self._is_event(message)) for message in messages])

    def _is_event(self, message: Outgoing) -> bool:
        """Return whether a message may hold events."""
        is_metric = any(matches(pattern, message.subject) for pattern in self._metrics)
        return not is_metric or b" event=" in message.payload


def spooling(sink: NatsSink, replay: "SpoolReplay | None") -> Sink:
    """Return what spools for `replay`; the sink itself where there is no spool."""
    return sink if replay is None else SpoolingSink(sink, replay)


class SpoolReplay:
    """Empties the spool onto the bus, in order and at a limited rate."""

    def __init__(
        self,
        spool: Spool,
        publisher: Publisher,
        *,
        rate: int,
        dead_letter_sink: DeadLetterSink,
        telemetry: Telemetry,
    ) -> None:
        """Publish at most `rate` messages per second; rejected ones become dead letters."""
        self.spool = spool
        self.publisher = publisher
        self.rate = rate
        self.dead_letter_sink = dead_letter_sink
        self.telemetry = telemetry
        self._dropped = Dropped()
        self._reported = -REPORT_SECONDS
        self._replayed = 0
        self._filled = asyncio.Event()
        if spool.messages:
            log.info("the spool %s holds %d messages", spool.path, spool.messages)
            self._filled.set()
        self._measure()

    def report_begin(self, error: Exception) -> None:
        """Log that messages are spooled from now on."""
        reason = str(error) or "the broker does not answer"
        log.warning("%s; messages go to the spool %s", reason, self.spool.path)

    async def append(self, messages: Sequence[tuple[Outgoing, bool]]) -> None:
        """Add messages to the spool; raises UnavailableError."""
        self._note_dropped(await asyncio.to_thread(self.spool.append, messages))
        self._filled.set()
        self._measure()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Replay in the background."""
        task = asyncio.create_task(self._run(), name="ccpipe-spool")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._report_dropped()
            await asyncio.to_thread(self.spool.close)

    async def _run(self) -> None:
        shortest, longest = RETRY_SECONDS
        pause = shortest
        while True:
            if not self.spool.messages:
                self._report_end()
                self._filled.clear()
                await self._filled.wait()
            try:
                await self._step()
                pause = shortest
            except (UnavailableError, DeniedError) as error:
                level = logging.DEBUG if isinstance(error, UnavailableError) else logging.WARNING
                log.log(level, "the spool waits: %s", error)
                await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - no secret
                pause = min(pause * 2, longest) if self.publisher.bus.is_connected else shortest

    async def _step(self) -> None:
        """Publish the oldest messages."""
        self._note_dropped(await asyncio.to_thread(self.spool.drop_old))
        self._measure()
        self.publisher.bus.require_connected()
        batch = await asyncio.to_thread(self.spool.oldest, min(IN_FLIGHT, max(1, self.rate)))
        if damaged := [each for each in batch if not each.is_whole]:
            for each in damaged:
                await self._write_dead_letter(each, "damaged in the spool")
            await asyncio.to_thread(self.spool.remove, damaged)
            return
        try:
            await self.publisher.publish([each.message for each in batch])
        except DataError:
            for each in batch:
                await self._publish_one(each)
        await asyncio.to_thread(self.spool.remove, batch)
        self._replayed += len(batch)
        self._measure()
        await asyncio.sleep(len(batch) / self.rate)

    async def _publish_one(self, spooled: Spooled) -> None:
        """Publish one message; one that the broker rejects permanently becomes a dead letter."""
        try:
            await self.publisher.publish([spooled.message])
        except DataError as error:
            await self._write_dead_letter(spooled, str(error))

    async def _write_dead_letter(self, spooled: Spooled, reason: str) -> None:
        message = spooled.message
        await self.dead_letter_sink.write([DeadLetter(message.payload, reason, message.subject)])
        self.telemetry.count(self.telemetry.dead, "spool")

    def _measure(self) -> None:
        self.telemetry.spooled_messages.set(self.spool.messages)
        self.telemetry.spooled_bytes.set(self.spool.bytes)

    def _note_dropped(self, dropped: Dropped) -> None:
        self.telemetry.count(self.telemetry.dropped, "spool", dropped.lines)
        self._dropped += dropped
        now = asyncio.get_running_loop().time()
        if now - self._reported >= REPORT_SECONDS:
            self._report_dropped()

    def _report_dropped(self) -> None:
        if self._dropped.messages:
            log.warning(
                "the spool %s dropped its oldest metrics: %d lines in %d messages",
                self.spool.path,
                self._dropped.lines,
                self._dropped.messages,
            )
            self._dropped = Dropped()
            self._reported = asyncio.get_running_loop().time()

    def _report_end(self) -> None:
        if self._replayed:
            self._report_dropped()
            log.info("the spool is empty: %d messages were replayed", self._replayed)
            self._replayed = 0
