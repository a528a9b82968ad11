"""Decisions by series and by field, made once for all rows that share them."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.formats.lineprotocol.series import SeriesTable
from ccpipe.message import Message

T = TypeVar("T")

Tags = Mapping[str, str]

MAX_DECISIONS = 1 << 16
"""Decisions that are remembered beside those of the batch in hand."""


class PerSeries(Generic[T]):
    """Decisions by series, remembered for the batches that follow.

    A batch costs what its own rows and series cost, however many series are known.
    """

    def __init__(self, decide: Callable[[str, Tags], T]) -> None:
        """Decide by name and tags; `decide` must be deterministic."""
        self._decide = decide
        self._table: SeriesTable | None = None
        self._by_code: dict[int, T] = {}
        self._by_series: dict[tuple[object, ...], T] = {}

    def of_lines(self, lines: Lines) -> Mapping[int, T]:
        """Return the decisions for all series of `lines`, and maybe for others, by number."""
        if self._table is not lines.table:  # in one table the number of a series never changes
            self._table, self._by_code = lines.table, {}
        codes = set(lines.series)
        new = codes.difference(self._by_code)
        if new and len(self._by_code) + len(new) > MAX_DECISIONS:
            self._by_code, new = {}, codes
        for code in new:
            series = lines.table.series[code]
            self._by_code[code] = self._decide(series.name, series.tags)
        return self._by_code

    def of_rows(self, lines: Lines) -> list[T]:
        """Return the decision for each row of `lines`."""
        if self._table is lines.table:
            with contextlib.suppress(KeyError):  # a series that is new
                return list(map(self._by_code.__getitem__, lines.series))
        return list(map(self.of_lines(lines).__getitem__, lines.series))

    def of(self, message: Message) -> T:
        """Return the decision for the series of a message."""
        key = (message.name, *message.tags.items())
        try:
            return self._by_series[key]
        except KeyError:
            if len(self._by_series) >= MAX_DECISIONS:
                self._by_series.clear()
            decided = self._by_series[key] = self._decide(message.name, message.tags)
            return decided


def fields_of(lines: Lines, decide: Callable[[str], T]) -> dict[int, T]:
    """Return a decision for each field that occurs in `lines`, by number.

    Field names come from outside, so a table may know a million: only those in hand are looked at.
    """
    only = lines.only_field  # as mostly
    codes = {only} if only is not None else set(lines.fields)
    return {code: decide(lines.table.fields[code]) for code in codes}
