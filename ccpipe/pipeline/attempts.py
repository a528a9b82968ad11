"""Retries of writes, each attempt bounded in time."""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable

from ccpipe.errors import TimedOutError, UnavailableError
from ccpipe.pipeline.blocking import wait_for_event
from ccpipe.pipeline.limits import Limits
from ccpipe.pipeline.queue import now
from ccpipe.pipeline.time_limit import TimeLimit
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

FIRST_SECONDS = 0.1
"""Maximum pause after the first failure; it doubles with each further one."""
LAST_SECONDS = 2.0
"""Minimum time for a write that starts when the grace period is nearly or entirely over."""
REPEAT_SECONDS = 60.0
"""Interval at which the same failure reason is logged again."""


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
