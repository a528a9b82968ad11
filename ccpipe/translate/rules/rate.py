"""Turns counters into rates per second."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ccpipe.config import Interval
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, Series, ValueType, is_number
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import PerSeries, Tags, fields_of
from ccpipe.pipeline import Scope, Translator
from ccpipe.translate.rules.matching import Row, is_metric, rule_matcher, series, with_rows

SECOND = 10**9
MAX_COUNTERS = 1_000_000
"""Maximum number of counters of which the last value is kept; beyond it, the oldest are dropped."""


class _Counter(NamedTuple):
    """A series that is a counter, and that of its rate."""

    key: bytes
    rate: Series


class Rate(Translator[Lines, Lines]):
    """Replaces counters by their increase per second since their last sample.

    The first sample of a counter has no rate, nor has one after a decrease, which means that it was
    reset, or after a gap. A sample that is not newer than the last one, such as one delivered
    again, is dropped. A counter without a timestamp is dropped.
    """

    takes = gives = Lines
    scope = Scope.NODE

    def __init__(
        self,
        *,
        names: Sequence[str],
        tags: Mapping[str, str] | None = None,
        name: str = "*",
        unit: str = "",
        keep: bool = False,
        max_gap: Interval = Interval(600),  # noqa: B008 - frozen, as any float
    ) -> None:
        """Set which metrics are counters.

        Parameters
        ----------
        names, tags
            Only series whose name matches one of these patterns and whose tags match all of
            theirs, as in `Select`.
        name
            Name of the rate; ``*`` is replaced by the counter's: ``"*_bw"``.
        unit
            The tag ``unit`` of the rate; by default the counter's, if it has one, and ``/s``.
        keep
            Keep the counters, too; the rates follow all records.
        max_gap
            Maximum time between two samples of a counter.

        Raises
        ------
        ConfigError
            if no name is given, or the rate's is invalid or the same as that of a kept counter.

        """
        if not names:
            raise ConfigError("names: expected at least one")
        if series(name.replace("*", "a"), {}) is None:
            raise ConfigError(f"name: {name!r} cannot be a name in line protocol")
        if keep and name == "*":
            raise ConfigError("name: a rate needs another name than the counter that is kept")
        self._name, self._unit, self._keep = name, unit, keep
        self._max_gap = round(max_gap * SECOND)
        self._matches = rule_matcher(names, tags)
        self._counters = PerSeries(self._decide)
        self._last: dict[bytes, tuple[int, float]] = {}
        """Time and value by series, the most recently updated last."""

    def feed(self, records: Lines) -> Lines:
        decided = self._counters.of_lines(records)
        if not any(decided[code] for code in set(records.series)):
            return records
        metrics = fields_of(records, is_metric)
        rates: dict[int, Row] = {}
        kept = [True] * len(records)
        for row, code in enumerate(records.series):
            counter = decided[code]
            if counter is None or not metrics[records.fields[row]]:
                continue
            time, value = records.times[row], records.value(row)
            if is_number(value):
                kept[row] = False
                rate = self._rate(counter.key, time, value)
                if rate is not None:
                    rates[row] = counter.rate, time, rate
        if self._keep:
            return with_rows(records, list(rates.values()))
        return _replaced(records, kept, rates)

    def _rate(self, key: bytes, time: int, value: float) -> float | None:
        """Return the rate of a counter with a new value, if it is known."""
        if time == NO_TIME:
            return None
        last = self._last.get(key)
        if last is not None and time <= last[0]:
            return None
        self._last.pop(key, None)
        self._last[key] = time, value
        if len(self._last) > MAX_COUNTERS:
            del self._last[next(iter(self._last))]
        if last is None or value < last[1] or time - last[0] > self._max_gap:
            return None
        rate = (value - last[1]) * SECOND / (time - last[0])
        return rate if math.isfinite(rate) else None

    def _decide(self, name: str, tags: Tags) -> _Counter | None:
        if not self._matches(name, tags) or (counter := series(name, tags)) is None:
            return None
        unit = self._unit or (f"{tags['unit']}/s" if "unit" in tags else "")
        with_unit = {**tags, "unit": unit} if unit else tags
        rate = series(self._name.replace("*", name), with_unit)
        return rate and _Counter(counter.key, rate)


def _replaced(records: Lines, kept: list[bool], rates: Mapping[int, Row]) -> Lines:
    """Return the kept rows and the rates, in place of their counters."""
    lines = records.with_series(records.series[:])
    for row, (rate, _, value) in rates.items():
        kept[row] = True
        lines.series[row] = lines.table.code_of(rate)
        lines.numbers[row] = value
        lines.types[row], lines.exact[row] = ValueType.FLOAT, 0
    return lines.take(kept)
