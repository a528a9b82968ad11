"""Converts metrics to another unit: the value and the tag ``unit``."""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ccpipe.errors import ConfigError, DataError
from ccpipe.formats import units as formats_units
from ccpipe.formats.lineprotocol import Lines, Series, ValueType, is_number
from ccpipe.formats.lineprotocol.series import PerSeries, Tags, fields_of
from ccpipe.formats.lineprotocol.values import signed
from ccpipe.formats.units import Conversion
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.matching import is_metric, rule_matcher, series

log = logging.getLogger(__name__)

_MAX_REPORTED = 1000


class _Conversion(NamedTuple):
    """The target series and conversion of one series."""

    series: Series
    conversion: Conversion


class Convert(Translator[Lines, Lines]):
    """Converts metrics to another unit, and sets the tag ``unit``.

    The unit of a metric is `unit`, else its own tag ``unit``, else that in `units`. A metric whose
    unit is unknown, or measures something else, is left unchanged, and so is a value whose result
    line protocol cannot carry. An integer stays an integer where the old unit is a multiple of the
    new one (kB to bytes), and becomes a float where it is not (kB to GB).
    """

    takes = gives = Lines

    def __init__(
        self,
        *,
        to: str,
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        unit: str = "",
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Set the unit to convert to.

        Parameters
        ----------
        to
            The new unit, such as GB, MByte/s or degC, as the tag will have it.
        names, tags
            Only series whose name matches one of these patterns and whose tags match all of
            theirs, as in `Select`.
        unit
            The unit of these metrics, which overrides their tag.
        units
            The units of metrics without the tag, by name; on a node ccpipe adds its own
            collectors' units.

        Raises
        ------
        ConfigError
            if a unit is not one, or `unit` cannot be converted to `to`.

        """
        try:
            formats_units.conversion(unit or to, to)
        except DataError as error:
            raise ConfigError(f"to: {error}") from None
        self.to = to
        self._unit = unit
        self._units = units or {}
        self._matches = rule_matcher(names, tags)
        self._conversions = PerSeries(self._decide)
        self._reported: set[tuple[str, str]] = set()

    def feed(self, records: Lines) -> Lines:
        decided = self._conversions.of_lines(records)
        used = {code: found for code in set(records.series) if (found := decided[code])}
        if not used:
            return records
        codes = {code: records.table.code_of(found.series) for code, found in used.items()}
        part = records.with_series(records.series[:])
        metrics = fields_of(records, is_metric)
        for row, code in enumerate(records.series):
            is_chosen = code in used and metrics[records.fields[row]]
            if is_chosen and is_number(old := records.value(row)):
                value = used[code].conversion(old)
                if value is not None:
                    part.series[row] = codes[code]
                    _put(part, row, value)
        return part

    def _decide(self, name: str, tags: Tags) -> _Conversion | None:
        if not self._matches(name, tags) or tags.get("unit") == self.to:
            return None
        unit = self._unit or tags.get("unit") or self._units.get(name, "")
        try:
            conversion = formats_units.conversion(unit, self.to)
        except DataError as error:
            self._warn(name, unit, error)
            return None
        converted = series(name, {**tags, "unit": self.to})
        return _Conversion(converted, conversion) if converted else None

    def _warn(self, name: str, unit: str, error: DataError) -> None:
        """Log, once for each metric, why it is left unchanged."""
        if (name, unit) not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add((name, unit))
            reason = str(error) if unit else "its unit is not known"
            log.warning("convert to %s: %s is left unchanged: %s", self.to, name, reason)


def _put(lines: Lines, row: int, value: float) -> None:
    lines.numbers[row] = value
    if isinstance(value, int):
        lines.exact[row] = signed(value)
    else:
        lines.types[row], lines.exact[row] = ValueType.FLOAT, 0
