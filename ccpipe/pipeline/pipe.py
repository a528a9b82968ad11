"""``run()``: one task reads and translates, one writes; a queue lies between them."""

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from itertools import chain, repeat
from typing import Any

import tenacity

from ccpipe.errors import CcpipeError, DataError, EncodeError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline.plug import (
    Batch,
    DeadLetter,
    DeadLetterSink,
    Limits,
    Sink,
    Source,
    Translator,
    check_fit,
    join,
    wait_for_event,
)
from ccpipe.pipeline.queue import Item, Queue, now
from ccpipe.pipeline.stage import Stage, acknowledge, note_written, to_dead_letter
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)


async def run(
    source: Source,
    sink: Sink,
    *,
    translators: Sequence[Translator] = (),
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Carry everything from `source` through `translators` to `sink`, until the source ends.

    Setting `stop` asks the source to end; what it has handed over by then is still written, for
    ``limits.grace`` seconds if the sink fails. It is the same where the source itself fails.
    What could not be written and has no one upstream to hand it over again is then buried.

    Raises
    ------
    UnavailableError
        where records could not be written within that time; they were not acknowledged.
    CcpipeError
        where source or sink cannot work at all, or the parts do not fit together.

    """
    check_fit(source, translators, sink)
    limits, telemetry, stop = limits or Limits(), telemetry or Telemetry(), stop or asyncio.Event()
    pipe = _Pipe(source, sink, translators, dead_letter_sink, limits, telemetry)
    async with contextlib.AsyncExitStack() as stack:
        parts: list[object] = [dead_letter_sink, sink, source]
        for part in parts:
            if isinstance(part, contextlib.AbstractAsyncContextManager) and not await _is_entered(
                stack, part, stop
            ):
                return
        watcher = asyncio.create_task(pipe.watch(stop), name="ccpipe-stop")
        reader = asyncio.create_task(pipe.read(), name="ccpipe-read")
        telemetry.ready = True
        try:
            await pipe.write()
            await reader  # it has ended, or there would be more to write; its error is raised here
        finally:
            telemetry.ready = False
            for task in (reader, watcher):
                task.cancel()
            await asyncio.wait({reader, watcher})


async def _is_entered(
    stack: contextlib.AsyncExitStack,
    part: contextlib.AbstractAsyncContextManager[object],
    stop: asyncio.Event,
) -> bool:
    """Enter a part, which may wait for a server without end; false where `stop` came before."""
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


_Portion = tuple[Any, Sequence[Item]]
"""Records for one write; beside each stands the item that it came with."""


class _Pipe:
    """What one ``run()`` knows."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        translators: Sequence[Translator],
        dead_letter_sink: DeadLetterSink | None,
        limits: Limits,
        telemetry: Telemetry,
    ) -> None:
        self.source = source
        self.sink = sink
        self.stages = [Stage(translator) for translator in translators]
        self.latest = Batch(())  # that was read
        self.dead_letter_sink = dead_letter_sink
        self.limits = limits
        self.telemetry = telemetry
        self.queue = Queue(limits, telemetry)
        self.unwritten: list[_Portion] = []  # of what was taken off the queue; the next one last
        self.ending = asyncio.Event()
        self.grace_end = math.inf

    async def watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.begin_shutdown()

    def begin_shutdown(self) -> None:
        """Ask the source to end; what fails from now on is tried for the grace only."""
        if not self.ending.is_set():
            self.ending.set()
            self.grace_end = now() + self.limits.grace
            self.source.stop()

    async def read(self) -> None:
        """Read until the source ends or fails; either way what it handed over goes on."""
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
        batches = aiter(self.source)
        is_holding = any(stage.is_holding for stage in self.stages)
        coming = _with_ticks(batches) if is_holding else batches
        try:
            async for batch in coming:
                self.telemetry.count(self.telemetry.read, self.source, len(batch.records))
                await self.translate(batch)
        finally:
            for generator in (coming, batches):
                if isinstance(generator, AsyncGenerator):
                    await generator.aclose()

    async def translate(self, batch: Batch) -> None:
        """Queue a batch, or what the translators have ready after it."""
        letters = _unreadable(batch)
        if not self.stages:
            await self.queue.put(Item(batch, letters))
            return
        records, batch.records = batch.records, ()
        complete = []
        if batch is not _TICK:
            self.latest, complete = batch, [batch]
        for stage in self.stages:
            records, complete = stage.feed(records, complete, self.latest.origin)
        await self.put(records, complete, letters)

    async def flush(self) -> None:
        """Queue what the translators still hold."""
        for position, stage in enumerate(self.stages, 1):
            records, complete = stage.flush(self.latest.origin)
            for later in self.stages[position:]:
                records, complete = later.feed(records, complete, self.latest.origin)
            await self.put(records, complete, [])

    async def put(self, records: Any, complete: list[Batch], letters: list[DeadLetter]) -> None:
        """Queue what translators made; with it the batches are safe that it completes."""
        for stage in self.stages:
            letters += stage.letters
            stage.letters.clear()
        if not (len(records) or complete or letters):
            return
        batch = Batch(records, origin=self.latest.origin)
        batch.notes = [note for each in complete for note in each.notes]
        if self.latest.has_upstream:
            batch.ack = functools.partial(acknowledge, complete)
        await self.queue.put(Item(batch, letters))

    async def write(self) -> None:
        """Write until the queue ends; where that fails, see to what could not be written."""
        items: list[Item] = []
        try:
            while items := await self.queue.take():
                self.unwritten = _portions(items)
                await self.deliver()
                await self.write_dead_letters([letter for item in items for letter in item.letters])
                await self.acknowledge(items)
                self.queue.release(items)
        except Exception as error:
            self.begin_shutdown()
            await self.keep(items, f"not delivered: {error}")
            raise

    async def deliver(self) -> None:
        """Write what is unwritten; halve what is rejected until the bad records are found."""
        while self.unwritten:
            records, owners = self.unwritten[-1]
            smaller: list[_Portion] = []
            try:
                await self.retry(functools.partial(self.sink.write, records), self.sink)
            except (RejectedError, EncodeError) as error:
                bad = _bad_records(error, len(records))
                for i in bad:
                    letter = to_dead_letter(records[i], str(error), owners[i].batch.origin)
                    owners[i].letters.append(letter)
                smaller = _without(bad, records, owners) if bad else _halves(records, owners)
            else:
                self.telemetry.wrote(self.sink, len(records))
            self.unwritten[-1:] = smaller

    async def acknowledge(self, items: Sequence[Item]) -> None:
        try:
            note_written([item.batch for item in items])
        except UnavailableError as error:
            log.warning("%s; what was written will come again", error)
            return
        for item in items:
            try:
                await item.batch.ack()
            except UnavailableError as error:
                log.warning("%s: %s; it will come again", item.batch.origin, error)

    async def keep(self, items: Sequence[Item], reason: str) -> None:
        """Bury what nobody upstream hands over again, until the source has ended too."""
        self.queue.flush_now = True
        timeout = now() + self.limits.grace
        while items:
            letters = [bad for item in items if not item.batch.has_upstream for bad in item.letters]
            letters += [
                to_dead_letter(record, reason, owner.batch.origin)
                for records, owners in reversed(self.unwritten)
                for record, owner in zip(records, owners, strict=True)
                if not owner.batch.has_upstream
            ]
            try:
                await self.write_dead_letters(letters)
            except CcpipeError as error:
                log.error("%d dead letters are lost: %s", len(letters), error)  # noqa: TRY400
            self.queue.release(items)
            items = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(timeout):
                    items = await self.queue.take()
            self.unwritten = _portions(items)

    async def write_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        for letter in letters[:_LOGGED]:
            log.warning("%s", letter)
        if len(letters) > _LOGGED:
            log.warning("… and %d more dead letters", len(letters) - _LOGGED)
        if self.dead_letter_sink is not None:
            await self.write_singly(letters, self.dead_letter_sink)
        self.telemetry.count(self.telemetry.dead, self.source, len(letters))
        self.telemetry.ready = True

    async def write_singly(
        self, letters: Sequence[DeadLetter], dead_letter_sink: DeadLetterSink
    ) -> None:
        """Write letters, one by one where the sink refuses them together."""
        try:
            await self.retry(functools.partial(dead_letter_sink.write, letters), dead_letter_sink)
        except DataError as error:
            if len(letters) > 1:
                for letter in letters:
                    await self.write_singly([letter], dead_letter_sink)
            else:
                log.error("%s; this letter is lost: %s", letters[0], error)  # noqa: TRY400

    async def retry(self, attempt: Callable[[], Awaitable[None]], part: object) -> None:
        """Try until it works; once the pipe is ending, only for the grace that is left."""

        def note(state: tenacity.RetryCallState) -> None:
            self.telemetry.failed(part)
            error = state.outcome.exception() if state.outcome else None
            log.warning("%s: %s; trying again", type(part).__name__, error)

        async for trial in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=self.limits.backoff),
            stop=lambda _: now() >= self.grace_end,
            sleep=self.pause,
            before_sleep=note,
            reraise=True,
        ):
            with trial:
                await attempt()

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than a moment once the pipe is ending."""
        if self.ending.is_set():
            await asyncio.sleep(min(seconds, 0.1))
        else:
            await wait_for_event(self.ending, seconds)


_LOGGED = 10


def _portions(items: Sequence[Item]) -> list[_Portion]:
    """Join items for one write; there is none where they hold no records."""
    owners = [*chain.from_iterable(repeat(item, len(item.batch.records)) for item in items)]
    return [(join([item.batch.records for item in items]), owners)] if owners else []


def _bad_records(error: RejectedError | EncodeError, total: int) -> list[int]:
    """Return which records of a write the error is about; empty where it does not say."""
    if total == 1:
        return [0]
    named = error.indices if isinstance(error, RejectedError) else None
    return sorted({i for i in named or () if 0 <= i < total})


def _without(bad: Sequence[int], records: Any, owners: Sequence[Item]) -> list[_Portion]:
    good = sorted(set(range(len(records))).difference(bad))
    return [([records[i] for i in good], [owners[i] for i in good])] if good else []


def _halves(records: Any, owners: Sequence[Item]) -> list[_Portion]:
    half = len(records) // 2
    return [(records[half:], owners[half:]), (records[:half], owners[:half])]


def _unreadable(batch: Batch) -> list[DeadLetter]:
    rejected = batch.records.rejected if isinstance(batch.records, Lines) else []
    return [
        *batch.letters,
        *(
            DeadLetter(bad.original, str(bad.rule), batch.origin, bad.line, bad.offset)
            for bad in rejected
        ),
    ]


_TICK = Batch(())
"""Stands for a second in which no batch came."""


async def _with_ticks(batches: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
    """Yield batches, and a tick whenever none came for a second."""
    coming: asyncio.Future[Batch | None] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.ensure_future(anext(batches, None))
            done, _ = await asyncio.wait({coming}, timeout=1)
            if not done:
                yield _TICK
                continue
            batch, coming = coming.result(), None
            if batch is None:
                return
            yield batch
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})
