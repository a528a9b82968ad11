"""Why ``tail`` shows nothing: a hint on stderr, once for each idle period."""

import time
from collections.abc import Sequence

from ccpipe.bus.nats.connection import Connection
from ccpipe.formats.lineprotocol import Lines
from ccpipe.terminal import listed, note, plural, printable

MAX_SEEN = 1000


class IdleHint:
    """Detects that nothing is shown and explains why."""

    DELAY = {  # noqa: RUF012 - read, never changed
        "unconnected": 2.0,
        "no messages": 5.0,
        "no matches": 5.0,
        "paused": 60.0,
    }

    def __init__(self, bus: Connection, patterns: Sequence[str]) -> None:
        self.bus = bus
        self.patterns = patterns
        self.was_connected = False
        self.received = self.matched = 0
        self._seen: dict[str, dict[str, None]] = {"cluster": {}, "node": {}, "name": {}}
        self._kind = ""
        self._since = self._last_received = time.monotonic()
        self._reported = False

    def record(self, lines: Lines, matched: Lines) -> None:
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
        self.was_connected = True
        self.received += count
        self.matched += matched
        self._last_received = time.monotonic()

    def report(self) -> None:
        kind, now = self._state(), time.monotonic()
        if kind != self._kind:
            if self._kind == "unconnected" and self._reported:
                note(f"connected to {self.bus.url}")
            self._kind, self._since, self._reported = kind, now, False
        start = self._last_received if kind == "paused" else self._since
        if kind and not self._reported and now - start >= self.DELAY[kind]:
            self._reported = True
            note(self._explanation(kind), "yellow")

    def _state(self) -> str:
        if not self.bus.is_connected:
            return "unconnected"
        self.was_connected = True
        if not self.received:
            return "no messages"
        return "paused" if self.matched else "no matches"

    def _explanation(self, kind: str) -> str:
        seen = "; ".join(f"{what}s {printable(listed(of))}" for what, of in self._seen.items())
        return {
            "unconnected": f"not connected to {self.bus.url}, trying again: does a server run"
            " there? `ccpipe up` starts one; --server or `servers` in [bus] names another",
            "no messages": f"connected to {self.bus.url}, but no messages have arrived on"
            f" {', '.join(self.patterns)}: does a publisher run (`ccpipe publish`, or"
            " `ccpipe up`)? By default it sends every 10 s",
            "no matches": f"{plural(self.received, 'line')} received, none matches; seen: {seen}",
            "paused": f"no messages for {self.DELAY['paused']:.0f} s",
        }[kind]
