"""Messages that were made and are not known to be safe downstream.

With a ``StateStore`` that has a file they survive a crash in three steps:

1. What a feed made is written, with the state that it came of, in one transaction before the
   feed returns.
2. When the pipe reports that it was written downstream, it is removed, durably.
3. Only then is the batch acknowledged upstream.

After a crash what was not removed is returned again, byte for byte, with the first feed, or held
back again. So nothing is lost; what is sent twice was written before 2., and a broker recognises
it by its message id.
"""

import time
from collections.abc import Callable, Iterable

from ccpipe.message import Message
from ccpipe.pipeline.state import StateStore

RECALL_DELAY = 2 * 10**9
"""Minimum time in nanoseconds for which a message restored after a crash is held back."""

Held = tuple[Message, int]
"""A message, and the time in nanoseconds since the epoch until which it is held back, or 0."""


class Outbox:
    """Output of a translator, feed by feed; feeds are numbered from 1 in each process."""

    def __init__(self, state: StateStore, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.feed = 0
        self.clock = clock
        self._state = state
        self._made = state.table("made", int, list[Held], maximum=2**63)
        self._committed = state.table("committed", int, int, maximum=1)
        self._held: list[tuple[int, int, Message]] = []  # time, feed, message
        self._is_open = False

    @property
    def oldest_held(self) -> int | None:
        return min((feed for _, feed, _ in self._held), default=None)

    def put(self, messages: Iterable[Held]) -> list[Message]:
        """End a feed with its output; return what is to be sent now, the oldest first.

        Raises ConfigError or UnavailableError if the state cannot be read or written.
        """
        now = self.clock()
        made = [*self._recall(now), *messages]
        self.feed += 1
        send = self._release(now)
        for message, not_before in made:
            if not_before > now:
                self._held.append((not_before, self.feed, message))
            else:
                send.append(message)
        if made and self._state.is_persistent:
            self._made.put(self.feed, made)
        self._state.commit(is_durable=False)
        return send

    def flush(self) -> list[Message]:
        return self._release(2**63)

    def commit(self, feed: int) -> None:
        """Remove the output up to a feed: it is stored downstream.

        Raises UnavailableError if that cannot be written.
        """
        for number in [number for number in self._made if number <= feed]:
            self._made.pop(number)
        self._committed.put(0, feed)  # a change, so that the feed's state becomes durable
        self._state.commit(is_durable=True)

    def _release(self, now: int) -> list[Message]:
        """Take out messages that need no longer be held back, in order."""
        due = [message for not_before, _, message in self._held if not_before <= now]
        if due:
            self._held = [held for held in self._held if held[0] > now]
        return due

    def _recall(self, now: int) -> list[Held]:
        """Take out, once, what the previous process did not commit."""
        if self._is_open:
            return []
        self._is_open = True
        left = [
            (message, max(not_before, now + RECALL_DELAY) if not_before else 0)
            for _, made in self._made.items()
            for message, not_before in made
        ]
        for number in list(self._made):
            self._made.pop(number)
        return left
