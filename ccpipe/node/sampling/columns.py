"""The messages of a sample as columns."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, RejectedLine, Series, SeriesTable, to_lines
from ccpipe.formats.lineprotocol.builder import LinesBuilder
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN, NO_TIME
from ccpipe.formats.lineprotocol.series import write_series
from ccpipe.message import Message

_MAX_DEVICES = 1 << 14  # remembered: jobs come and go


class Part(NamedTuple):
    """The records of one collector, and what the configuration adds to them."""

    records: Sequence[Any]
    tags: Mapping[str, str] | None = None
    units: Mapping[str, str] = {}


class SampleColumns:
    """Builds ``Lines`` of messages, with the tags that all have in common.

    A node has the same series in each sample: the tags of a device are merged, checked and encoded
    once for each of its metrics.
    """

    def __init__(self) -> None:
        self._table = SeriesTable()
        self._codes: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
        self._tags: Mapping[str, str] | None = None
        self._units: Mapping[str, str] = {}

    def __call__(self, parts: Sequence[Part]) -> Lines:
        """Return the messages of all parts; invalid ones are rejected lines."""
        table = self._table.current()
        if table is not self._table or len(self._codes) > _MAX_DEVICES:
            self._table, self._codes = table, {}
        columns = LinesBuilder(table)
        rejected: list[RejectedLine] = []
        for part in parts:
            if (part.tags, part.units) != (self._tags, self._units):
                self._tags, self._units, self._codes = part.tags, part.units, {}
            self._add(part.records, columns, rejected)
        lines = columns.lines()
        lines.rejected = rejected
        return lines

    def _add(
        self, messages: Sequence[Message], columns: LinesBuilder, rejected: list[RejectedLine]
    ) -> None:
        floats, ints = columns.floats, columns.ints
        own: Mapping[str, str] | None = None  # shared by the messages of one device
        codes: dict[str, int] = {}
        for message in messages:
            name, value = message.name, message.value
            if message.tags is not own:
                own = message.tags
                codes = self._codes.setdefault(tuple(own.items()), {})
            if message.time != columns.time:
                columns.begin(NO_TIME if message.time is None else message.time)
            try:
                code = codes.get(name)
                if code is None:
                    code = codes[name] = self._code(name, own)
                if message.field != "value":
                    columns.append(code, message.field, value)
                elif type(value) is float and isfinite(value):
                    floats.codes.append(code)
                    floats.values.append(value)
                elif type(value) is int and INT64_MIN <= value <= INT64_MAX:
                    ints.codes.append(code)
                    ints.values.append(value)
                else:
                    columns.append(code, message.field, value)
            except EncodeError:
                rejected += to_lines([self._tagged(message)]).rejected

    def _code(self, name: str, own: Mapping[str, str]) -> int:
        tags = {key: value for key, value in self._merged(name, own).items() if value}
        return self._table.code_of(Series(name, tags, write_series(name, tags)))

    def _merged(self, name: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return all tags of a metric; a collector's own take precedence."""
        unit = {"unit": self._units[name]} if name in self._units else {}
        return dict(sorted({**unit, **(self._tags or {}), **own}.items()))

    def _tagged(self, message: Message) -> Message:
        tags = self._merged(message.name, message.tags)
        return Message(message.name, tags, message.value, message.time, message.field)
