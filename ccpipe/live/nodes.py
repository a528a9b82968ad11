"""The latest value of every series of every node, and ten minutes of history.

Values lie in one array; a series has a *slot* in it. A history row is a copy of that array as
32-bit floats, so history costs four bytes for each series and row. Data of parts of a node
(sockets, accelerators, network interfaces) is kept by part, and that of one level is added up into
one value for the node, its *cell*, unless the node sends that itself.
"""

import math
import re
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import level_name, level_rank, part_name
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.formats.units import parse_unit
from ccpipe.live.node import GAPS, LiveNode, NodeId, SchedulerState
from ccpipe.node.sampling.collector import Metric

MAX_SERIES = 150_000
"""Maximum number of series; further ones are counted and dropped."""
MAX_KEY = 1000
"""Maximum length of a series' name and tags in bytes; longer ones are dropped."""
MAX_REFUSED = 100_000
"""Series that are left out and known to be; further ones may be counted more than once."""
MIN_TABLE = 2**16
"""Series that the decoder may know at least."""
ROW_SECONDS = 2
MAX_ROWS = 300
MAX_HISTORY_BYTES = 96 * 2**20
"""The oldest rows are dropped beyond this, so many series have a shorter history."""
FORGET_SECONDS = 900
"""Time without values after which a series is forgotten: longer than the history, so that no row
has values of a slot's former series, and than any node takes to become silent."""
SILENT_DAYS = 30
"""Time after which a silent node is forgotten."""
MAX_SILENT = 10_000
"""Maximum number of silent nodes without series; beyond it those silent longest are forgotten."""
SCHEDULER_SECONDS = 3600
"""Time after which a state that the scheduler's bridge does not repeat is forgotten."""
MAX_NODES = 50_000

NAN = math.nan


@dataclass(slots=True)
class Slot:
    """The use of a slot."""

    node: LiveNode
    metric: str
    part: str | None
    """None for a cell."""
    level: str = ""
    """The kind of part; see ``level_rank``."""
    base: tuple[float, float] = (1.0, 0.0)
    """Factor and offset that convert values to the base unit."""


class LiveNodes:
    """All nodes; every number is bounded."""

    def __init__(
        self,
        known: Mapping[str, Metric] | None = None,
        *,
        max_series: int = MAX_SERIES,
        max_rows: int = MAX_ROWS,
        forget_seconds: float = FORGET_SECONDS,
        keeps: Callable[[str, Mapping[str, str]], bool] | None = None,
    ) -> None:
        """Start empty, with the declared metrics; `keeps` chooses series by name and tags."""
        self.known = known if known is not None else {}
        self.max_series = max_series
        self.forget_seconds = forget_seconds
        self.nodes: dict[NodeId, LiveNode] = {}
        """All that have sent anything, also those without metrics that are kept."""
        self.left_out = 0
        """Series that were dropped: too many, or too long a name."""
        self.layout = 0
        """Incremented whenever nodes or series are added, removed, or listed anew."""
        self.values = array("d", [NAN])
        self.rows: deque[tuple[float, array[float]]] = deque(maxlen=max_rows)
        self._keeps = keeps
        self._fresh = array("d", [0.0])  # when each slot was last set
        self._slots: list[Slot | None] = [None]  # slot 0 takes what is not kept
        self._free: list[int] = []
        self._table: SeriesTable | None = None
        self._slot_of = array("i")  # by number in the table
        self._node_of: list[LiveNode | None] = []  # by number in the table; None if not known yet
        self._value_field = -1
        self._refused: set[int] = set()
        self._now = 0.0
        self._ordered: tuple[int, list[LiveNode]] = (-1, [])

    @property
    def series(self) -> int:
        return len(self._slots) - 1 - len(self._free)

    def in_order(self) -> list[LiveNode]:
        """Return the listed nodes by cluster and name, numbers in names by their size.

        These are the nodes that have sent metrics, and those that a scheduler reports.
        """
        if self._ordered[0] != self.layout:
            found = [node for node in self.nodes.values() if node.is_listed]
            nodes = sorted(found, key=lambda node: _natural(node.id))
            self._ordered = (self.layout, nodes)
        return self._ordered[1]

    def feed(self, lines: Lines, now: float) -> Counter[str]:
        """Process payloads that arrived at `now`; return the number of lines of each cluster.

        Values of metrics are kept; events and other fields only show that the node is there.
        """
        self._now = now
        if lines.table is not self._table:
            self._begin_table(lines.table)
        missing = len(lines.table) - len(self._slot_of)
        self._slot_of.extend([-1] * missing)
        self._node_of.extend([None] * missing)
        numeric = lines
        if ValueType.TEXT in lines.types:
            numeric = lines.take([kind != ValueType.TEXT for kind in lines.types])
        values = self._only_values(numeric)
        self._set_values(values)
        if values is not lines:
            for code in set(lines.series):
                if self._node_of[code] is None:
                    self._node_of[code] = self._node_of_tags(lines.table.series[code].tags)
        return self._count(lines, numeric)

    def _only_values(self, lines: Lines) -> Lines:
        """Return the lines whose field is ``value``: only these are metrics."""
        if self._value_field < 0 and "value" in lines.table.fields:
            self._value_field = lines.table.fields.index("value")
        if lines.fields.count(self._value_field) == len(lines):
            return lines
        return lines.take([code == self._value_field for code in lines.fields])

    def _set_values(self, lines: Lines) -> None:
        slot_of, values, fresh, now = self._slot_of, self.values, self._fresh, self._now
        for code, number in zip(lines.series, lines.numbers, strict=True):
            slot = slot_of[code]
            if slot < 0:
                series = lines.table.series[code]
                slot = slot_of[code] = self._resolve(series)
                self._node_of[code] = self._node_of_tags(series.tags)
            values[slot] = number
            fresh[slot] = now

    def _count(self, lines: Lines, numeric: Lines) -> Counter[str]:
        node_of = self._node_of
        of_cluster: Counter[str] = Counter()
        for node, count in Counter(map(node_of.__getitem__, lines.series)).items():
            if node is not None and node is not _NOBODY:
                node.lines += count
                of_cluster[node.id[0]] += count
                if numeric is lines:
                    self._arrive(node)
                elif not node.has_metrics:
                    node.seen = self._now
        if numeric is not lines:
            for node in set(map(node_of.__getitem__, numeric.series)):
                if node is not None:
                    self._arrive(node)
        return of_cluster

    def _arrive(self, node: LiveNode) -> None:
        node.arrive(self._now)
        if node.is_dismissed:
            node.is_dismissed = False
            self.layout += 1

    def _node_of_tags(self, tags: Mapping[str, str]) -> LiveNode:
        return self._node((tags.get("cluster", ""), tags.get("hostname", ""))) or _NOBODY

    def _node(self, id_: NodeId) -> LiveNode | None:
        """Return a node, added if it is new; None if there are too many."""
        node = self.nodes.get(id_)
        if node is None and id_[1] and len(self.nodes) < MAX_NODES:
            node = self.nodes[id_] = LiveNode(id_)
            node.tick(self._now)
        return node

    def tick(self, now: float) -> None:
        """Aggregate parts, detect silent nodes and add a row of history; call it once a second."""
        self._now = now
        for node in self.nodes.values():
            node.tick(now)
            self._add_up(node)
            node.is_silent = node.seen > 0 and node.is_overdue(now)
        if self.rows.maxlen and (not self.rows or now - self.rows[-1][0] >= ROW_SECONDS - 0.5):
            self.rows.append((now, self._row()))

    def _row(self) -> "array[float]":
        """Return a row of history, and drop rows beyond the limit; silent nodes have no values."""
        row = array("f", self.values)
        row[0] = NAN
        for node in self.nodes.values():
            if node.is_silent:
                for slot in node.slots:
                    row[slot] = NAN
        size = len(row) * row.itemsize
        while self.rows and (len(self.rows) + 1) * size > MAX_HISTORY_BYTES:
            self.rows.popleft()
        return row

    def forget(self) -> None:
        """Drop series and nodes without recent messages; call it periodically."""
        oldest = self._now - self.forget_seconds
        expired = [
            slot
            for slot, what in enumerate(self._slots)
            if what is not None and self._fresh[slot] < oldest
        ]
        for slot in expired:
            self._release(slot)
        ended = self._ended(oldest)
        for id_ in ended:
            del self.nodes[id_]
        if expired or ended:
            self.layout += 1
            self._table = None  # numbers of series are looked up anew
            self._refused.clear()

    def _ended(self, oldest: float) -> list[NodeId]:
        """Return the nodes to drop, and drop the scheduler's states that are not repeated.

        A silent node stays for ``SILENT_DAYS``, unless it was dismissed.
        """
        ended: list[NodeId] = []
        silent: list[LiveNode] = []
        for id_, node in self.nodes.items():
            state = node.scheduler
            if state is not None and state.time < self._now - SCHEDULER_SECONDS:
                node.scheduler = None
                self.layout += 1
            if node.cells or node.scheduler is not None or node.seen >= oldest:
                continue
            if node.has_metrics and not node.is_dismissed:
                silent.append(node)
            else:
                ended.append(id_)
        silent.sort(key=lambda node: node.seen, reverse=True)
        earliest = self._now - SILENT_DAYS * 86400
        kept = sum(node.seen >= earliest for node in silent[:MAX_SILENT])
        return ended + [node.id for node in silent[kept:]]

    def report(self, id_: NodeId, states: tuple[str, ...], now: float) -> None:
        """Set the state of a node in the scheduler, reported at `now`."""
        node = self._node(id_)
        if node is None:
            return
        before = node.scheduler
        if before is not None:
            if before.states != states:
                before.states, before.reason = states, ""
            before.time = max(now, before.time)
            return
        node.scheduler = SchedulerState(states, now)
        self.layout += 1

    def explain(self, id_: NodeId, reason: str) -> None:
        """Set the reason why a node that the scheduler reports is down or drained."""
        node = self.nodes.get(id_)
        if node is not None and node.scheduler is not None:
            node.scheduler.reason = reason

    def restore(self, id_: NodeId, seen: float, interval: float) -> None:
        """Add a node that was silent when the process last ended, unless it has sent since."""
        node = self._node(id_)
        if node is None or node.seen >= seen:
            return
        node.has_metrics, node.seen = True, seen
        node.gaps.extend([interval] * GAPS)
        self.layout += 1

    def dismiss(self, id_: NodeId) -> bool:
        """Do not list a silent node until it sends again; return whether it was silent."""
        node = self.nodes.get(id_)
        if node is None or not node.has_stopped:
            return False
        node.is_dismissed = True
        self.layout += 1
        return True

    @property
    def silent(self) -> list[LiveNode]:
        """The listed nodes that have stopped sending metrics."""
        return [node for node in self.in_order() if node.has_stopped]

    def column(self, metric: str, nodes: Iterable[LiveNode] | None = None) -> "array[float]":
        """Return one metric of nodes, or of all in their order; NaN where a value is missing."""
        values = self.values
        values[0] = NAN  # values that are not kept
        chosen = self.in_order() if nodes is None else nodes
        return array(
            "f", [NAN if node.is_silent else values[node.cells.get(metric, 0)] for node in chosen]
        )

    def quantity(self, node: LiveNode, metric: str, part: str | None = None) -> float:
        """Return a node's or a part's latest value in its base unit, such as bytes; NaN if unknown.

        The unit is the tag ``unit``, else the declared unit of the metric.
        """
        number = node.cells.get(metric) if part is None else node.parts.get(metric, {}).get(part)
        if number is None or (slot := self._slots[number]) is None:
            return NAN
        scale, zero = slot.base
        return self.values[number] * scale + zero

    def base(self, node: LiveNode, metric: str) -> tuple[float, float]:
        """Return factor and offset that convert a node's values of a metric to the base unit."""
        slot = self._slots[node.cells[metric]]
        return (1.0, 0.0) if slot is None else slot.base

    def history(self, slots: Sequence[int], after: float) -> tuple[list[float], "array[float]"]:
        """Return times and values of slots, row by row, of rows after a time."""
        times: list[float] = []
        numbers = array("f")
        for when, row in self.rows if slots else ():
            if when > after:
                times.append(when)
                numbers.extend([row[slot] if slot < len(row) else NAN for slot in slots])
        return times, numbers

    def metric_counts(self, nodes: Iterable[LiveNode] | None = None) -> dict[str, int]:
        """Return how many of these nodes, or of all, have each metric."""
        chosen = self.nodes.values() if nodes is None else nodes
        return dict(Counter(metric for node in chosen for metric in node.cells))

    def _begin_table(self, table: SeriesTable) -> None:
        self._table = table
        table.cap = min(table.cap, max(2 * self.max_series, MIN_TABLE))
        self._slot_of = array("i")
        self._node_of = []
        self._value_field = -1

    def _resolve(self, series: Series) -> int:
        """Return the slot of a series that is new in its table; 0 if it is not kept."""
        name, tags, key = series
        if not tags.get("hostname") or (self._keeps is not None and not self._keeps(name, tags)):
            return 0
        names = (tags.get(key, "") for key in ("type", "type-id", "stype", "stype-id"))
        part = part_name(*names) or None
        node = self._node_of_tags(tags)
        slot = node.cells.get(name) if part is None else node.parts.get(name, {}).get(part)
        if slot is None:
            if node is _NOBODY or len(key) > MAX_KEY or self.series + 2 > self.max_series:
                self._refuse(key)
                return 0
            level = level_name(tags.get("type", ""), tags.get("stype", ""))
            slot = self._add(node, name, part, level)
        if part is None:
            node.own.add(name)
        declared = self.known.get(name)
        base = _base(tags.get("unit", "")) or _base(declared.unit if declared else "")
        for number in (slot, node.cells[name]):
            if base and (what := self._slots[number]) is not None:
                what.base = base
        return slot

    def _refuse(self, key: bytes) -> None:
        if hash(key) not in self._refused:
            self.left_out += 1
            if len(self._refused) < MAX_REFUSED:
                self._refused.add(hash(key))

    def _add(self, node: LiveNode, metric: str, part: str | None, level: str) -> int:
        node.has_metrics = True
        if metric not in node.cells:
            node.cells[metric] = self._new_slot(node, metric, None)
        if part is None:
            return node.cells[metric]
        slot = self._new_slot(node, metric, part, level)
        node.summed.pop(metric, None)
        node.parts.setdefault(metric, {})[part] = slot
        return slot

    def _new_slot(self, node: LiveNode, metric: str, part: str | None, level: str = "") -> int:
        self.layout += 1
        what = Slot(node, metric, part, level)
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
            what.node.own.discard(what.metric)
            if what.metric in what.node.parts:
                return  # the parts are added up from now on
            what.node.cells.pop(what.metric, None)
        else:
            parts = what.node.parts.get(what.metric, {})
            parts.pop(what.part, None)
            what.node.summed.pop(what.metric, None)
            if not parts:
                what.node.parts.pop(what.metric, None)
        self._slots[slot] = None
        self.values[slot] = NAN
        self._free.append(slot)

    def _add_up(self, node: LiveNode) -> None:
        """Set the cells of metrics that the node sends for its parts only."""
        values, fresh = self.values, self._fresh
        for metric in node.parts:
            if metric in node.own:
                continue
            slots = node.summed.get(metric) or self._choose(node, metric)
            found = [value for slot in slots if (value := values[slot]) == value]
            cell = node.cells[metric]
            fresh[cell] = max(fresh[slot] for slot in slots)
            known = self.known.get(metric)
            if not found:
                values[cell] = NAN
            elif known is not None and known.is_averaged:
                values[cell] = sum(found) / len(found)
            else:
                values[cell] = sum(found)

    def _choose(self, node: LiveNode, metric: str) -> list[int]:
        """Choose the parts of one level, and return their slots."""
        levels: dict[str, list[int]] = {}
        for number in node.parts[metric].values():
            if (slot := self._slots[number]) is not None:
                levels.setdefault(slot.level, []).append(number)
        node.summed[metric] = levels[min(levels, key=level_rank)]
        return node.summed[metric]


_NOBODY = LiveNode(("", ""))


def _base(unit: str) -> tuple[float, float] | None:
    """Return what to multiply by and to add for the base unit; None for an unknown unit."""
    try:
        found = parse_unit(unit)
    except DataError:
        return None
    return float(found.scale), float(found.zero)


def _natural(id_: NodeId) -> tuple[str, list[tuple[bool, int, str]]]:
    """Return a key that sorts ``n9`` before ``n10``."""
    pieces = re.findall(r"([0-9]{1,18})|([^0-9]+|[0-9])", id_[1])
    return id_[0], [(not digits, int(digits or 0), text) for digits, text in pieces]
