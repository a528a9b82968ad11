"""Messages that a broker delivers again although this process has them.

A killed nats-server starts again from the consumer's position on its disk, which it writes at most
ten times a second. It delivers what follows once more, and ignores acknowledgements of messages
that it has not yet delivered again (``ackMsg`` in nats-server's ``consumer.go``). It also does so
when a process that was suspended, or too busy, has not extended ``ack_wait`` in time.
"""

from collections.abc import Callable, Iterable

from ccpipe.bus.nats.protocol.frames import Delivery, any_redelivered, stored_as

Stored = tuple[int, int]
"""The number of a message in its stream, and when it was stored, in nanoseconds."""


class Redelivery:
    """Recognizes messages that were received before, also on an earlier connection."""

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        """Start without any; `known` returns the reply subjects of those that it looks for."""
        self._known = known
        self._received: set[Stored] = set()
        self._last = 0

    def expect(self, replies: Iterable[str]) -> None:
        """Recognize the messages with these reply subjects from now on."""
        self._received |= {stored for reply in replies if (stored := stored_as(reply))}
        self._last = max((number for number, _ in self._received), default=0)

    def clear(self) -> None:
        """Recognize none: the consumer is another one, which has other messages."""
        self._received.clear()

    def split(self, deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Return the messages that are new, and those that were received before.

        The first message behind all expected ones ends the expectation: the broker delivers in the
        order of the stream.
        """
        again = any_redelivered(deliveries)
        if not (self._received or again):
            return deliveries, []
        known = set(map(stored_as, self._known())) if again else set()
        new: list[Delivery] = []
        repeated: list[Delivery] = []
        for delivery in deliveries:
            stored = stored_as(delivery.reply)
            (repeated if stored in self._received or stored in known else new).append(delivery)
            if stored and stored[0] > self._last:
                self._received.clear()
        return new, repeated
