"""What rules share: which series they are for, and deciding once a series, not once a row."""

import fnmatch
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable
from ccpipe.formats.lineprotocol.series import write_series
from ccpipe.message import Message

T = TypeVar("T")

Tags = Mapping[str, str]
Matcher = Callable[[str, Tags], bool]
"""Says of a name and its tags whether a rule is for them."""

_MOST_KNOWN = 1 << 16


class PerSeries(Generic[T]):
    """What a rule decides of a series, remembered for the next time that the series comes."""

    def __init__(self, decide: Callable[[str, Tags], T]) -> None:
        """Decide by name and tags; `decide` must say the same whenever it is asked the same."""
        self._decide = decide
        self._table: SeriesTable | None = None
        self._codes: dict[int, T] = {}
        self._lately: dict[tuple[object, ...], T] = {}

    def of_lines(self, lines: Lines) -> dict[int, T]:
        """Return what is decided of each series of `lines`, by its number, and of others too."""
        if self._table is not lines.table:  # a number means the same in one table for ever
            self._table, self._codes = lines.table, {}
        for code in set(lines.series).difference(self._codes):
            series = lines.table.series[code]
            self._codes[code] = self._decide(series.name, series.tags)
        return self._codes

    def of(self, message: Message) -> T:
        """Return what is decided of a message's series."""
        key = (message.name, *message.tags.items())
        try:
            return self._lately[key]
        except KeyError:
            if len(self._lately) >= _MOST_KNOWN:
                self._lately.clear()
            decided = self._lately[key] = self._decide(message.name, message.tags)
            return decided


def matcher(names: Sequence[str], tags: Iterable[tuple[str, Sequence[str]]]) -> Matcher:
    """Return what says whether a name fits one of `names` and each tag one of its patterns.

    Patterns are those of a shell. Where there are none they are no hurdle. A tag that is missing
    fits the empty pattern only, which no other tag does: line protocol has no empty tags.
    """
    name_fits = _any_of(names) if names else None
    tags_fit = [(tag, _any_of(patterns)) for tag, patterns in tags if patterns]

    def matches(name: str, tags: Tags) -> bool:
        if name_fits and not name_fits(name):
            return False
        return all(fits(tags.get(tag, "")) for tag, fits in tags_fit)

    return matches


def rule_matcher(names: Sequence[str], tags: Tags | None) -> Matcher:
    """Return the matcher of a rule's options ``names`` and ``tags``, of one pattern each."""
    return matcher(names, [(tag, [pattern]) for tag, pattern in (tags or {}).items()])


def _any_of(patterns: Sequence[str]) -> Callable[[str], object]:
    # Only the empty pattern fits what is empty, so that `*` asks for a tag that is there.
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
    """Give the series of records another name or other tags; None leaves one as it is."""
    if not isinstance(records, Lines):
        return [_relabelled(message, new.of(message)) for message in records]
    decided = new.of_lines(records)
    moved = {
        code: code if (other := decided[code]) is None else records.table.code_of(other)
        for code in set(records.series)
    }
    if all(old == code for old, code in moved.items()):
        return records
    return with_series(records, array("i", map(moved.__getitem__, records.series)))


def _relabelled(message: Message, new: Series | None) -> Message:
    if new is None:
        return message
    return Message(new.name, new.tags, message.value, message.time, message.field)


def with_series(lines: Lines, codes: "array[int]") -> Lines:
    """Return the same rows of other series; they are no longer what their bytes say."""
    part = lines[:]
    part.rejected = lines.rejected
    part.series = codes
    part.verbatim = False
    return part
