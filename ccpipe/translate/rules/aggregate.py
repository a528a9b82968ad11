"""Aggregates metrics of hardware threads, sockets or accelerators into those of the whole."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, Series, is_number
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.message import Kind, Message, Uint
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.per_series import (
    PerSeries,
    Tags,
    fields_of,
    is_metric,
    rule_matcher,
    series,
)

log = logging.getLogger(__name__)

Part = Literal["hwthread", "core", "llc", "die", "memoryDomain", "socket", "accelerator"]
Whole = Literal["core", "llc", "die", "memoryDomain", "socket", "node"]

_Row = tuple[Series, int | None, float]
"""A series, a timestamp in nanoseconds and a value."""
_Point = tuple[bytes, int | None]
"""The key of a series, and a timestamp."""

_MAX_REPORTED = 1000


class Aggregate(Translator):
    """Computes the sum, minimum, maximum, mean or count of the metrics of the parts of a whole.

    Parts are the metrics of ``type=<of>`` that differ in ``type-id`` only and have one timestamp;
    the aggregate is of ``type=<per>`` and comes after all the records, which are kept. A metric
    that is measured for the whole already is never replaced: there is no aggregate then, which is
    logged once; give the aggregate another `name`.

    Only parts of one batch are aggregated: of one sample of a node, or of one payload in a bridge.
    Missing parts are not waited for: see `minimum`.
    """

    takes = gives = Messages

    def __init__(
        self,
        *,
        function: Literal["sum", "min", "max", "mean", "count"],
        of: Part,
        per: Whole,
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        name: str = "*",
        minimum: int = 1,
        topology: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Set what to aggregate.

        Parameters
        ----------
        function
            sum, min, max, mean or count.
        of, per
            The tag ``type`` of the parts and of the whole.
        names, tags
            Only series whose name matches one of these patterns and whose tags match all of
            theirs, as in `Select`.
        name
            Name of the aggregate; ``*`` stands for the metric's own name. Without one, all metrics
            that match go into one aggregate.
        minimum
            Fewer parts than this make no aggregate.
        topology
            Each table has the numbers, by type, of what belongs together, such as
            ``{hwthread = "0", memoryDomain = "0", socket = "0"}``. On a node ccpipe reads it.

        Raises
        ------
        ConfigError
            where the topology lacks the whole that the parts belong to.

        """
        if series(name, {}) is None:
            raise ConfigError(f"name: {name!r} cannot be a name in line protocol")
        self._function = _FUNCTIONS[function]
        self._is_count = function == "count"
        self._of, self._per = of, per
        self._name = name
        self._minimum = minimum
        self._whole_of = None if per == "node" else _wholes(topology, of, per)
        self._matches = rule_matcher(names, tags)
        self._wholes = PerSeries(self._decide)
        self._measured = PerSeries(self._as_measured)
        self._reported: set[str] = set()

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Return all records, and after them the aggregates."""
        parts: dict[_Point, tuple[Series, list[float]]] = {}
        for whole, time, value in _rows(records, self._wholes):
            parts.setdefault((whole.key, time), (whole, []))[1].append(value)
        if not parts:
            return records
        measured = {(there.key, time) for there, time, _ in _rows(records, self._measured)}
        made: list[_Row] = []
        for (key, time), (whole, values) in parts.items():
            if (key, time) in measured:
                self._warn(f"{whole.name} is measured for the {self._per} already")
                continue
            result = _finite(self._function, values) if len(values) >= self._minimum else None
            if result is not None:
                made.append((whole, time, result))
        return _with_rows(records, made) if made else records

    def _decide(self, name: str, tags: Tags) -> Series | None:
        """Return the series of the whole that a part belongs to; None for what is not a part."""
        if tags.get("type") != self._of or not self._matches(name, tags):
            return None
        whole = {key: value for key, value in tags.items() if key != "type-id"}
        whole["type"] = self._per
        if self._whole_of is not None:
            part = tags.get("type-id", "")
            if part not in self._whole_of:
                self._warn(f"{self._of} {part!r} is left out: its {self._per} is not known")
                return None
            whole["type-id"] = self._whole_of[part]
        if self._is_count:
            whole.pop("unit", None)
        return series(self._name.replace("*", name), whole)

    def _as_measured(self, name: str, tags: Tags) -> Series | None:
        """Return the series itself where it is of a whole."""
        return series(name, tags) if tags.get("type") == self._per else None

    def _warn(self, what: str) -> None:
        """Log once why something is not aggregated."""
        if what not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(what)
            log.warning("aggregate of %s per %s: %s", self._of, self._per, what)


def _wholes(topology: Sequence[Mapping[str, str]], of: str, per: str) -> dict[str, str]:
    """Return the number of the whole by that of the part; raises ConfigError."""
    if of == per:
        raise ConfigError(f"per: a {of} is no part of a {per}")
    wholes: dict[str, str] = {}
    for place in topology:
        if of in place and per in place and wholes.setdefault(place[of], place[per]) != place[per]:
            raise ConfigError(f"per: {of} {place[of]} is in more than one {per}")
    if not wholes:
        raise ConfigError(
            f"per: the topology does not say which {per} a {of} belongs to; "
            "`ccpipe publish` reads it from /sys, a recipe gives it as `topology`"
        )
    return wholes


def _rows(records: Sequence[Message], of_series: PerSeries[Series | None]) -> Iterator[_Row]:
    """Yield the numbers of metrics, with the series that was decided for theirs, if any."""
    if not isinstance(records, Lines):
        for message in records:
            if message.kind is Kind.METRIC and is_number(message.value):
                chosen = of_series.of(message)
                if chosen is not None:
                    yield chosen, message.time, message.value
        return
    decided = of_series.of_lines(records)
    metrics = fields_of(records, is_metric)
    for row, code in enumerate(records.series):
        chosen = decided[code]
        if chosen is not None and metrics[records.fields[row]]:
            time, value = records.times[row], records.value(row)
            if is_number(value):
                yield chosen, None if time == NO_TIME else time, value


def _with_rows(records: Sequence[Message], made: Sequence[_Row]) -> Sequence[Message]:
    """Return records with metrics added at the end."""
    if not isinstance(records, Lines):
        return [
            *records,
            *(Message(whole.name, whole.tags, value, time) for whole, time, value in made),
        ]
    lines = records.with_series(records.series[:])
    field = lines.table.field_code_of("value")
    for whole, time, value in made:
        code = lines.table.code_of(whole)
        lines.append(code, field, value, NO_TIME if time is None else time)
    return lines


def _sum(values: Sequence[float]) -> float:
    """Add up; integers stay integers as long as 64 bits hold them."""
    if not all(isinstance(value, int) for value in values):
        return math.fsum(values)
    total = int(sum(values))
    if -(2**63) <= total < 2**63:
        return Uint(total) if all(isinstance(value, Uint) for value in values) else total
    return Uint(total) if 0 <= total < 2**64 else float(total)


def _mean(values: Sequence[float]) -> float:
    if all(isinstance(value, int) for value in values):
        return sum(values) / len(values)  # exact until it is rounded once
    return math.fsum(values) / len(values)


_FUNCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": _sum, "min": min, "max": max, "mean": _mean, "count": len,
}  # fmt: skip


def _finite(function: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    """Return a function of values; None where the result is not a finite number."""
    try:
        result = function(values)
        return result if math.isfinite(result) else None
    except (OverflowError, ValueError):  # fsum() of large numbers, and of infinite ones
        return None
