"""``run()``: one task reads and translates, another writes; a queue connects them.

Translators are in ``stages.py``, queue and writing half in ``writing.py``, and what that does with
the sink in ``delivery.py``.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Never, TypeVar, cast, overload

from ccpipe.pipeline.delivery import Attempts, DeadLetterWriter, SinkWriter
from ccpipe.pipeline.interfaces import (
    DeadLetterSink,
    SharedSource,
    Sink,
    Source,
    Translator,
)
from ccpipe.pipeline.limits import Limits
from ccpipe.pipeline.stages import (
    AnyTranslator,
    Item,
    Stages,
    check_fit,
    require_conforming,
    require_type,
)
from ccpipe.pipeline.writing import Confirmation, PipeWriter, Queue
from ccpipe.process.background import background, failing
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
"""Interval at which translators that withhold records are fed if no batch arrives."""

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
    opened: Callable[[], None] | None = None,
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
    opened: Callable[[], None] | None = None,
) -> None: ...
@overload
async def run(
    source: Source[Records],
    sink: Sink[Never],
    *,
    translators: Sequence[AnyTranslator] | Stages,
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
    opened: Callable[[], None] | None = None,
) -> None: ...
async def run(
    source: Source[Records],
    sink: Sink[Never],
    *,
    translators: Sequence[AnyTranslator] | Stages = (),
    dead_letter_sink: DeadLetterSink | None = None,
    limits: Limits | None = None,
    telemetry: Telemetry | None = None,
    stop: asyncio.Event | None = None,
    opened: Callable[[], None] | None = None,
) -> None:
    """Carry everything from `source` through `translators` to `sink`, until the source ends.

    Setting `stop` ends the source; batches handed over by then are still written, for up to
    ``limits.stop_timeout`` seconds if the sink fails. The same applies if the source itself fails.
    Records that could not be written and have no upstream to redeliver them become dead letters.
    An unexpected error in a background task of a part ends the pipe in the same way, and is raised.

    `opened` is called when all parts are open, before the first batch is read.

    `dead_letter_sink` and `limits` default to the source's and the sink's. `translators` may
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
    stop = stop or asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(failing(stop.set))
        for part in (dead_letter_sink, sink, source):
            if part is not None and not await _is_entered(stack, part, stop):
                return
        if opened is not None:
            opened()
        await _carry(
            source,
            cast("Sink[Records]", sink),  # it takes what the last stage gives
            stages,
            dead_letter_sink,
            limits or sink.limits,
            telemetry or Telemetry(),
            stop,
        )


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


async def _carry(
    source: Source[Records],
    sink: Sink[Records],
    stages: Stages,
    dead_letter_sink: DeadLetterSink | None,
    limits: Limits,
    telemetry: Telemetry,
    stop: asyncio.Event,
) -> None:
    """Run both tasks between parts that are open."""
    queue, attempts = Queue(limits, telemetry), Attempts(limits, telemetry)
    confirmation = Confirmation(sink, attempts)

    def begin_shutdown() -> None:
        """End the source; from now on, failures are retried for the grace period only."""
        if not attempts.ending.is_set():
            attempts.begin_shutdown()
            source.stop()
            if confirmation.is_needed:
                seconds = confirmation.safe_after
                log.info("waiting %g s until the store has everything on its disk", seconds)

    if stop.is_set():
        begin_shutdown()  # before anything is read
    reader = PipeReader(source, stages, queue, telemetry, begin_shutdown)
    letters = DeadLetterWriter(dead_letter_sink, source, attempts, telemetry)
    writer = PipeWriter(queue, SinkWriter(sink, letters, attempts), confirmation, begin_shutdown)
    reading = asyncio.create_task(reader.read(), name="ccpipe-read")
    tasks = {
        reading,
        background(reader.tick(), "ccpipe-tick"),
        background(_stop(stop, begin_shutdown, reading), "ccpipe-stop"),
    }
    telemetry.declare(telemetry.read, source)
    telemetry.declare(telemetry.dead, source)
    writes = telemetry.written, telemetry.batches, telemetry.write_seconds
    for counter in (*writes, telemetry.retries):
        telemetry.declare(counter, sink)
    telemetry.ready = True
    try:
        await writer.write()
        await asyncio.wait({reading})  # the queue has ended
        if not reading.cancelled():
            reading.result()
    finally:
        telemetry.ready = False
        writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _stop(
    stop: asyncio.Event, begin_shutdown: Callable[[], None], reading: asyncio.Task[None]
) -> None:
    """End the source once `stop` is set; if its ``stop`` fails, stop reading it."""
    await stop.wait()
    try:
        begin_shutdown()
    except Exception:
        reading.cancel()
        raise


class PipeReader:
    """Reads and translates until the source ends."""

    def __init__(
        self,
        source: Source[Records],
        stages: Stages,
        queue: Queue,
        telemetry: Telemetry,
        begin_shutdown: Callable[[], None],
    ) -> None:
        self.source = source
        self.stages = stages
        self.queue = queue
        self.telemetry = telemetry
        self.begin_shutdown = begin_shutdown
        self._translating = asyncio.Lock()

    async def read(self) -> None:
        """Read until the source ends or fails; batches handed over are processed in either case."""
        try:
            await self._read_source()
        except Exception:
            self.begin_shutdown()
            await self._flush()
            raise
        else:
            await self._flush()
        finally:
            self.queue.end()

    async def _read_source(self) -> None:
        source = self.source
        if isinstance(source, SharedSource):
            batches = source.batches(self.stages.scope)
        else:
            batches = source.batches()
        try:
            async for batch in batches:
                require_type(batch.records, source.gives, source)
                self.telemetry.count(self.telemetry.read, source, len(batch.records))
                async with self._translating:
                    await self._put(self.stages.feed(batch))
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    async def tick(self) -> None:
        """Feed translators that withhold records, even if no batch arrives."""
        while True:
            if not (len(self.stages) or self.stages.is_holding):
                await self.stages.wait_replaced()
            await asyncio.sleep(TICK_SECONDS)
            async with self._translating:
                if self.stages.is_holding:
                    await self._put(self.stages.feed(None))

    async def _flush(self) -> None:
        """Queue the records that translators still withhold."""
        async with self._translating:
            await self._put(self.stages.flush())

    async def _put(self, items: Sequence[Item]) -> None:
        for item in items:
            if len(item.records) or item.complete or item.letters:
                await self.queue.put(item)
