"""The writing half of a pipe: from the queue to the sink, then acknowledged."""

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain

from ccpipe.errors import CcpipeError, OutputError, TimedOutError, UnavailableError
from ccpipe.pipeline.attempts import LAST_SECONDS
from ccpipe.pipeline.confirmation import Confirmation
from ccpipe.pipeline.delivery import Portion, SinkWriter, portions
from ccpipe.pipeline.queue import Item, Queue, now
from ccpipe.pipeline.stages import commit

log = logging.getLogger(__name__)

ACKNOWLEDGE_SECONDS = 60.0
"""Maximum time for acknowledging what was written."""


class PipeWriter:
    """Writes what is in the queue until it ends, and acknowledges what is safe."""

    def __init__(
        self,
        queue: Queue,
        delivery: SinkWriter,
        confirmation: Confirmation,
        begin_shutdown: Callable[[], None],
    ) -> None:
        """Call `begin_shutdown` if writing fails for good."""
        self.queue = queue
        self.delivery = delivery
        self.confirmation = confirmation
        self.begin_shutdown = begin_shutdown
        self.attempts = delivery.attempts
        self._is_upstream_silent = False  # acknowledgements after the grace period do not wait

    async def write(self) -> None:
        """Write until the queue ends; if writing fails, keep what could not be written."""
        delivery, items = self.delivery, list[Item]()
        try:
            while (items := await self.queue.take(self.confirmation.due)) or self.confirmation:
                delivery.take(items)
                while items:
                    await delivery.write()
                    done = items[: delivery.complete(items)]
                    await delivery.write_letters_of(done)
                    await self._finish(done)
                    items = items[len(done) :]
                await self._release(await self.confirmation.confirm(self._write_again))
        except (BrokenPipeError, OutputError):
            self.begin_shutdown()  # a command whose output is closed has no reader for the rest
            raise
        except Exception as error:
            self.begin_shutdown()
            held = list(self.confirmation)
            rest = delivery.unwritten if items else []
            again = [portion for each in reversed(held) for portion in portions(each)]
            await self._keep(
                [*chain.from_iterable(held), *items], rest + again, f"not delivered: {error}"
            )
            raise

    async def _finish(self, items: Sequence[Item]) -> None:
        """Acknowledge written items, or hold them back until the store has them on its disk."""
        if not self.confirmation.is_needed:
            await self._release(items)
            return
        self.confirmation.add(items, min(self.delivery.since, now()))
        if not self.delivery.unwritten:
            self.delivery.since = math.inf

    async def _write_again(self, items: Sequence[Item]) -> float:
        """Write items that a store may have lost; return when that began."""
        began = now()
        self.delivery.take(items)
        while self.delivery.unwritten:
            await self.delivery.write()
        await self.delivery.write_letters_of(items)
        self.delivery.since = math.inf
        return began

    async def _release(self, items: Sequence[Item]) -> None:
        """Acknowledge items that are safe, and forget them."""
        await self._acknowledge(items)
        self.queue.release(items)

    async def _acknowledge(self, items: Sequence[Item]) -> None:
        """Acknowledge completed batches; at the end, do not wait for an unresponsive upstream."""
        complete = [receipt for item in items for receipt in item.complete]
        try:
            commit(complete)
            if acks := [receipt.ack for receipt in complete if receipt.ack is not None]:
                await self.attempts.bounded(
                    functools.partial(_call_each, acks),
                    ACKNOWLEDGE_SECONDS,
                    last=0.0 if self._is_upstream_silent else LAST_SECONDS,
                )
        except TimedOutError:
            self._is_upstream_silent = True
            log.warning("the source cannot acknowledge; written records will be redelivered")
        except UnavailableError as error:
            log.warning("%s; written records will be redelivered", error)

    async def _keep(self, items: list[Item], unwritten: list[Portion], reason: str) -> None:
        """Make dead letters of records without an upstream, until the source has ended too."""
        self.queue.flush_now = True
        deadline = now() + self.attempts.limits.grace
        while items:
            letters = [bad for item in items if not item.is_redelivered for bad in item.letters]
            letters += [
                portion.letter(i, reason)
                for portion in reversed(unwritten)
                for i in range(len(portion.records))
                if not portion.item(i).is_redelivered
            ]
            try:
                await self.delivery.letters.write(letters)
            except CcpipeError as error:
                log.error("%d dead letters are lost: %s", len(letters), error)  # noqa: TRY400
            self.queue.release(items)
            items = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    items = await self.queue.take()
            unwritten = portions(items)

    def close(self) -> None:
        """Give the sink its configured time limit back."""
        self.delivery.time_limit.reset()


async def _call_each(acks: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Acknowledge batches in order; one that cannot be is delivered again."""
    for ack in acks:
        try:
            await ack()
        except UnavailableError as error:
            log.warning("%s; it will be redelivered", error)
