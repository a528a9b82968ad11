"""Written records that the store may not have on its disk yet: they are acknowledged later."""

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ccpipe.pipeline.attempts import Attempts
from ccpipe.pipeline.interfaces import Sink
from ccpipe.pipeline.queue import Item, now
from ccpipe.records import Records

log = logging.getLogger(__name__)

A_contra = TypeVar("A_contra", bound=Records, contravariant=True)

CHECK_SECONDS = 1.0
"""Minimum time between two questions to the store."""


class UnsyncedSink(Sink[A_contra]):
    """A sink of a store that answers before its disk has the records."""

    safe_after: float
    """Seconds after a write until it has them; then, if it was not restarted, they are safe."""

    @abstractmethod
    async def uptime(self) -> float:
        """Return for how many seconds the store runs; raises UnavailableError without an answer."""


@dataclass(slots=True)
class _Written:
    """Items of one write."""

    items: Sequence[Item]
    began: float
    """When the write began, or the earliest of several."""
    due: float
    """When the store has them on its disk, unless it was restarted since."""


class Confirmation:
    """Holds back the acknowledgement of written items for ``safe_after`` seconds, in order.

    A store that was restarted meanwhile may have lost them: they are written again.
    """

    def __init__(self, sink: Sink[Records], attempts: Attempts) -> None:
        """Ask `sink`, if its store answers too early, how long that has been running."""
        self.sink = sink if isinstance(sink, UnsyncedSink) else None
        self.safe_after = self.sink.safe_after if self.sink else 0.0
        self.attempts = attempts
        self._written = deque[_Written]()
        self._next = 0.0  # no question before

    @property
    def is_needed(self) -> bool:
        """Whether the sink's store answers before its disk has the records."""
        return self.safe_after > 0

    @property
    def due(self) -> float | None:
        """When to call ``confirm`` again; None if nothing is held back."""
        return max(self._written[0].due, self._next) if self._written else None

    def __bool__(self) -> bool:
        """Return whether anything is held back."""
        return bool(self._written)

    def __iter__(self) -> Iterator[Sequence[Item]]:
        """Yield the items that are held back, by write."""
        return (each.items for each in self._written)

    def add(self, items: Sequence[Item], began: float) -> None:
        """Hold back items that were just written, by writes of which the first began at `began`."""
        if items:
            self._written.append(_Written(items, began, now() + self.safe_after))

    async def confirm(self, write: Callable[[Sequence[Item]], Awaitable[float]]) -> list[Item]:
        """Return the oldest items if they are safe; write again what the store may have lost.

        `write` returns when its first write began.

        Raises
        ------
        UnavailableError
            if the store does not answer within the grace period.

        """
        asked = now()
        if self.due is None or asked < self.due:
            return []
        started = await self._started()
        lost = [each for each in self._written if each.began < started]
        if lost:
            records = sum(len(item.records) for each in lost for item in each.items)
            log.warning("the store was restarted: writing %d records again", records)
        for each in lost:
            each.began = await write(each.items)
            each.due = now() + self.safe_after
        self._next = now() + CHECK_SECONDS
        safe: list[Item] = []
        while self._written and self._written[0].due <= asked:
            safe += self._written.popleft().items
        return safe

    async def _started(self) -> float:
        """Return when the store was started; rather too late than too early."""
        sink, uptime = self.sink, 0.0
        assert sink is not None

        async def ask() -> None:
            nonlocal uptime
            uptime = await sink.uptime()

        await self.attempts.retry(ask, sink)
        return now() - uptime
