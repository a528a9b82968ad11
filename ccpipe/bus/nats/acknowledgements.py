"""The broker's answers to what was published into streams, handed to whoever waits for them.

One subscription of a connection hears all of them. The client's own way makes a future, a timer
and a dictionary of JSON for each message, which costs more than to encode 500 lines.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.protocol.reader import Receive


class Answer(msgspec.Struct):
    """The broker's answer to one message."""

    stream: str = ""
    """That has stored it; empty if none has."""
    error: dict[str, Any] | None = None
    """Why the stream refused it: an error of JetStream's API."""


NO_STREAM = Answer()
"""Nobody listens on the subject, and no stream does."""

_decode = msgspec.json.Decoder(Answer).decode


class Waiting(ABC):
    """Somebody who waits for answers."""

    @abstractmethod
    def answered(self, reply: str, answer: Answer) -> None:
        """Learn what became of the message with this reply subject."""

    @abstractmethod
    def proceed(self) -> None:
        """Go on, after the answers that came together."""

    @abstractmethod
    def lost(self) -> None:
        """Learn that the connection was lost: no answer comes any more."""


class Acknowledgements:
    """The answers that one connection waits for."""

    def __init__(
        self,
        new_inbox: Callable[[], str],
        subscribe: Callable[[str, Receive], Awaitable[None]],
    ) -> None:
        """Prepare; the subscription is made with the first message."""
        self._new_inbox = new_inbox
        self._subscribe = subscribe
        self._inbox = ""
        self._numbers = itertools.count()
        self._waiting: dict[str, Waiting] = {}  # by the reply subject

    async def open(self) -> None:
        """Subscribe, once; raises UnavailableError if there is no connection just now."""
        if not self._inbox:
            self._inbox = self._new_inbox()
            await self._subscribe(f"{self._inbox}.*", self._receive)

    def expect(self, waiting: Waiting) -> str:
        """Return a reply subject whose answer `waiting` gets."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        self._waiting[reply] = waiting
        return reply

    def forget(self, replies: Iterable[str]) -> None:
        """Drop answers that nobody waits for any more."""
        for reply in replies:
            self._waiting.pop(reply, None)

    def lost(self) -> None:
        """Tell everybody that the connection was lost."""
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
    """Return the broker's answer; None for what a subscriber says who is no stream."""
    if delivery.status[0] == "503":
        return NO_STREAM
    try:
        answer = _decode(delivery.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return answer if answer.stream or answer.error else None
