"""Functions of series or field, evaluated once for all rows that share them."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.formats.lineprotocol.series import SeriesTable
from ccpipe.message import Message

T = TypeVar("T")

Tags = Mapping[str, str]

MAX_DECISIONS = 1 << 16
"""Maximum number of cached results besides those of the current batch."""


class PerSeries(Generic[T]):
    """Results by series, cached for later batches.

    The cost of a batch depends on its own rows and series, however many series are known.
    """

    def __init__(self, decide: Callable[[str, Tags], T]) -> None:
        """Cache results by name and tags; `decide` must be deterministic."""
        self._decide = decide
        self._table: SeriesTable | None = None
        self._by_code: dict[int, T] = {}
        self._by_series: dict[tuple[object, ...], T] = {}

    def of_lines(self, lines: Lines) -> Mapping[int, T]:
        """Return the results for all series of `lines`, and maybe for others, by code."""
        if self._table is not lines.table:  # in one table the code of a series never changes
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
        if self._table is lines.table:
            with contextlib.suppress(KeyError):  # a new series
                return list(map(self._by_code.__getitem__, lines.series))
        return list(map(self.of_lines(lines).__getitem__, lines.series))

    def of(self, message: Message) -> T:
        key = (message.name, *message.tags.items())
        try:
            return self._by_series[key]
        except KeyError:
            if len(self._by_series) >= MAX_DECISIONS:
                self._by_series.clear()
            decided = self._by_series[key] = self._decide(message.name, message.tags)
            return decided


def fields_of(lines: Lines, decide: Callable[[str], T]) -> dict[int, T]:
    """Return a result for each field that occurs in `lines`, by code.

    Field names come from outside, so a table may know a million: only those of the batch are
    evaluated.
    """
    only = lines.only_field  # the common case
    codes = {only} if only is not None else set(lines.fields)
    return {code: decide(lines.table.fields[code]) for code in codes}
