"""The state of clusters: nodes, jobs, the latest events, and the health of the pipe.

It is independent of broker and screen. Its memory is bounded.
"""

import contextlib
from collections import deque

import msgspec

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.streams.jetstream import Consumer, Stream
from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.live.jobs import LiveJobs
from ccpipe.live.node import LineCounter, read_node_reasons, read_node_states
from ccpipe.live.nodes import LiveNodes
from ccpipe.live.totals import Totals
from ccpipe.message import Kind, Message

MAX_RATES = 300
WINDOW = 10
"""Calls of ``tick`` over which rates are averaged: publishers send at the same time."""
MAX_DEAD = 100
MAX_REASONS = 50
"""Maximum number of distinct reasons; others are counted together."""
MAX_EXCERPT = 400
MAX_ENTRIES = 1000
MAX_TEXTS = 2000
"""Maximum number of texts per decoding round; a flood of log messages loses the rest."""
MAX_TEXT = 2000
MAX_NAME = 255
MAX_ERRORS = 200
MAX_CLUSTERS = 1000
"""Maximum number of clusters; further ones are counted together."""
OTHERS = "(others)"

SEVERE = frozenset({"err", "error", "crit", "alert", "emerg"})


class Entry(msgspec.Struct):
    """One event or log message."""

    number: int
    """Counts from 1: a page requests the entries after its last one."""
    time: float
    kind: str
    cluster: str
    hostname: str
    name: str
    """Class of the event or component of the log."""
    label: str
    """Function of the event or level of the log."""
    text: str
    user: str = ""
    """Owner of the jobs that the event is about; empty if that is unknown."""


class Journal:
    """The latest events and log messages; bounded."""

    def __init__(self, maximum: int = MAX_ENTRIES) -> None:
        self.entries: deque[Entry] = deque(maxlen=maximum)
        self.count = 0

    def feed(self, message: Message, now: float, *, user: str = "") -> None:
        """Store an event, of a user's job, or a log message; other kinds are ignored."""
        if message.kind not in (Kind.EVENT, Kind.LOG):
            return
        tags = message.tags
        label = tags.get("function" if message.kind is Kind.EVENT else "loglevel", "")
        self.count += 1
        self.entries.append(
            Entry(
                number=self.count,
                time=now if message.time is None else message.time / 1e9,
                kind=str(message.kind),
                cluster=tags.get("cluster", "")[:MAX_NAME],
                hostname=message.hostname[:MAX_NAME],
                name=message.name[:MAX_NAME],
                label=(label or tags.get("level", ""))[:MAX_NAME],
                text=str(message.value)[:MAX_TEXT],
                user=user,
            )
        )

    def after(self, number: int, maximum: int = MAX_ENTRIES) -> list[Entry]:
        """Return the latest entries whose number is greater, oldest first."""
        fresh = min(self.count - number, maximum, len(self.entries))
        return list(self.entries)[-fresh:] if fresh > 0 else []


class DeadLetterRow(msgspec.Struct):
    """A dead letter and its reason."""

    number: int
    time: float
    subject: str
    reason: str
    origin: str
    text: str


class Health:
    """Rates of the bus, dead letters, streams, and how far bridges lag; all are bounded."""

    def __init__(self) -> None:
        self.payloads = self.bytes = self.lines = self.rejected = self.dropped = 0
        self.rates: deque[tuple[float, ...]] = deque(maxlen=MAX_RATES)
        """Time; payloads, lines and bytes per second."""
        self.dead: deque[DeadLetterRow] = deque(maxlen=MAX_DEAD)
        self.dead_count = 0
        self.reasons: dict[str, int] = {}
        self.streams: list[Stream] = []
        self.consumers: list[Consumer] = []
        """The durable ones: bridges."""
        self.problem = ""
        """Why streams and consumers are unknown."""
        self._counts: deque[tuple[float, tuple[int, int, int]]] = deque(maxlen=WINDOW + 1)
        self._ids: deque[str] = deque(maxlen=MAX_DEAD)

    def tick(self, now: float) -> None:
        """Compute the mean rates over up to WINDOW calls."""
        if self._counts and now <= self._counts[-1][0]:
            return
        counts = self.payloads, self.lines, self.bytes
        self._counts.append((now, counts))
        then, before = self._counts[0]
        if now > then:
            rates = [(new - old) / (now - then) for new, old in zip(counts, before, strict=True)]
            self.rates.append((now, *rates))

    @property
    def lines_per_second(self) -> float:
        return self.rates[-1][2] if self.rates else 0.0

    def feed_dead(self, delivery: Delivery, now: float) -> DeadLetterRow | None:
        """Store a dead letter; a republished one, with the same message id, is ignored."""
        id_ = delivery.headers.get("Nats-Msg-Id", "")[:MAX_EXCERPT]
        if id_ in self._ids:
            return None
        if id_:
            self._ids.append(id_)
        reason = delivery.headers.get("Ccpipe-Reason", "")[:MAX_EXCERPT]
        self.dead_count += 1
        shown = reason if reason in self.reasons or len(self.reasons) < MAX_REASONS else "others"
        self.reasons[shown] = self.reasons.get(shown, 0) + 1
        row = DeadLetterRow(
            number=self.dead_count,
            time=now,
            subject=delivery.subject[:MAX_EXCERPT],
            reason=reason,
            origin=delivery.headers.get("Ccpipe-Origin", "")[:MAX_EXCERPT],
            text=delivery.payload[:MAX_EXCERPT].decode(errors="backslashreplace"),
        )
        self.dead.append(row)
        return row


class ClusterStats(LineCounter):
    """Counters of one cluster."""

    __slots__ = ("bytes", "dead", "errors", "name")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.bytes = self.dead = self.errors = 0


class LiveState:
    """The current state of all clusters."""

    def __init__(self, nodes: LiveNodes | None = None, jobs: LiveJobs | None = None) -> None:
        self.nodes = LiveNodes() if nodes is None else nodes
        self.jobs = LiveJobs() if jobs is None else jobs
        self.journal = Journal()
        self.health = Health()
        self.clusters: dict[str, ClusterStats] = {}
        self.totals = Totals()
        self.errors: deque[tuple[float, str, str]] = deque(maxlen=MAX_ERRORS)
        """Time, origin and text of dead letters and of errors in logs."""

    def feed(
        self, lines: Lines, now: float, *, payloads: int = 1, max_texts: int = MAX_TEXTS
    ) -> int:
        """Process the lines of some payloads that arrived at `now`.

        Returns the number of events and log messages; those beyond `max_texts` are dropped.
        """
        health = self.health
        health.payloads += payloads
        health.bytes += len(lines.payload)
        health.lines += len(lines)
        health.rejected += len(lines.rejected)
        of_cluster = self.nodes.feed(lines, now)
        for name, count in of_cluster.items():
            cluster = self._cluster(name)
            cluster.lines += count
            # payloads that were decoded together may be of several clusters
            cluster.bytes += len(lines.payload) * count // of_cluster.total()
        return self.feed_texts(lines, now, maximum=max_texts)

    def feed_texts(self, lines: Lines, now: float, *, maximum: int = MAX_TEXTS) -> int:
        """Process events and log messages only, up to a maximum; return how many there were."""
        if ValueType.TEXT not in lines.types:
            return 0
        rows = [row for row, kind in enumerate(lines.types) if kind == ValueType.TEXT]
        self.health.dropped += max(0, len(rows) - maximum)
        for row in rows[: max(0, maximum)]:
            message = lines[row]
            self.journal.feed(message, now, user=self.jobs.feed(message, now))
            if message.kind is Kind.EVENT:
                self._feed_scheduler(message, now)
            if message.kind is Kind.LOG and message.tags.get("loglevel", "").lower() in SEVERE:
                self._cluster(message.tags.get("cluster", "")).errors += 1
                origin = f"{message.hostname[:MAX_NAME]} {message.name[:MAX_NAME]}".strip()
                self.errors.append((now, origin, str(message.value)[:MAX_TEXT]))
        return len(rows)

    def _feed_scheduler(self, message: Message, now: float) -> None:
        """Process an event about the states of nodes; others are ignored, and malformed ones."""
        text, cluster = str(message.value), message.tags.get("cluster", "")
        with contextlib.suppress(DataError):
            if message.name == "nodestate":
                for id_, states in read_node_states(text, cluster):
                    self.nodes.report(id_, states, now)
            elif message.name == "nodereason":
                for id_, reason in read_node_reasons(text, cluster):
                    self.nodes.explain(id_, reason)

    def feed_dead(self, delivery: Delivery, now: float) -> None:
        row = self.health.feed_dead(delivery, now)
        if row is not None:
            self._cluster(delivery.subject.partition(".")[0]).dead += 1
            origin = f"dead letter from {row.origin or '?'}"
            self.errors.append((now, origin, row.reason or "no reason given"))

    def forget(self, now: float) -> None:
        """Drop what is old, and end jobs whose stop was lost; call it periodically."""
        self.nodes.forget()
        self.jobs.end_lost(now)

    def _cluster(self, name: str) -> ClusterStats:
        if name not in self.clusters and len(self.clusters) >= MAX_CLUSTERS:
            name = OTHERS
        if name not in self.clusters:
            self.clusters[name] = ClusterStats(name)
        return self.clusters[name]

    def tick(self, now: float) -> None:
        """Compute rates, and what nodes have as a whole; call it once a second."""
        self.nodes.tick(now)
        self.jobs.expire(now)
        self.totals.tick(self.nodes, self.jobs, now)
        self.health.tick(now)
        for cluster in self.clusters.values():
            cluster.tick(now)
