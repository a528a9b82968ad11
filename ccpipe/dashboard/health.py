"""Health of the pipe: rates, bad lines, dead letters, streams and consumer lag."""

from collections import deque

import msgspec

from ccpipe.bus.nats.connection import Delivery

MAX_RATES = 300
WINDOW = 10
"""Calls of ``tick`` over which rates are averaged: publishers send at the same time."""
MAX_DEAD = 100
"""Maximum number of dead letters shown."""
MAX_REASONS = 50
"""Maximum number of distinct reasons; others are counted together."""
MAX_EXCERPT = 400


class DeadLetterRow(msgspec.Struct):
    """A dead letter as shown on the page."""

    number: int
    time: float
    subject: str
    reason: str
    origin: str
    text: str
    """The beginning of the original."""


class ConsumerHealth(msgspec.Struct):
    """A durable consumer of a stream: a bridge."""

    stream: str
    name: str
    waiting: int
    """Lag: messages stored in the stream and not yet delivered."""
    unacknowledged: int
    redelivered: int


class StreamHealth(msgspec.Struct):
    """A stream of the broker."""

    name: str
    messages: int
    bytes: int
    subjects: list[str]


class Health:
    """Counters of messages on the bus; all are bounded."""

    def __init__(self) -> None:
        """Start counting."""
        self.payloads = self.bytes = self.lines = self.rejected = self.dropped = 0
        self.rates: deque[tuple[float, float, float, float]] = deque(maxlen=MAX_RATES)
        """Time; payloads, lines and bytes per second."""
        self.dead: deque[DeadLetterRow] = deque(maxlen=MAX_DEAD)
        self.dead_count = 0
        self.reasons: dict[str, int] = {}
        self.streams: list[StreamHealth] = []
        self.consumers: list[ConsumerHealth] = []
        self.problem = ""
        """Why streams and consumers are unknown."""
        self._counts: deque[tuple[float, int, int, int]] = deque(maxlen=WINDOW + 1)
        self._ids: deque[str] = deque(maxlen=MAX_DEAD)

    def tick(self, now: float) -> None:
        """Compute the mean rates over up to WINDOW calls."""
        if self._counts and now <= self._counts[-1][0]:
            return
        self._counts.append((now, self.payloads, self.lines, self.bytes))
        then, payloads, lines, size = self._counts[0]
        if now > then:
            seconds = now - then
            self.rates.append(
                (
                    now,
                    (self.payloads - payloads) / seconds,
                    (self.lines - lines) / seconds,
                    (self.bytes - size) / seconds,
                )
            )

    @property
    def lines_per_second(self) -> float:
        """The newest rate."""
        return self.rates[-1][2] if self.rates else 0.0

    def feed_dead(self, delivery: Delivery, now: float) -> None:
        """Store a dead letter; a republished one has the same message id again."""
        id_ = delivery.headers.get("Nats-Msg-Id", "")[:MAX_EXCERPT]
        if id_ in self._ids:
            return
        if id_:
            self._ids.append(id_)
        reason = delivery.headers.get("Ccpipe-Reason", "")[:MAX_EXCERPT]
        self.dead_count += 1
        shown = reason if reason in self.reasons or len(self.reasons) < MAX_REASONS else "others"
        self.reasons[shown] = self.reasons.get(shown, 0) + 1
        self.dead.append(
            DeadLetterRow(
                number=self.dead_count,
                time=now,
                subject=delivery.subject[:MAX_EXCERPT],
                reason=reason,
                origin=delivery.headers.get("Ccpipe-Origin", "")[:MAX_EXCERPT],
                text=delivery.payload[:MAX_EXCERPT].decode(errors="backslashreplace"),
            )
        )
