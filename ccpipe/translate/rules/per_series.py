"""What rules share: the series that they are for, and one decision for each series or field."""

import contextlib
import fnmatch
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable
from ccpipe.formats.lineprotocol.series import write_series
from ccpipe.message import Kind, Message

T = TypeVar("T")

Tags = Mapping[str, str]
Matcher = Callable[[str, Tags], bool]
"""Says of a name and its tags whether a rule is for them."""

MAX_DECISIONS = 1 << 16
"""Decisions that are remembered beside those of the batch in hand."""


class PerSeries(Generic[T]):
    """Decisions of a rule by series, remembered for the batches that follow.

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


def is_metric(field: str) -> bool:
    """Say whether a field key is that of a metric."""
    return Kind.of(field) is Kind.METRIC


def matcher(names: Sequence[str], tags: Iterable[tuple[str, Sequence[str]]]) -> Matcher:
    """Return a function that matches a name with any of `names`, and each tag with its patterns.

    Patterns are those of a shell. Without patterns everything matches. A missing tag matches the
    empty pattern, which nothing else does: line protocol has no empty tags.
    """
    name_fits = _any_of(names) if names else None
    tags_fit = [(tag, _any_of(patterns)) for tag, patterns in tags if patterns]

    def matches(name: str, tags: Tags) -> bool:
        if name_fits and not name_fits(name):
            return False
        return all(fits(tags.get(tag, "")) for tag, fits in tags_fit)

    return matches


def rule_matcher(names: Sequence[str], tags: Tags | None) -> Matcher:
    """Return the matcher for a rule's options ``names`` and ``tags``: one pattern for each tag."""
    return matcher(names, [(tag, [pattern]) for tag, pattern in (tags or {}).items()])


def _any_of(patterns: Sequence[str]) -> Callable[[str], object]:
    # Only the empty pattern matches an empty text, so that `*` requires the tag.
    full = [f"(?=.)(?:{fnmatch.translate(pattern)})" for pattern in patterns if pattern]
    empty = [r"\Z"] if "" in patterns else []
    return re.compile("|".join(full + empty), re.DOTALL).match


def series(name: str, tags: Tags) -> Series | None:
    """Return a series as tables hold it; None where line protocol cannot carry it."""
    try:
        return Series(name, dict(sorted(tags.items())), write_series(name, tags))
    except EncodeError:
        return None


def relabel(records: Sequence[Message], new: PerSeries[Series | None]) -> Sequence[Message]:
    """Replace the series of records; None leaves one as it is."""
    if not isinstance(records, Lines):
        return [_relabelled(message, new.of(message)) for message in records]
    decided = new.of_lines(records)
    codes = {
        code: code if (other := decided[code]) is None else records.table.code_of(other)
        for code in set(records.series)
    }
    if all(old == code for old, code in codes.items()):
        return records
    return records.with_series(array("i", map(codes.__getitem__, records.series)))


def _relabelled(message: Message, new: Series | None) -> Message:
    if new is None:
        return message
    return Message(new.name, new.tags, message.value, message.time, message.field)
