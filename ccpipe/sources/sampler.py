"""A node's own metrics, sampled in slots that all nodes share."""

import asyncio
import errno
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import msgspec

from ccpipe.errors import CcpipeError, ConfigError, MissingExtra
from ccpipe.message import Message
from ccpipe.pipeline import Batch, wait_for_event
from ccpipe.sources.soft_errors import SoftErrors
from ccpipe.sources.thread import Collector, CollectorThread
from ccpipe.telemetry import Telemetry

__all__ = ["Collector", "Sampler"]

log = logging.getLogger(__name__)

_LEAST = 0.001  # seconds between two slots
_FIRST_PAUSE = 1.0  # seconds between the two readings that one sample of rates needs
_ONCE_PATIENCE = 10.0  # seconds that a single sample waits for the slowest collector
_AWAY = 60  # seconds until a collector that found nothing is asked again
_SECOND = 1_000_000_000

_ABSENT = frozenset(
    {
        errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ENOSYS, errno.EOPNOTSUPP,
        errno.EACCES, errno.EPERM, errno.ENOEXEC,
    }
)  # fmt: skip
"""What the kernel says where there is no such thing, or not for us; anything else may pass."""

_Answer = asyncio.Future[list[Message]]


@dataclass(slots=True)
class _Turn:
    """A collector's turns: when it is asked, and how it is doing."""

    thread: CollectorThread
    interval: int
    away_until: float = 0.0
    """Not asked before this moment of the monotonic clock: it found nothing to measure."""
    is_away: bool = False
    has_told: bool = False
    """Whether it ever measured anything."""
    is_late: bool = False
    """Whether it was still busy when it should have been asked again."""


class Sampler:
    """Samples collectors once a slot, and hands over what they say as one batch.

    Slots are the multiples of the interval since the epoch, and every message carries its slot's
    time exactly, so that the series of all nodes align. Each collector may have an interval of
    its own, and each is asked in a thread of its own: a batch waits for the slow ones only for
    `patience`; what they say later comes with the next batch. One that is still busy at its own
    next slot is cut off: it is not asked a second time, and what it says then is thrown away.
    """

    def __init__(
        self,
        collectors: Mapping[str, Collector],
        *,
        interval: float,
        jitter: float = 0.0,
        tags: Mapping[str, str],
        intervals: Mapping[str, float] | None = None,
        once: bool = False,
        patience: float | None = None,
        units: Mapping[str, str] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Sample `collectors`, by name, every `interval` seconds.

        Parameters
        ----------
        collectors
            By the name that the log calls them.
        interval
            Seconds from one slot to the next.
        jitter
            A sample is taken up to so many seconds after its slot, at random, so that the nodes
            of a cluster do not all speak at once.
        tags
            Those of every message, such as ``cluster`` and ``hostname``; a collector's own win.
        intervals
            Those of collectors that differ, by name.
        once
            Whether to end after one batch. The collectors are then read twice, a moment apart, so
            that it has rates too.
        patience
            Seconds that a batch waits for its slowest collectors; None for a fortieth of the
            shortest interval.
        units
            By metric, what its tag ``unit`` says; see ``metrics.units``. Others carry none.
        telemetry
            Where slots that passed without a sample are counted.

        Raises
        ------
        ConfigError
            where an interval is below a millisecond, or the jitter not below every interval.

        """
        own = dict(intervals or {})
        self._turns = []
        for name, collector in collectors.items():
            every = own.get(name, interval)
            self._turns.append(_Turn(CollectorThread(name, collector), _ticks(every, name)))
        _ticks(interval, "")
        shortest = min([interval, *own.values()])
        if not 0 <= jitter < shortest:
            raise ConfigError(f"jitter is {jitter} s: it must be from 0 to below {shortest} s")
        self._intervals = sorted({turn.interval for turn in self._turns}) or [_ticks(interval, "")]
        self._jitter = jitter
        self._tags = tags
        self._once = once
        self._patience = shortest / 40 if patience is None else patience
        self._units = units or {}
        self._telemetry = telemetry or Telemetry()
        self._stopped = asyncio.Event()
        self._soft = SoftErrors()
        self._pending: dict[_Answer, _Turn] = {}
        self._last: dict[int, tuple[int, float]] = {}  # slot and moment, by interval

    def stop(self) -> None:
        """End at once, even between two slots."""
        self._stopped.set()

    async def __aiter__(self) -> AsyncIterator[Batch]:
        try:
            if self._once:
                if batch := await self._single():
                    yield batch
                return
            while (slot := await self._next_slot()) is not None:
                self._count_missed(slot)
                if messages := await self._answers(self._ask(slot), self._patience):
                    yield Batch(messages, origin="sampler")
            if messages := await self._answers([], 0):
                yield Batch(messages, origin="sampler")
        finally:
            for answer in self._pending:
                answer.cancel()
            for turn in self._turns:
                turn.thread.end()

    async def _single(self) -> Batch | None:
        """Take both readings of the only sample; None where it was stopped between them."""
        interval = self._intervals[0]
        await self._answers(self._ask(0, everyone=True), _ONCE_PATIENCE)
        if not await self._pause(min(_FIRST_PAUSE, interval / _SECOND)):
            return None
        slot = time.time_ns() // interval * interval
        messages = await self._answers(self._ask(slot, everyone=True), _ONCE_PATIENCE)
        for turn in self._pending.values():
            log.warning("collector %s takes too long and is left out", turn.thread.name)
        return Batch(messages, origin="sampler")

    async def _next_slot(self) -> int | None:
        """Wait for the next slot of any collector to begin, or for the end, which is None.

        A sleep does not follow the wall clock when that is set or corrected, so the clock has the
        last word: where it does not stand in the slot by now, we wait for another one.
        """
        while True:
            now = time.time_ns()
            slot = self._after(now)
            late = random.uniform(0, self._jitter)  # noqa: S311 - no secret
            if not await self._pause((slot - now) / _SECOND + late):
                return None
            if slot <= time.time_ns() < slot + self._intervals[0]:
                return slot

    def _after(self, now: int) -> int:
        """Return the first slot after `now`."""
        return min((now // interval + 1) * interval for interval in self._intervals)

    async def _pause(self, seconds: float) -> bool:
        """Sleep; return whether to go on."""
        await wait_for_event(self._stopped, seconds)
        return not self._stopped.is_set()

    def _count_missed(self, slot: int) -> None:
        """Count the slots between two samples of each interval.

        Slots that the wall clock jumped over were none: there are not more than time has passed.
        """
        for interval in self._intervals:
            if slot % interval == 0:
                last, moment = self._last.get(interval), time.monotonic()
                self._last[interval] = slot, moment
                if last is not None:
                    passed = math.ceil((moment - last[1]) * _SECOND / interval)
                    if (missed := min((slot - last[0]) // interval, passed) - 1) > 0:
                        self._telemetry.count(self._telemetry.missed, self, missed)
                        log.warning("%d slots passed without a sample", missed)

    def _ask(self, slot: int, *, everyone: bool = False) -> list[_Answer]:
        """Ask the collectors whose slot it is, but for those that are busy or away."""
        now, asked = time.monotonic(), []
        for turn in self._turns:
            if not (everyone or slot % turn.interval == 0):
                continue
            if turn.thread.is_busy:
                self._cut_off(turn)
            elif now >= turn.away_until:
                if turn.is_late:
                    log.info("collector %s answers again", turn.thread.name)
                turn.is_late = False
                asked.append(turn.thread.ask(slot))
                self._pending[asked[-1]] = turn
        return asked

    def _cut_off(self, turn: _Turn) -> None:
        self._telemetry.count(self._telemetry.missed, turn.thread.name)
        for answer in [answer for answer, owner in self._pending.items() if owner is turn]:
            del self._pending[answer]
            answer.cancel()
        if not turn.is_late:
            turn.is_late = True
            log.warning("collector %s still hangs at its next slot: cut off", turn.thread.name)

    async def _answers(self, asked: list[_Answer], seconds: float) -> list[Message]:
        """Wait for what was asked just now, at most so long; return all that was said by then.

        A collector that failed costs its own metrics only.
        """
        if asked:
            await asyncio.wait(asked, timeout=seconds)
        messages: list[Message] = []
        for answer in [answer for answer in self._pending if answer.done()]:
            turn = self._pending.pop(answer)
            error = answer.exception()
            if error is not None:
                self._note(turn, error)
                continue
            if turn.is_away:
                log.info("collector %s is on again", turn.thread.name)
            turn.is_away, turn.has_told = False, True
            messages += [self._tagged(message) for message in answer.result()]
        return messages

    def _note(self, turn: _Turn, error: BaseException) -> None:
        name = turn.thread.name
        absent = isinstance(error, OSError) and error.errno in _ABSENT
        if absent or isinstance(error, MissingExtra):
            turn.away_until = time.monotonic() + _AWAY
            if not turn.is_away:
                turn.is_away = True
                # That a node has no such hardware is no reason to worry; the rest can be mended.
                usual = isinstance(error, OSError) and not isinstance(error, PermissionError)
                level = logging.INFO if usual and not turn.has_told else logging.WARNING
                log.log(level, "collector %s is off: %s", name, error)
        else:
            expected = isinstance(error, CcpipeError | OSError)
            text = f"collector {name}: {type(error).__name__}: {error}"
            self._soft.note(text, None if expected else error)

    def _tagged(self, message: Message) -> Message:
        tags = {**self._tags, **message.tags}
        if unit := self._units.get(message.name):
            tags.setdefault("unit", unit)
        return msgspec.structs.replace(message, tags=tags)


def _ticks(interval: float, name: str) -> int:
    """Return an interval in nanoseconds; raises ConfigError."""
    if not _LEAST <= interval < math.inf:
        of = f" of collector {name}" if name else ""
        raise ConfigError(f"interval{of} is {interval} s: it must be at least {_LEAST} s")
    return round(interval * _SECOND)
