"""The time limit of a write, which grows while the store takes longer even for small writes."""

import logging

from ccpipe.errors import TimedOutError
from ccpipe.pipeline.interfaces import Limits, Sink

log = logging.getLogger(__name__)

MAX_SECONDS = 240.0
"""Maximum that a limit grows to, unless it is configured larger."""
SPARE = 4
"""A raised limit is this many times what the latest write took."""
ROOM = 3
"""Writes may grow if the limit is at least this many times what the latest one took."""


class TimeLimit:
    """The limit that ``run()`` sets, and the sink's own limit if it has one.

    A write that times out may be stored all the same, and is stored once more when it is repeated.
    Smaller writes alone do not help if the store needs its time for each: from the second timeout
    in a row on, both limits double with each.
    """

    def __init__(self, limits: Limits, sink: Sink) -> None:
        """Start with the configured limits."""
        self.seconds = limits.timeout
        """The current limit set by ``run()``; 0 for none."""
        self._sink = sink
        self._configured = limits.timeout, sink.time_limit
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
            key = "sink.timeout" if self._sink.time_limit else "batch.timeout"
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
        self._sink.time_limit = own * self._factor
