"""Aggregates metrics of hardware threads, sockets, devices or jobs into metrics of the whole."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from ccpipe.config import Duration
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, Series
from ccpipe.formats.lineprotocol.series import PerSeries, Tags
from ccpipe.message import Uint
from ccpipe.pipeline import HoldingTranslator, Scope
from ccpipe.translate.rules.matching import Row, metric_rows, rule_matcher, series, with_rows

log = logging.getLogger(__name__)

Part = Literal["hwthread", "core", "llc", "die", "memoryDomain", "socket", "accelerator", "stype"]
Whole = Literal["core", "llc", "die", "memoryDomain", "socket", "node"]

_Point = tuple[bytes, int | None]
"""The key of a series, and a timestamp."""

_MAX_REPORTED = 1000
_MAX_HELD = 1 << 16
"""Maximum number of incomplete aggregates; beyond it the oldest are sent early."""


class _Member(NamedTuple):
    """The whole that a part belongs to, and the part's identity."""

    whole: Series
    part: tuple[object, ...]


@dataclass(slots=True)
class _Group:
    """The parts of one whole at one time, as received so far."""

    whole: Series
    feed: int
    """Number of the feed of the first one."""
    opened: float
    values: dict[tuple[object, ...], float] = field(default_factory=dict)
    """By part, so that a duplicate counts once."""
    is_measured: bool = False
    """Whether the whole has a value of its own."""


class Aggregate(HoldingTranslator[Lines, Lines]):
    """Computes the sum, minimum, maximum, mean or count of the metrics of the parts of a whole.

    Parts are the metrics of ``type=<of>`` that differ in ``type-id`` only and have one timestamp;
    the aggregate is of ``type=<per>`` and follows all the records, which are kept. With
    ``of = "stype"`` the parts are devices, file systems, sensors or jobs: metrics that differ in
    ``stype`` and ``stype-id`` only. Their aggregate has neither, and keeps ``type``. A metric that
    is measured for the whole already is never replaced: the aggregate is then omitted, which is
    logged once; give the aggregate another `name`.

    Without `hold_timeout` only parts of one batch are aggregated: of one sample of a node, or of
    one payload in a bridge. Missing parts are not waited for: see `min_parts`.
    """

    takes = gives = Lines

    def __init__(
        self,
        *,
        function: Literal["sum", "min", "max", "mean", "count"],
        of: Part,
        per: Whole | None = None,
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        name: str = "*",
        min_parts: int = 1,
        topology: Sequence[Mapping[str, str]] = (),
        hold_timeout: Duration = Duration(0),
    ) -> None:
        """Set what to aggregate.

        Parameters
        ----------
        function
            sum, min, max, mean or count.
        of, per
            The tag ``type`` of the parts and of the whole; ``of = "stype"`` has no `per`.
        names, tags
            Only series whose name matches one of these patterns and whose tags match all of
            theirs, as in `Select`.
        name
            Name of the aggregate; ``*`` is replaced by the metric's own name. Without one, all
            metrics that match go into one aggregate.
        min_parts
            Fewer parts than this make no aggregate.
        topology
            Each table has the numbers, by type, of what belongs together, such as
            ``{hwthread = "0", memoryDomain = "0", socket = "0"}``. On a node ccpipe reads it.
        hold_timeout
            Time to wait for parts in later messages of the bus, from the first part on.
            Waiting records are not acknowledged yet. Each node's messages must then go to one
            process.

        Raises
        ------
        ConfigError
            if `per` is missing, or the topology lacks the whole that the parts belong to.

        """
        if (per is None) != (of == "stype"):
            problem = "is missing" if per is None else 'cannot be used with of = "stype"'
            raise ConfigError(f"per: {problem}")
        if series(name, {}) is None:
            raise ConfigError(f"name: {name!r} cannot be a name in line protocol")
        self._function = _FUNCTIONS[function]
        self._is_count = function == "count"
        self._of, self._per = of, per
        self._name = name
        self._min_parts = min_parts
        self._whole_of = None if per in (None, "node") else _wholes(topology, of, per)
        self._matches = rule_matcher(names, tags)
        self._members = PerSeries(self._decide)
        self._measured = PerSeries(self._as_measured)
        self._reported: set[str] = set()
        self._hold = float(hold_timeout)
        # The parts of a whole have its host name.
        self.scope = Scope.NODE if self._hold > 0 else Scope.RECORD
        self._feed = 0
        self._groups: dict[_Point, _Group] = {}
        self.clock: Callable[[], float] = time.monotonic

    def oldest_held(self) -> int | None:
        return next((group.feed for group in self._groups.values()), None)

    def feed(self, records: Lines) -> Lines:
        """Return all records, and after them the aggregates that are complete."""
        self._feed += 1
        now = self.clock()
        for member, at, value in metric_rows(records, self._members):
            point = member.whole.key, at
            group = self._groups.get(point)
            if group is None:
                group = self._groups[point] = _Group(member.whole, self._feed, now)
            group.values[member.part] = value
        if not self._groups:
            return records
        for there, at, _ in metric_rows(records, self._measured):
            if group := self._groups.get((there.key, at)):
                group.is_measured = True
        made = self._take(now - self._hold)
        return with_rows(records, made) if made else records

    def flush(self) -> Lines:
        return with_rows(Lines(), self._take(math.inf))

    def _take(self, before: float) -> list[Row]:
        """Take out the groups that were opened until a time, and those that are too many."""
        excess = len(self._groups) - _MAX_HELD
        made: list[Row] = []
        for number, (point, group) in enumerate(list(self._groups.items())):
            if group.opened > before and number >= excess:
                break  # they are in the order in which they were opened
            del self._groups[point]
            values = list(group.values.values())
            if group.is_measured:
                self._warn(f"{group.whole.name} is measured for the {self._whole_name} already")
            elif len(values) >= self._min_parts:
                result = finite(self._function, values)
                if result is not None:
                    made.append((group.whole, point[1], result))
        return made

    @property
    def _whole_name(self) -> str:
        return self._per or "whole"

    def _decide(self, name: str, tags: Tags) -> _Member | None:
        is_part = "stype" in tags if self._per is None else tags.get("type") == self._of
        if not is_part or not self._matches(name, tags):
            return None
        left_out = ("stype", "stype-id") if self._per is None else ("type-id",)
        whole = {key: value for key, value in tags.items() if key not in left_out}
        if self._per is not None:
            whole["type"] = self._per
        if self._whole_of is not None:
            part = tags.get("type-id", "")
            if part not in self._whole_of:
                self._warn(f"{self._of} {part!r} is left out: its {self._per} is not known")
                return None
            whole["type-id"] = self._whole_of[part]
        if self._is_count:
            whole.pop("unit", None)
        found = series(self._name.replace("*", name), whole)
        return found and _Member(found, (name, *tags.items()))

    def _as_measured(self, name: str, tags: Tags) -> Series | None:
        is_whole = "stype" not in tags if self._per is None else tags.get("type") == self._per
        return series(name, tags) if is_whole else None

    def _warn(self, what: str) -> None:
        if what not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(what)
            log.warning("aggregate of %s per %s: %s", self._of, self._whole_name, what)


def _wholes(topology: Sequence[Mapping[str, str]], of: str, per: str) -> dict[str, str]:
    """Return the whole's number by the part's; raises ConfigError."""
    if of == per:
        raise ConfigError(f"per: a {of} is not part of a {per}")
    wholes: dict[str, str] = {}
    for place in topology:
        if of in place and per in place and wholes.setdefault(place[of], place[per]) != place[per]:
            raise ConfigError(f"per: {of} {place[of]} is in more than one {per}")
    if not wholes:
        raise ConfigError(
            f"per: the topology does not assign each {of} to a {per}; "
            "`ccpipe publish` reads it from /sys, a recipe gives it as `topology`"
        )
    return wholes


def exact_sum(values: Sequence[float]) -> float:
    """Add up; integers stay integers if the sum fits into 64 bits."""
    if not all(isinstance(value, int) for value in values):
        return _float_sum(values)
    total = int(sum(values))
    if -(2**63) <= total < 2**63:
        return Uint(total) if all(isinstance(value, Uint) for value in values) else total
    return Uint(total) if 0 <= total < 2**64 else float(total)


def _float_sum(values: Sequence[float]) -> float:
    """Add up, rounding once; raises OverflowError or ValueError if the sum is not finite."""
    try:
        return math.fsum(values)
    except OverflowError:  # perhaps only in between, which depends on the order
        return float(sum(Fraction(float(value)) for value in values))


def _mean(values: Sequence[float]) -> float:
    if all(isinstance(value, int) for value in values):
        return sum(values) / len(values)  # exact until it is rounded once
    return _float_sum(values) / len(values)


_FUNCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": exact_sum, "min": min, "max": max, "mean": _mean, "count": len,
}  # fmt: skip


def finite(function: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    """Return a function of values; None if the result is not a finite number."""
    try:
        result = function(values)
        return result if math.isfinite(result) else None
    except (OverflowError, ValueError):  # of large numbers, and of infinite ones
        return None
