"""``run()``: one task reads and translates, another writes; a queue connects them."""

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import chain
from typing import Any, TypeVar, overload

from ccpipe.errors import (
    CcpipeError,
    DataError,
    EncodeError,
    OutputError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from ccpipe.pipeline.attempts import LAST_SECONDS, Attempts
from ccpipe.pipeline.confirmation import Confirmation
from ccpipe.pipeline.dead_letters import DeadLetter, chunks, dead_letters_of
from ccpipe.pipeline.interfaces import Batch, DeadLetterSink, SharedSource, Sink, Source, Translator
from ccpipe.pipeline.limits import Limits
from ccpipe.pipeline.portion import Portion
from ccpipe.pipeline.queue import Item, Queue, Receipt, now
from ccpipe.pipeline.stages import (
    AnyTranslator,
    Stages,
    Translated,
    check_fit,
    commit,
    require_conforming,
    require_type,
)
from ccpipe.pipeline.time_limit import TimeLimit
from ccpipe.process.background import background, failing
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
"""Interval at which translators that hold something back are fed if no batch arrives."""
WRITE_SECONDS = 300.0
"""A write that takes longer counts as stuck in ``/ready``; sinks give up earlier by themselves."""

ACKNOWLEDGE_SECONDS = 60.0
"""Maximum time for acknowledging what was written."""


R = TypeVar("R", bound=Records)
A = TypeVar("A", bound=Records)
B = TypeVar("B", bound=Records)


@overload
async def run(
    source: Source[R],
    sink: Sink[R],
    *,
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
) -> None: ...
@overload
async def run(
    source: Source[A],
    sink: Sink[B],
    *,
    translators: tuple[Translator[A, B]],
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
) -> None: ...
@overload
async def run(
    source: Source[Any],
    sink: Sink[Any],
    *,
    translators: Sequence[AnyTranslator] | Stages,
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
) -> None: ...
async def run(
    source: Source[Any],
    sink: Sink[Any],
    *,
    translators: Sequence[AnyTranslator] | Stages = (),
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Carry everything from `source` through `translators` to `sink`, until the source ends.

    Setting `stop` asks the source to end; what it has handed over by then is still written, for up
    to ``limits.grace`` seconds if the sink fails. The same applies if the source itself fails.
    Records that could not be written and have no upstream to redeliver them become dead letters.
    An unexpected error in a background task of a part ends the pipe in the same way, and is raised.

    `dead_letter_sink` and `limits` default to those of the source and the sink. `translators` may
    be ``Stages`` if they are to be replaced while the pipe runs.

    Raises
    ------
    UnavailableError
        if records could not be written within the grace period; they are not acknowledged.
    CcpipeError
        if the source or the sink fails permanently, or the parts do not fit together.

    """
    stages = check_fit(source, translators, sink)
    if dead_letter_sink is not None:
        require_conforming(dead_letter_sink, DeadLetterSink)
    dead_letter_sink = dead_letter_sink or source.dead_letter_sink
    limits, telemetry, stop = (
        limits or sink.limits,
        telemetry or Telemetry(),
        stop or asyncio.Event(),
    )
    pipe = _Pipe(source, sink, stages, dead_letter_sink, limits, telemetry)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(failing(stop.set))
        for part in (dead_letter_sink, sink, source):
            if part is not None and not await _is_entered(stack, part, stop):
                return
        tasks = {background(pipe.watch(stop), "ccpipe-stop")}
        reader = pipe.reader = asyncio.create_task(pipe.read(), name="ccpipe-read")
        tasks.add(reader)
        # Replaceable translators may hold something back later.
        if len(stages) or stages is translators:
            tasks.add(background(pipe.tick(), "ccpipe-tick"))
        telemetry.declare(telemetry.read, source)
        telemetry.declare(telemetry.dead, source)
        for counter in (telemetry.written, telemetry.batches, telemetry.retries):
            telemetry.declare(counter, sink)
        telemetry.ready = True
        try:
            await pipe.write()
            await asyncio.wait({reader})  # the queue has ended
            if not reader.cancelled():
                reader.result()
        finally:
            telemetry.ready = False
            pipe.time_limit.reset()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _is_entered(
    stack: contextlib.AsyncExitStack,
    part: contextlib.AbstractAsyncContextManager[object],
    stop: asyncio.Event,
) -> bool:
    """Enter a part, which may wait for a server indefinitely; false if `stop` was set first."""
    entering = asyncio.create_task(stack.enter_async_context(part), name="ccpipe-enter")
    stopping = asyncio.create_task(stop.wait(), name="ccpipe-stop")
    try:
        await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (entering, stopping):
            task.cancel()
        await asyncio.wait({entering, stopping})
    if entering.cancelled():
        return False
    entering.result()
    return True


class _Pipe:
    """The state of one ``run()``."""

    def __init__(
        self,
        source: Source[Records],
        sink: Sink[Any],
        stages: Stages,
        dead_letter_sink: DeadLetterSink | None,
        limits: Limits,
        telemetry: Telemetry,
    ) -> None:
        self.source = source
        self.sink = sink
        self.stages = stages
        self.latest: Batch[Records] | None = None  # the last batch read
        self.dead_letter_sink = dead_letter_sink
        self.limits = limits
        self.telemetry = telemetry
        self.attempts = Attempts(limits, telemetry)
        self.queue = Queue(limits, telemetry)
        self.translating = asyncio.Lock()
        self.reader: asyncio.Task[None] | None = None
        self.unwritten: list[Portion] = []  # taken off the queue; the next one last
        self.rejected: dict[int, Item] = {}  # with dead letters that are not written yet
        self.is_upstream_silent = (
            False  # then acknowledgements are not waited for after the grace period
        )
        self.max_records = math.inf  # per write, reduced while the sink is slow
        self.time_limit = TimeLimit(limits, sink)
        self.began = 0.0  # the latest attempt
        self.since = math.inf  # the earliest write of items that are not complete yet
        self.confirmation = Confirmation(sink, self.attempts)

    async def watch(self, stop: asyncio.Event) -> None:
        """Ask the source to end once `stop` is set; one that cannot be asked is not read on."""
        await stop.wait()
        try:
            self.begin_shutdown()
        except Exception:
            if self.reader is not None:
                self.reader.cancel()
            raise

    def begin_shutdown(self) -> None:
        """Ask the source to end; from now on, failures are retried for the grace period only."""
        if not self.attempts.ending.is_set():
            self.attempts.begin_shutdown()
            self.source.stop()
            if self.confirmation.is_needed:
                seconds = self.confirmation.safe_after
                log.info("waiting %g s until the store has everything on its disk", seconds)

    async def read(self) -> None:
        """Read until the source ends or fails; what it handed over is processed in either case."""
        try:
            await self.read_source()
        except Exception:
            self.begin_shutdown()
            await self.flush()
            raise
        else:
            await self.flush()
        finally:
            self.queue.end()

    async def read_source(self) -> None:
        source = self.source
        if isinstance(source, SharedSource):
            batches = source.batches(self.stages.scope)
        else:
            batches = source.batches()
        try:
            async for batch in batches:
                require_type(batch.records, source.gives, source)
                self.telemetry.count(self.telemetry.read, self.source, len(batch.records))
                async with self.translating:
                    await self.translate(batch)
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    async def tick(self) -> None:
        """Feed translators that hold something back, even if no batch arrives."""
        while True:
            if not (len(self.stages) or self.stages.is_holding):
                await self.stages.wait_replaced()
            await asyncio.sleep(TICK_SECONDS)
            async with self.translating:
                if self.stages.is_holding:
                    await self.put(self.stages.feed(None))

    async def translate(self, batch: Batch[Records]) -> None:
        """Queue a batch, or what the translators return for it."""
        self.latest = batch
        letters = dead_letters_of(batch.records.rejected, _origin(batch))
        if len(self.stages) or self.stages.is_holding:
            results = self.stages.feed(batch)
        else:
            results = [Translated(batch.records, [Receipt(batch.ack)])]
        results[-1].letters[:0] = letters
        await self.put(results)

    async def flush(self) -> None:
        """Queue what the translators still hold back."""
        async with self.translating:
            await self.put(self.stages.flush())

    async def put(self, results: Sequence[Translated]) -> None:
        """Queue the records that translators returned, with the batches that they complete."""
        origin = _origin(self.latest) if self.latest else ""
        is_redelivered = self.latest is not None and self.latest.ack is not None
        for each in results:
            if len(each.records) or each.complete or each.letters:
                item = Item(each.records, origin, each.letters, each.complete, is_redelivered)
                await self.queue.put(item)

    async def write(self) -> None:
        """Write until the queue ends; if writing fails, keep what could not be written."""
        items: list[Item] = []
        try:
            while (items := await self.queue.take(self.confirmation.due)) or self.confirmation:
                self.unwritten = self.portions(items)
                while items:
                    await self.deliver()
                    done = items[: self.complete(items)]
                    await self.write_letters_of(done)
                    await self.finish(done)
                    items = items[len(done) :]
                await self.release(await self.confirmation.confirm(self.write_again))
        except (BrokenPipeError, OutputError):
            self.begin_shutdown()  # a command whose output is closed has no reader for the rest
            raise
        except Exception as error:
            self.begin_shutdown()
            held = list(self.confirmation)
            rest = self.unwritten if items else []
            again = [portion for each in reversed(held) for portion in self.portions(each)]
            self.unwritten = rest + again
            await self.keep([*chain.from_iterable(held), *items], f"not delivered: {error}")
            raise

    async def finish(self, items: Sequence[Item]) -> None:
        """Acknowledge written items, or hold them back until the store has them on its disk."""
        if not self.confirmation.is_needed:
            await self.release(items)
            return
        self.confirmation.add(items, min(self.since, now()))
        if not self.unwritten:
            self.since = math.inf

    async def write_again(self, items: Sequence[Item]) -> float:
        """Write items that a store may have lost; return when that began."""
        began = now()
        self.unwritten = self.portions(items)
        while self.unwritten:
            await self.deliver()
        await self.write_letters_of(items)
        self.since = math.inf
        return began

    async def release(self, items: Sequence[Item]) -> None:
        """Acknowledge items that are safe, and forget them."""
        await self.acknowledge(items)
        self.queue.release(items)

    async def write_letters_of(self, items: Sequence[Item]) -> None:
        """Write the dead letters of items, once."""
        await self.write_dead_letters([letter for item in items for letter in item.letters])
        for item in items:
            item.letters.clear()
            self.rejected.pop(id(item), None)

    def portions(self, items: Sequence[Item]) -> list[Portion]:
        """Join items for one write; empty if they contain no records."""
        filled = [item for item in items if len(item.records)]
        return [Portion.of(filled)] if filled else []

    async def deliver(self) -> None:
        """Write the next portion; halve rejected ones until the bad records are found.

        A portion that times out is halved as well, unless it is one message, and later writes are
        limited to that size for a while.
        """
        if not self.unwritten:
            return
        portion = self.unwritten[-1]
        total = len(portion.records)
        smaller: list[Portion] = []
        self.telemetry.expect(self.sink, WRITE_SECONDS)
        try:
            if total > self.max_records and not self.stays_whole(portion):
                smaller = portion.halves()
            else:
                if self.rejected and portion.has_ids:
                    # Once the store has the message of a rejected record, nobody asks for it again.
                    await self.write_letters_of(list(self.rejected.values()))
                write = functools.partial(self.attempt, portion)
                await self.attempts.retry(write, self.sink, limit=self.time_limit)
        except TimedOutError as error:
            if self.attempts.is_over:
                raise
            self.telemetry.failed(self.sink)
            self.time_limit.exceeded(error)
            smaller = await self.after_timeout(portion, error)
        except (RejectedError, EncodeError) as error:
            smaller = self.after_rejection(portion, error)
        else:
            if not smaller:
                self.telemetry.wrote(self.sink, total)
                self.since = min(self.since, self.began)
                if self.time_limit.kept(now() - self.began):
                    self.allow_more(total)
        self.telemetry.expect_nothing(self.sink)
        self.unwritten[-1:] = smaller

    async def after_timeout(self, portion: Portion, error: TimedOutError) -> list[Portion]:
        """Return what to write instead of a portion that timed out."""
        total = len(portion.records)
        if total == 1 or self.stays_whole(portion):
            log.warning("%s: %s; retrying", type(self.sink).__name__, error)
            await self.attempts.pause(min(1.0, self.limits.backoff))
            return [portion]
        log.warning("%s: %s; retrying with half", type(self.sink).__name__, error)
        self.max_records = total // 2
        return portion.halves()

    def stays_whole(self, portion: Portion) -> bool:
        """Return whether a slow sink gets the same records again, instead of half of them.

        One does that limits its own steps and goes on where it was; others get a message whole
        until the time limit cannot grow.
        """
        if self.sink.limits.timeout == math.inf:
            return True
        return portion.is_one_message and not self.time_limit.is_largest

    def after_rejection(
        self, portion: Portion, error: RejectedError | EncodeError
    ) -> list[Portion]:
        """Make dead letters of bad records, if they are known; return what is left to write."""
        bad = _bad_records(error, len(portion.records))
        for i in bad:
            item = portion.item(i)
            item.letters.append(portion.letter(i, str(error)))
            self.rejected[id(item)] = item
        return portion.without(bad) if bad else portion.halves()

    def allow_more(self, written: int) -> None:
        """After a write that succeeded in good time, allow larger ones again."""
        if 2 * written >= self.max_records:
            self.max_records *= 2
        if self.max_records > self.limits.lines:
            self.max_records = math.inf

    def complete(self, items: Sequence[Item]) -> int:
        """Return how many of the first items are written completely."""
        if not self.unwritten:
            return len(items)
        next_item = self.unwritten[-1].item(0)
        return next(place for place, item in enumerate(items) if item is next_item)

    async def attempt(self, portion: Portion) -> None:
        self.began = now()
        await self.sink.write(portion.records)

    async def acknowledge(self, items: Sequence[Item]) -> None:
        """Acknowledge completed batches; at the end, do not wait for an unresponsive upstream."""
        complete = [receipt for item in items for receipt in item.complete]
        try:
            commit(complete)
            if acks := [receipt.ack for receipt in complete if receipt.ack is not None]:
                await self.attempts.bounded(
                    functools.partial(_call_each, acks),
                    ACKNOWLEDGE_SECONDS,
                    last=0.0 if self.is_upstream_silent else LAST_SECONDS,
                )
        except TimedOutError:
            self.is_upstream_silent = True
            log.warning("the source cannot acknowledge; written records will be redelivered")
        except UnavailableError as error:
            log.warning("%s; written records will be redelivered", error)

    async def keep(self, items: Sequence[Item], reason: str) -> None:
        """Make dead letters of records without an upstream, until the source has ended too."""
        self.queue.flush_now = True
        deadline = now() + self.limits.grace
        while items:
            letters = [bad for item in items if not item.is_redelivered for bad in item.letters]
            letters += [
                portion.letter(i, reason)
                for portion in reversed(self.unwritten)
                for i in range(len(portion.records))
                if not portion.item(i).is_redelivered
            ]
            try:
                await self.write_dead_letters(letters)
            except CcpipeError as error:
                log.error("%d dead letters are lost: %s", len(letters), error)  # noqa: TRY400
            self.queue.release(items)
            items = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    items = await self.queue.take()
            self.unwritten = self.portions(items)

    async def write_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        for letter in letters[:_LOGGED]:
            log.warning("%s", letter)
        if rest := sum(letter.lines for letter in letters[_LOGGED:]):
            log.warning("… and %d more dead letters", rest)
        for portion in chunks(letters):
            if self.dead_letter_sink is not None:
                await self.write_singly(portion, self.dead_letter_sink)
            lines = sum(letter.lines for letter in portion)
            self.telemetry.count(self.telemetry.dead, self.source, lines)
            self.telemetry.ready = True

    async def write_singly(self, letters: Sequence[DeadLetter], sink: DeadLetterSink) -> None:
        """Write dead letters, one by one if the sink rejects them together."""
        try:
            await self.attempts.retry(functools.partial(sink.write, letters), sink)
        except DataError as error:
            if len(letters) > 1:
                for letter in letters:
                    await self.write_singly([letter], sink)
            else:
                log.error("%s; this dead letter is lost: %s", letters[0], error)  # noqa: TRY400


_LOGGED = 10


def _origin(batch: Batch[Records]) -> str:
    known = batch.records.provenance
    return known.origins[0] if known and known.origins else batch.origin


async def _call_each(acks: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Acknowledge batches in order; one that cannot be is delivered again."""
    for ack in acks:
        try:
            await ack()
        except UnavailableError as error:
            log.warning("%s; it will be redelivered", error)


def _bad_records(error: RejectedError | EncodeError, total: int) -> list[int]:
    """Return the indices of the records that an error is about; empty if it does not say."""
    if total == 1:
        return [0]
    named = error.indices if isinstance(error, RejectedError) else None
    return sorted({i for i in named or () if 0 <= i < total})
