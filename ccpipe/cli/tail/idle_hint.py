"""Why ``tail`` shows nothing: said on stderr, once for each silence."""

import time
from collections.abc import Sequence

from ccpipe.bus.nats.connection import Connection
from ccpipe.formats.lineprotocol import Lines
from ccpipe.terminal import listed, note, plural, printable

MAX_SEEN = 1000
"""Nodes, clusters or names remembered, to say what there is instead."""


class IdleHint:
    """Watches for silence and explains it."""

    DELAY = {  # noqa: RUF012 - read, never changed
        "unconnected": 2.0,
        "unheard": 5.0,
        "unmatched": 5.0,
        "paused": 60.0,
    }
    """Seconds that each kind of silence lasts before it is explained."""

    def __init__(self, bus: Connection, patterns: Sequence[str]) -> None:
        """Watch a connection that listens to some subjects."""
        self.bus = bus
        self.patterns = patterns
        self.was_connected = False
        self.received = self.matched = 0
        self._seen: dict[str, dict[str, None]] = {"cluster": {}, "node": {}, "name": {}}
        self._kind = ""
        self._since = self._last_heard = time.monotonic()
        self._reported = False

    def record(self, lines: Lines, matched: Lines) -> None:
        """Note what one payload brought, and what of it the filters let through."""
        self.record_lines(len(lines), len(matched))
        if self.matched:
            return
        for code in dict.fromkeys(lines.series):
            name, tags, _ = lines.table.series[code]
            labels = (tags.get("cluster", "-"), tags.get("hostname", "-"), name)
            for seen, label in zip(self._seen.values(), labels, strict=True):
                if len(seen) < MAX_SEEN:
                    seen[label] = None

    def record_lines(self, count: int, matched: int) -> None:
        """Note so many lines, without looking at them."""
        self.was_connected = True
        self.received += count
        self.matched += matched
        self._last_heard = time.monotonic()

    def report(self) -> None:
        """Explain a silence that has lasted; to be called again and again."""
        kind, now = self._silence(), time.monotonic()
        if kind != self._kind:
            if self._kind == "unconnected" and self._reported:
                note(f"connected to {self.bus.url}")
            self._kind, self._since, self._reported = kind, now, False
        start = self._last_heard if kind == "paused" else self._since
        if kind and not self._reported and now - start >= self.DELAY[kind]:
            self._reported = True
            note(self._explanation(kind), "yellow")

    def _silence(self) -> str:
        if not self.bus.is_connected:
            return "unconnected"
        self.was_connected = True
        if not self.received:
            return "unheard"
        return "paused" if self.matched else "unmatched"

    def _explanation(self, kind: str) -> str:
        match kind:
            case "unconnected":
                return (
                    f"not connected to {self.bus.url}, trying again: does a server run there?"
                    " `ccpipe up` starts one; --server or `servers` in [bus] names another"
                )
            case "unheard":
                return (
                    f"connected to {self.bus.url}, but nothing has come yet on"
                    f" {', '.join(self.patterns)}: does a publisher run (`ccpipe publish`, or"
                    " `ccpipe up` for all)? It speaks every 10 s unless told otherwise"
                )
            case "unmatched":
                seen = "; ".join(
                    f"{what}s {printable(listed(labels))}" for what, labels in self._seen.items()
                )
                return f"{plural(self.received, 'line')} came and none matches; seen were {seen}"
            case _:
                return f"nothing new for {self.DELAY['paused']:.0f} s"
