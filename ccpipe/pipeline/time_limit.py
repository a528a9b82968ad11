"""The time limit of a write, which grows while the store takes longer even for small writes."""

import logging
from typing import Any, TypeVar

from ccpipe.errors import TimedOutError
from ccpipe.pipeline.interfaces import Sink
from ccpipe.pipeline.limits import Limits
from ccpipe.records import Records

log = logging.getLogger(__name__)

A_contra = TypeVar("A_contra", bound=Records, contravariant=True)

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

    def __init__(self, limits: Limits, sink: Sink[Any]) -> None:
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
