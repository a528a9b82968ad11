"""The broker's replies to messages published into streams, dispatched to their senders.

One subscription per connection receives all replies. nats-py's own way creates a future, a timer
and a JSON dictionary for each message, which costs more than encoding 500 lines.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from ccpipe.bus.nats.protocol.frames import Delivery, Receive


class Answer(msgspec.Struct):
    """The broker's reply to one message."""

    stream: str = ""
    """Name of the stream that stored it; empty if none has."""
    error: dict[str, Any] | None = None
    """Why the stream rejected it: an error of JetStream's API."""


NO_STREAM = Answer()
"""The subject has no subscriber, and no stream stores it."""

_decode = msgspec.json.Decoder(Answer).decode


class Waiting(ABC):
    """A sender that waits for replies."""

    @abstractmethod
    def answered(self, reply: str, answer: Answer) -> None:
        """Called with the reply to the message with this reply subject."""

    @abstractmethod
    def proceed(self) -> None:
        """Called after a group of replies that arrived together."""

    @abstractmethod
    def lost(self) -> None:
        """Called when the connection is lost: no reply will arrive."""


class Acknowledgements:
    """The replies that one connection waits for."""

    def __init__(
        self, new_inbox: Callable[[], str], subscribe: Callable[[str, Receive], Awaitable[None]]
    ) -> None:
        self._new_inbox = new_inbox
        self._subscribe = subscribe
        self._inbox = ""
        self._numbers = itertools.count()
        self._waiting: dict[str, Waiting] = {}  # by reply subject

    async def open(self) -> None:
        """Subscribe, once; raises UnavailableError if not connected."""
        if not self._inbox:
            self._inbox = self._new_inbox()
            await self._subscribe(f"{self._inbox}.*", self._receive)

    def expect(self, waiting: Waiting) -> str:
        """Return a reply subject whose reply is dispatched to `waiting`."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        self._waiting[reply] = waiting
        return reply

    def forget(self, replies: Iterable[str]) -> None:
        for reply in replies:
            self._waiting.pop(reply, None)

    def lost(self) -> None:
        waiting = set(self._waiting.values())
        self._waiting.clear()
        for each in waiting:
            each.lost()

    def _receive(self, deliveries: Sequence[Delivery]) -> None:
        woken: set[Waiting] = set()
        for delivery in deliveries:
            waiting = self._waiting.get(delivery.subject)
            if waiting is not None and (answer := _read(delivery)) is not None:
                del self._waiting[delivery.subject]
                waiting.answered(delivery.subject, answer)
                woken.add(waiting)
        for each in woken:
            each.proceed()


def _read(delivery: Delivery) -> Answer | None:
    """Return the broker's reply; None for a reply of a plain subscriber."""
    if delivery.status[0] == "503":
        return NO_STREAM
    try:
        answer = _decode(delivery.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return answer if answer.stream or answer.error else None
