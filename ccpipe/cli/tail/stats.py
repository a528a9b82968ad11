"""Statistics of ``tail``: lines by subject, kind, name and cluster, with rates."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ccpipe.cli.console.output import table
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Kind
from ccpipe.terminal import plural, printable

MAX_GROUPS = 10_000
"""Maximum number of subjects, names or clusters counted; further ones count as ``OTHERS``."""

MAX_NODES = 200_000
OTHERS = "(others)"


class Stats:
    """Counts since the start."""

    def __init__(self) -> None:
        self.started = self.reported = time.monotonic()
        self.payloads = self.bytes = self.lines = 0
        self.groups: dict[str, Counter[str]] = {
            group: Counter() for group in ("subject", "kind", "cluster", "name")
        }
        self.nodes: set[tuple[str, str]] = set()
        self._before: dict[str, Counter[str]] = {}

    def add(self, subject: str, lines: Lines) -> None:
        self.lines += len(lines)
        self._count("subject", subject, len(lines))
        for (series, field), count in Counter(zip(lines.series, lines.fields, strict=True)).items():
            name, tags, _ = lines.table.series[series]
            cluster, node = tags.get("cluster", ""), tags.get("hostname", "")
            self._count("kind", Kind.of(lines.table.fields[field]), count)
            self._count("cluster", cluster, count)
            self._count("name", name, count)
            if len(self.nodes) < MAX_NODES:
                self.nodes.add((cluster, node))

    def add_other(self, subject: str, kind: str, count: int) -> None:
        self.lines += count
        self._count("subject", subject, count)
        self._count("kind", kind, count)

    def _count(self, group: str, key: str, count: int) -> None:
        counter = self.groups[group]
        counter[key if key in counter or len(counter) < MAX_GROUPS else OTHERS] += count

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def summary(self) -> str:
        return (
            f"{plural(self.lines, 'line')} in {plural(self.payloads, 'payload')}"
            f" from {plural(len(self.nodes), 'node')} in {self.seconds:.1f} s"
        )

    def report(self, rows: int | None = None, width: int | None = None) -> list[str]:
        """Return a table of at most `rows` lines; rates are since the last report."""
        now = time.monotonic()
        passed = max(now - self.reported, 1e-9)
        found = [
            (group, printable(key or "-"), str(count), f"{(count - before) / passed:.1f}", nodes)
            for group, key, count, before, nodes in self._rows()
        ]
        self.reported = now
        self._before = {group: counter.copy() for group, counter in self.groups.items()}
        lines = table(found, ("WHAT", "WHICH", "LINES", "PER SECOND", "NODES"), width)
        if rows is not None and len(lines) > rows:
            lines[max(rows - 1, 1) :] = [f"… and {len(lines) - rows + 1} more"]
        return lines

    def _rows(self) -> Iterator[tuple[str, str, int, int, str]]:
        nodes = Counter(cluster for cluster, _ in self.nodes)
        for group, counter in self.groups.items():
            for key, count in counter.most_common():
                before = self._before.get(group, Counter())[key]
                yield group, key, count, before, str(nodes[key]) if group == "cluster" else ""

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as plain data; rates are since the start."""
        seconds = max(self.seconds, 1e-9)
        nodes = Counter(cluster for cluster, _ in self.nodes)
        return {
            "seconds": seconds,
            "payloads": self.payloads,
            "bytes": self.bytes,
            "lines": self.lines,
            "nodes": dict(nodes),
            **{
                f"{group}s": {
                    key: {"lines": count, "rate": count / seconds}
                    for key, count in counter.most_common()
                }
                for group, counter in self.groups.items()
            },
        }
