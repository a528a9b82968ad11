"""Publishing through the spool: directly to the broker while it responds, else to disk."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.publisher import IN_FLIGHT, Outgoing, Publisher
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.subjects import matches
from ccpipe.errors import CcpipeError, DataError, DeniedError, UnavailableError
from ccpipe.node.agent.spool import Dropped, Spool, Spooled, move_database
from ccpipe.pipeline import DeadLetter, DeadLetterSink, Sink, wait_for_event
from ccpipe.process.background import background
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

DIRECT_SECONDS = 2.0
"""Time limit for the broker, after which a write goes to disk instead."""
RETRY_SECONDS = (0.5, 30.0)  # minimum and maximum pause between two attempts of the replay
REPORT_SECONDS = 60.0  # minimum interval between log lines about dropped messages


async def open_replay(
    sink: NatsSink, path: Path, dead_letter_sink: DeadLetterSink, telemetry: Telemetry
) -> "SpoolReplay":
    """Open the spool at `path`, configured by ``[publish.spool]``.

    Its messages are replayed through the connection of `sink`. A failure to open it is logged, and
    opening is retried when the spool is needed.
    """
    options = sink.site.publish.spool
    spool = Spool(path, size=options.max_size, age=options.max_age)
    try:
        await asyncio.to_thread(spool.open)
    except UnavailableError as error:
        log.warning("%s; without the broker, messages are kept in memory until it can", error)
    try:
        await asyncio.to_thread(move_database, path.with_suffix(".db"), spool)
    except UnavailableError as error:
        log.warning("%s; its messages are not published", error)
    return SpoolReplay(
        spool,
        Publisher(sink.bus, sink.site.bus, sink.subjects),
        rate=options.replay_rate,
        dead_letter_sink=dead_letter_sink,
        telemetry=telemetry,
    )


class SpoolingSink(Sink[Any]):
    """Publishes records; while the broker does not accept them, they go to the spool.

    While messages wait in the spool everything goes through it, so that order is preserved. If the
    disk fails, the write is repeated until the broker or the disk accepts the records.
    """

    def __init__(
        self, sink: NatsSink, replay: "SpoolReplay", is_ending: Callable[[], bool]
    ) -> None:
        """Publish like `sink`, else spool for `replay`.

        Once `is_ending`, messages that the disk does not accept are published ahead of the spool.
        """
        self.sink = sink
        self.replay = replay
        self.is_ending = is_ending
        self.takes = sink.takes
        self.limits = sink.limits
        self.publisher = Publisher(sink.bus, sink.site.bus, sink.subjects)
        self._metrics = sink.subjects.patterns(["metrics", "sonar"])
        self._has_failed = False  # the disk, at the last append

    async def write(self, records: Records) -> None:
        """Publish the records, or spool those that the broker did not confirm in time."""
        messages = self.sink.encode(records)
        reason = ""
        if not self.replay.spool.is_waiting:
            try:
                async with asyncio.timeout(None if self._has_failed else DIRECT_SECONDS):
                    return await self._publish(messages, records)
            except (UnavailableError, TimeoutError) as error:
                reason = str(error) or "the broker does not answer"
        try:
            await self._spool(self.publisher.unstored(messages), reason)
        except UnavailableError:
            if not self.is_ending():
                raise
            await self._publish(messages, records)
        else:
            self.publisher.forget()

    async def _publish(self, messages: Sequence[Outgoing], records: Any) -> None:
        self.sink.bus.require_connected()
        try:
            await self.publisher.publish(messages)
        except ForbiddenError as error:
            raise self.sink.located(error, records) from None

    async def _spool(self, messages: Sequence[Outgoing], reason: str) -> None:
        self._has_failed = True
        await self.replay.append([(message, self._is_event(message)) for message in messages])
        self._has_failed = False
        if reason:
            log.warning("%s; messages go to the spool %s", reason, self.replay.spool.path)

    def _is_event(self, message: Outgoing) -> bool:
        """Return whether a message may contain events."""
        is_metric = any(matches(pattern, message.subject) for pattern in self._metrics)
        return not is_metric or b" event=" in message.payload


def spooling(
    sink: NatsSink, replay: "SpoolReplay | None", is_ending: Callable[[], bool]
) -> Sink[Any]:
    """Return a sink that spools for `replay`; the sink itself without a spool."""
    return sink if replay is None else SpoolingSink(sink, replay, is_ending)


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
        self._dropped = self._missing = Dropped()  # as far as counted
        self._reported = Dropped()
        self._reported_at = -REPORT_SECONDS
        self._replayed = 0
        self._filled = asyncio.Event()
        if spool.messages:
            log.info("spool %s: %d messages to replay", spool.path, spool.messages)
        self._measure()

    async def append(self, messages: Sequence[tuple[Outgoing, bool]]) -> None:
        try:
            await asyncio.to_thread(self.spool.append, messages)
        finally:
            self._measure()
        self._filled.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = background(self._run(), "ccpipe-spool")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._report_dropped()
            await asyncio.to_thread(self.spool.close)

    async def _run(self) -> None:
        """Publish spooled messages; no error ends it."""
        shortest, longest = RETRY_SECONDS
        pause, reason = shortest, ""
        while True:
            self._filled.clear()
            if not self.spool.is_waiting:
                self._report_end()
                await wait_for_event(self._filled, longest)
                continue
            try:
                await self._step()
                pause, reason = shortest, ""
                continue
            except (UnavailableError, DeniedError) as error:
                is_new = self.publisher.bus.is_connected and str(error) != reason
                log.log(logging.WARNING if is_new else logging.DEBUG, "the spool waits: %s", error)
                reason = str(error)
            except Exception:
                log.exception("the replay of the spool failed and is tried again")
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - no secret
            pause = min(pause * 2, longest) if self.publisher.bus.is_connected else shortest

    async def _step(self) -> None:
        await asyncio.to_thread(self.spool.drop_old)
        self._measure()
        self.publisher.bus.require_connected()
        batch = await asyncio.to_thread(self.spool.oldest, min(IN_FLIGHT, max(1, self.rate)))
        try:
            await self.publisher.publish([each.message for each in batch])
        except DataError:
            for each in batch:
                await self._publish_one(each)
        except CcpipeError:
            raise
        except Exception:
            # Faulty messages must not block the others.
            await asyncio.to_thread(self.spool.defer, batch)
            raise
        else:
            await asyncio.to_thread(self.spool.remove, batch)
        self._replayed += len(batch)
        self._measure()
        await asyncio.sleep(len(batch) / self.rate)

    async def _publish_one(self, spooled: Spooled) -> None:
        """Publish one message; one that the broker rejects permanently becomes a dead letter.

        If that cannot be stored, as on a full disk, the message stays in the spool for now.
        """
        try:
            await self.publisher.publish([spooled.message])
        except DataError as error:
            message = spooled.message
            letter = DeadLetter(message.payload, str(error), message.subject)
            try:
                await self.dead_letter_sink.write([letter])
            except UnavailableError as failure:
                log.warning("%s: %s; it stays in the spool", letter, failure)
                await asyncio.to_thread(self.spool.defer, [spooled])
                return
            self.telemetry.count(self.telemetry.dead, "spool")
        await asyncio.to_thread(self.spool.remove, [spooled])

    def _measure(self) -> None:
        spool = self.spool
        self.telemetry.spooled_messages.set(spool.messages)
        self.telemetry.spooled_bytes.set(spool.bytes)
        dropped, missing = spool.dropped, spool.lost
        new = (dropped - self._dropped) + (missing - self._missing)
        self.telemetry.count(self.telemetry.dropped_lines, "spool", new.lines)
        self._dropped, self._missing = dropped, missing
        now = asyncio.get_running_loop().time()
        if now - self._reported_at >= REPORT_SECONDS:
            self._report_dropped()

    def _report_dropped(self) -> None:
        dropped = self._dropped - self._reported
        if dropped.messages:
            log.warning(
                "the spool %s dropped its oldest metrics: %d lines in %d messages",
                self.spool.path,
                dropped.lines,
                dropped.messages,
            )
            self._reported = self._dropped
            self._reported_at = asyncio.get_running_loop().time()

    def _report_end(self) -> None:
        if self._replayed and not self.spool.messages:
            self._report_dropped()
            log.info("the spool is empty: %d messages were replayed", self._replayed)
            self._replayed = 0
