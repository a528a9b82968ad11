"""Convert metrics to another unit: the value and the tag ``unit`` together."""

import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ccpipe.errors import ConfigError, DataError
from ccpipe.formats import units as formats_units
from ccpipe.formats.lineprotocol import Lines, Series, ValueType
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.formats.units import Conversion
from ccpipe.message import Kind, Message
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.per_series import PerSeries, Tags, rule_matcher, series, with_series
from ccpipe.translate.rules.select import is_number

log = logging.getLogger(__name__)


class _Conversion(NamedTuple):
    """What becomes of one series."""

    series: Series
    conversion: Conversion


class Convert(Translator):
    """Converts metrics to another unit, and has the tag ``unit`` say so.

    What unit a metric is in, `unit` says, or its own tag ``unit``, or else `units`. One whose
    unit is not known, or measures something else, stays as it is, and so does a value whose
    result line protocol could not carry. An integer stays an integer where the new unit goes into
    the old one without remainder (kB to bytes), and becomes a float where it does not (kB to GB).
    """

    takes = gives = Messages

    def __init__(
        self,
        *,
        to: str,
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        unit: str = "",
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Take the unit to convert to.

        Parameters
        ----------
        to
            The new unit, such as GB, MByte/s or degC; the tag says it as it stands here.
        names, tags
            Only series whose name fits one of these patterns and whose tags fit all of theirs,
            as `Select` has them.
        unit
            The unit that these metrics are in, whatever their tag says.
        units
            The units of metrics that carry no tag, by name; on a node ccpipe gives those of its
            own collectors.

        Raises
        ------
        ConfigError
            where a unit is none, or `unit` cannot be converted to `to`.

        """
        try:
            formats_units.conversion(unit or to, to)
        except DataError as error:
            raise ConfigError(f"to: {error}") from None
        self.to = to
        self._unit = unit
        self._units = units or {}
        self._matches = rule_matcher(names, tags)
        self._ways = PerSeries(self._decide)
        self._reported: set[tuple[str, str]] = set()

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Return all records, those that match in their new unit."""
        if isinstance(records, Lines):
            return self._feed_lines(records)
        return [self._converted(message) for message in records]

    def _decide(self, name: str, tags: Tags) -> _Conversion | None:
        if not self._matches(name, tags) or tags.get("unit") == self.to:
            return None
        unit = self._unit or tags.get("unit") or self._units.get(name, "")
        try:
            conversion = formats_units.conversion(unit, self.to)
        except DataError as error:
            self._tell(name, unit, error)
            return None
        converted = series(name, {**tags, "unit": self.to})
        return _Conversion(converted, conversion) if converted else None

    def _tell(self, name: str, unit: str, error: DataError) -> None:
        """Log once a metric why it stays as it is."""
        if (name, unit) not in self._reported and len(self._reported) < _MOST_TOLD:
            self._reported.add((name, unit))
            reason = str(error) if unit else "its unit is not known"
            log.warning("convert to %s: %s stays as it is: %s", self.to, name, reason)

    def _converted(self, message: Message) -> Message:
        if message.kind is not Kind.METRIC or not is_number(message.value):
            return message
        way = self._ways.of(message)
        if way is None:
            return message
        value = way.conversion(message.value)
        if value is None:
            return message
        return Message(message.name, way.series.tags, value, message.time, message.field)

    def _feed_lines(self, lines: Lines) -> Lines:
        decided = self._ways.of_lines(lines)
        ways = {code: way for code in set(lines.series) if (way := decided[code])}
        if not ways:
            return lines
        codes = {code: lines.table.code_of(way.series) for code, way in ways.items()}
        part = with_series(lines, array("i", lines.series))
        is_metric = [Kind.of(field) is Kind.METRIC for field in lines.table.fields]
        for row, code in enumerate(lines.series):
            if code in ways and is_metric[lines.fields[row]] and is_number(old := lines.value(row)):
                value = ways[code].conversion(old)
                if value is not None:
                    part.series[row] = codes[code]
                    _put(part, row, value)
        return part


def _put(lines: Lines, row: int, value: float) -> None:
    """Write a value into its cells; an integer is of the type that was there."""
    lines.numbers[row] = value
    if isinstance(value, int):
        lines.exact[row] = value - 2**64 if value >= 2**63 else value
    else:
        lines.types[row], lines.exact[row] = ValueType.FLOAT, 0


_MOST_TOLD = 1000
