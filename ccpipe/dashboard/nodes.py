"""The latest value of every series of every node, and ten minutes of history.

Values lie in one array of 32-bit floats; a series has a *slot* in it. A history row is a copy of
that array, so history costs four bytes for each series and row. What parts of a node send (sockets,
accelerators, network interfaces) is kept by part and added up into one value for the node, its
*cell*, unless the node sends that itself.
"""

import math
import re
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.node.sampling.metrics import Metric

MAX_SERIES = 150_000
"""Maximum number of series; further ones are counted and dropped."""
MAX_KEY = 1000
"""Maximum length of a series' name and tags in bytes; longer ones are dropped."""
MAX_REFUSED = 100_000
"""Series that are left out and known to be; further ones may be counted more than once."""
MIN_TABLE = 2**16
"""Series that the decoder may know at least."""
ROW_SECONDS = 2
"""Time between two rows of history."""
MAX_ROWS = 300
MAX_HISTORY_BYTES = 96 * 2**20
"""The oldest rows are dropped beyond this, so many series have a shorter history."""
SILENT_SECONDS = 60
"""Time without messages after which a node is shown as silent."""
FORGET_SECONDS = 900
"""A series from which nothing came for so long is forgotten. Longer than the history, so that no
row holds values of a slot's former series."""
MAX_PARTS = 64
"""Parts of one metric of a node that its page shows."""

NAN = math.nan
NodeId = tuple[str, str]
"""Cluster and hostname."""


@dataclass(slots=True, eq=False)
class LiveNode:
    """One node."""

    id: NodeId
    cells: dict[str, int] = field(default_factory=dict)
    """The slot of each metric's value for the whole node."""
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    """The slots of parts, by metric and part."""
    own: set[str] = field(default_factory=set)
    """Metrics that the node sends as one value."""
    seen: float = 0.0
    """When its last message arrived, on the clock of ``Nodes.tick``."""
    is_silent: bool = False


@dataclass(slots=True)
class Slot:
    """The use of a slot."""

    node: LiveNode
    metric: str
    part: str | None
    """None for a cell."""


class Nodes:
    """All nodes; every number is bounded."""

    def __init__(
        self, known: Mapping[str, Metric] | None = None, *, max_series: int = MAX_SERIES
    ) -> None:
        """Start empty; `known` are the declared metrics, some of them averaged over parts."""
        self.known = known if known is not None else {}
        self.max_series = max_series
        self.nodes: dict[NodeId, LiveNode] = {}
        self.left_out = 0
        """Series that were dropped: too many, or too long a name."""
        self.layout = 0
        """Incremented whenever nodes or series are added or removed."""
        self.lines = 0
        self.values = array("f", [NAN])
        self.rows: deque[tuple[float, array[float]]] = deque(maxlen=MAX_ROWS)
        self._fresh = array("d", [0.0])  # when each slot was last set
        self._slots: list[Slot | None] = [None]  # slot 0 takes what is not shown
        self._free: list[int] = []
        self._table: SeriesTable | None = None
        self._slot_of = array("i")  # by number in the table
        self._value_field = -1
        self._refused: set[int] = set()
        self._now = 0.0
        self._ordered: tuple[int, list[LiveNode]] = (-1, [])

    @property
    def series(self) -> int:
        """The number of series and cells that are kept."""
        return len(self._slots) - 1 - len(self._free)

    def in_order(self) -> list[LiveNode]:
        """Return the nodes by cluster and name, numbers in names by their size."""
        if self._ordered[0] != self.layout:
            nodes = sorted(self.nodes.values(), key=lambda node: _natural(node.id))
            self._ordered = (self.layout, nodes)
        return self._ordered[1]

    def feed(self, lines: Lines, now: float) -> None:
        """Process the metrics of a payload that arrived at `now`; other kinds are ignored."""
        self._now = now
        if lines.table is not self._table:
            self._begin_table(lines.table)
        if self._value_field < 0 and "value" in lines.table.fields:
            self._value_field = lines.table.fields.index("value")
        size = len(lines)
        if lines.fields.count(self._value_field) < size or ValueType.TEXT in lines.types:
            text = int(ValueType.TEXT)
            lines = lines.take(
                [
                    code == self._value_field and kind != text
                    for code, kind in zip(lines.fields, lines.types, strict=True)
                ]
            )
        self.lines += len(lines)
        while len(self._slot_of) < len(lines.table):
            self._slot_of.append(-1)
        slot_of, values, fresh = self._slot_of, self.values, self._fresh
        for code, number in zip(lines.series, lines.numbers, strict=True):
            slot = slot_of[code]
            if slot < 0:
                slot = slot_of[code] = self._resolve(lines.table.series[code])
            values[slot] = number
            fresh[slot] = now

    def tick(self, now: float) -> None:
        """Aggregate parts, detect silent nodes and add a row of history; call it once a second."""
        self._now = now
        for node in self.nodes.values():
            self._add_up(node)
            self._watch(node)
        if not self.rows or now - self.rows[-1][0] >= ROW_SECONDS - 0.5:
            row = self.values[:]
            row[0] = NAN
            size = len(row) * row.itemsize
            while self.rows and (len(self.rows) + 1) * size > MAX_HISTORY_BYTES:
                self.rows.popleft()
            self.rows.append((now, row))

    def forget(self) -> None:
        """Drop series and nodes without recent messages; call it periodically."""
        oldest = self._now - FORGET_SECONDS
        gone = [
            slot
            for slot, what in enumerate(self._slots)
            if what is not None and self._fresh[slot] < oldest
        ]
        for slot in gone:
            self._release(slot)
        if gone:
            empty = [id_ for id_, node in self.nodes.items() if not node.cells]
            for id_ in empty:
                del self.nodes[id_]
            self.layout += 1
            self._table = None  # numbers of series are looked up anew
            self._refused.clear()

    def column(self, metric: str) -> "array[float]":
        """Return one metric of all nodes, in their order; NaN where there is no value."""
        values = self.values
        values[0] = NAN  # what is not shown was put there
        return array("f", [values[node.cells.get(metric, 0)] for node in self.in_order()])

    def history(self, slots: Sequence[int], after: float) -> tuple[list[float], "array[float]"]:
        """Return times and values of slots, row by row, of what came after a time."""
        times: list[float] = []
        numbers = array("f")
        if not slots:
            return times, numbers
        top = max(slots)
        for when, row in self.rows:
            if when <= after:
                continue
            times.append(when)
            if top < len(row):
                numbers.extend([row[slot] for slot in slots])
            else:
                numbers.extend([row[slot] if slot < len(row) else NAN for slot in slots])
        return times, numbers

    def metric_counts(self) -> dict[str, int]:
        """Return the number of nodes that have each metric."""
        counts: dict[str, int] = {}
        for node in self.nodes.values():
            for metric in node.cells:
                counts[metric] = counts.get(metric, 0) + 1
        return counts

    def _begin_table(self, table: SeriesTable) -> None:
        self._table = table
        table.cap = min(table.cap, max(2 * self.max_series, MIN_TABLE))
        self._slot_of = array("i")
        self._value_field = -1

    def _resolve(self, series: Series) -> int:
        """Return the slot of a series that is new in its table; 0 if it is not shown."""
        name, tags, key = series
        host = tags.get("hostname")
        if not host:
            return 0
        id_ = (tags.get("cluster", ""), host)
        part = part_of(tags)
        slot = self._find(id_, name, part)
        if slot is None:
            if len(key) > MAX_KEY or self.series + 2 > self.max_series:
                self._refuse(key)
                return 0
            slot = self._add(id_, name, part)
        if part is None:
            self.nodes[id_].own.add(name)
        return slot

    def _find(self, id_: NodeId, metric: str, part: str | None) -> int | None:
        node = self.nodes.get(id_)
        if node is None:
            return None
        return node.cells.get(metric) if part is None else node.parts.get(metric, {}).get(part)

    def _refuse(self, key: bytes) -> None:
        """Count a dropped series, once."""
        if hash(key) not in self._refused:
            self.left_out += 1
            if len(self._refused) < MAX_REFUSED:
                self._refused.add(hash(key))

    def _add(self, id_: NodeId, metric: str, part: str | None) -> int:
        node = self.nodes.get(id_)
        if node is None:
            node = self.nodes[id_] = LiveNode(id_)
        if metric not in node.cells:
            node.cells[metric] = self._new_slot(node, metric, None)
        if part is None:
            return node.cells[metric]
        slot = self._new_slot(node, metric, part)
        node.parts.setdefault(metric, {})[part] = slot
        return slot

    def _new_slot(self, node: LiveNode, metric: str, part: str | None) -> int:
        self.layout += 1
        what = Slot(node, metric, part)
        if self._free:
            slot = self._free.pop()
            self._slots[slot] = what
            self.values[slot], self._fresh[slot] = NAN, self._now
            return slot
        self._slots.append(what)
        self.values.append(NAN)
        self._fresh.append(self._now)
        return len(self._slots) - 1

    def _release(self, slot: int) -> None:
        what = self._slots[slot]
        assert what is not None
        if what.part is None:
            what.node.cells.pop(what.metric, None)
            what.node.own.discard(what.metric)
        else:
            parts = what.node.parts.get(what.metric, {})
            parts.pop(what.part, None)
            if not parts:
                what.node.parts.pop(what.metric, None)
        self._slots[slot] = None
        self.values[slot] = NAN
        self._free.append(slot)

    def _add_up(self, node: LiveNode) -> None:
        """Set the cells of metrics that the node sends for its parts only."""
        values, fresh = self.values, self._fresh
        for metric, parts in node.parts.items():
            if metric in node.own:
                continue
            found = [value for slot in parts.values() if (value := values[slot]) == value]
            cell = node.cells[metric]
            fresh[cell] = max(fresh[slot] for slot in parts.values())
            known = self.known.get(metric)
            if not found:
                values[cell] = NAN
            elif known is not None and known.is_averaged:
                values[cell] = sum(found) / len(found)
            else:
                values[cell] = sum(found)

    def _watch(self, node: LiveNode) -> None:
        """Determine whether a node is silent; a silent one has no values."""
        slots = list(node.cells.values())
        fresh = self._fresh
        node.seen = max(itemgetter(*slots, 0)(fresh)[:-1]) if slots else 0.0
        was, node.is_silent = node.is_silent, self._now - node.seen > SILENT_SECONDS
        if node.is_silent and not was:
            for slot in [*slots, *(s for parts in node.parts.values() for s in parts.values())]:
                self.values[slot] = NAN


def part_of(tags: dict[str, str]) -> str | None:
    """Return the name of the part of a node that a series is about; None for the whole node."""
    kind = tags.get("type", "node")
    words = []
    if kind and kind != "node":
        words.append(f"{kind} {tags.get('type-id', '')}".strip())
    if stype := tags.get("stype", ""):
        words.append(f"{stype} {tags.get('stype-id', '')}".strip())
    return " ".join(words) or None


def _natural(id_: NodeId) -> tuple[str, list[tuple[bool, int, str]]]:
    """Return a key by which ``n9`` comes before ``n10``."""
    pieces = re.findall(r"([0-9]{1,18})|([^0-9]+|[0-9])", id_[1])
    return id_[0], [(not digits, int(digits or 0), text) for digits, text in pieces]
