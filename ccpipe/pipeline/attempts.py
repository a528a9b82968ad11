"""Retries of writes, each attempt bounded in time."""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ccpipe.errors import TimedOutError, UnavailableError
from ccpipe.pipeline.blocking import wait_for_event
from ccpipe.pipeline.interfaces import Sink
from ccpipe.pipeline.limits import Limits
from ccpipe.pipeline.queue import now
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

A_contra = TypeVar("A_contra", bound=Records, contravariant=True)

FIRST_SECONDS = 0.1
"""Maximum pause after the first failure; it doubles with each further one."""
LAST_SECONDS = 2.0
"""Minimum time for a write that starts when the grace period is nearly or entirely over."""
REPEAT_SECONDS = 60.0
"""Interval at which the same failure reason is logged again."""
MAX_SECONDS = 240.0
"""Maximum that a limit grows to, unless it is configured larger."""
SPARE = 4
"""A raised limit is this many times what the latest write took."""
ROOM = 3
"""Writes may grow if the limit is at least this many times what the latest one took."""


class TimedSink(Sink[A_contra]):
    """A sink whose store must give up too: it might store later what is sent again."""

    time_limit: float
    """Seconds after which a write raises TimedOutError.

    ``run()`` raises it while even small writes take longer, and resets it at the end.
    """


class TimeLimit:
    """The limit that ``run()`` sets, and the sink's own limit if it has one.

    A write that times out may be stored all the same, and is stored once more when it is repeated.
    Smaller writes alone do not help if the store needs its time for each: from the second timeout
    in a row on, both limits double with each.
    """

    def __init__(self, limits: Limits, sink: Sink[Records]) -> None:
        """Start with the configured limits."""
        self.seconds = limits.timeout
        """The current limit set by ``run()``; 0 for none."""
        self._sink = sink if isinstance(sink, TimedSink) else None
        self._configured = limits.timeout, self._sink.time_limit if self._sink else 0.0
        self._effective = min(filter(None, self._configured), default=0.0)
        self._largest = max(1.0, MAX_SECONDS / self._effective) if self._effective else 1.0
        self._factor = 1.0
        self._timeouts = 0  # in a row

    @property
    def is_largest(self) -> bool:
        """Whether it has grown as far as it can."""
        return self._factor >= self._largest

    def exceeded(self, error: TimedOutError) -> None:
        """Note a timeout."""
        self._timeouts += 1
        if self._timeouts > 1 and self._factor < self._largest:
            self._set(2 * self._factor)
            key = "sink.timeout" if self._sink else "batch.timeout"
            seconds = self._effective * self._factor
            log.warning("%s; the time limit is now %g s: raise %s", error, seconds, key)

    def kept(self, seconds: float) -> bool:
        """Note a write that succeeded after `seconds`; return whether writes may be larger."""
        self._timeouts = 0
        if self._factor > 1:
            self._set(SPARE * seconds / self._effective)
        return not self._effective or ROOM * seconds <= self._effective * self._factor

    def _set(self, factor: float) -> None:
        self._factor = max(1.0, min(factor, self._largest))
        configured, own = self._configured
        self.seconds = configured * self._factor
        if self._sink:
            self._sink.time_limit = own * self._factor

    def reset(self) -> None:
        """Return to the configured limits."""
        self._set(1.0)


class Attempts:
    """Retries operations while a part is unavailable; after shutdown, for the grace period only."""

    def __init__(self, limits: Limits, telemetry: Telemetry) -> None:
        """Use the pauses, the timeout and the grace period of `limits`."""
        self.limits = limits
        self.telemetry = telemetry
        self.ending = asyncio.Event()
        self._grace_end = math.inf
        self._current: asyncio.Timeout | None = None
        self._reported = "", -math.inf

    @property
    def is_over(self) -> bool:
        """Whether the grace period is over, so that nothing is retried."""
        return now() >= self._grace_end

    def begin_shutdown(self) -> None:
        """Start the grace period; a write that takes longer is abandoned."""
        self.ending.set()
        self._grace_end = now() + self.limits.grace
        if self._current is not None:
            when = self._current.when()
            self._current.reschedule(min(math.inf if when is None else when, self._last_moment()))

    async def retry(
        self,
        attempt: Callable[[], Awaitable[None]],
        part: object,
        *,
        limit: TimeLimit | None = None,
    ) -> None:
        """Retry until it succeeds.

        Raises
        ------
        TimedOutError
            immediately if there is a `limit`, to which the caller reports it.
        UnavailableError
            if the grace period is over.

        """
        pause = min(FIRST_SECONDS, self.limits.backoff)
        while True:
            try:
                await self.bounded(attempt, limit.seconds if limit else self.limits.timeout)
            except UnavailableError as error:
                if self.is_over or (limit and isinstance(error, TimedOutError)):
                    raise
                self.telemetry.failed(part)
                self._report(str(error))
            else:
                return
            await self.pause(random.uniform(0, pause))  # noqa: S311 - no secret
            pause = min(2 * pause, self.limits.backoff)

    def _report(self, reason: str) -> None:
        """Log why a write failed; the same reason at most once a minute."""
        before, at = self._reported
        if reason != before or now() - at >= REPEAT_SECONDS:
            self._reported = reason, now()
            log.warning("%s; retrying", reason)

    async def bounded(
        self, attempt: Callable[[], Awaitable[None]], seconds: float, last: float = LAST_SECONDS
    ) -> None:
        """Try once for `seconds`, 0 being no limit; at least `last` after the grace period.

        Raises
        ------
        TimedOutError
            if it takes longer.

        """
        limit = asyncio.timeout_at(self._deadline(seconds, last))
        try:
            async with limit:
                self._current = limit if seconds else None
                await attempt()
        except TimeoutError:
            if not limit.expired():
                raise  # not our timeout
            raise TimedOutError("the write timed out") from None
        finally:
            self._current = None

    def _deadline(self, seconds: float, last: float) -> float | None:
        return min(now() + seconds, self._last_moment(last)) if seconds else None

    def _last_moment(self, last: float = LAST_SECONDS) -> float:
        return max(self._grace_end, now() + last)

    async def pause(self, seconds: float) -> None:
        """Sleep, but only briefly once shutdown has begun."""
        if self.ending.is_set():
            await asyncio.sleep(min(seconds, 0.1))
        else:
            await wait_for_event(self.ending, seconds)
