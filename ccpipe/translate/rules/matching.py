"""Matching of series by name and tags, and rows of metrics, shared by all rules."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, is_number
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import PerSeries, Tags, fields_of, write_series
from ccpipe.message import Kind

T = TypeVar("T")

Row = tuple[Series, int | None, float]
"""A series, a timestamp in nanoseconds and a value."""

Matcher = Callable[[str, Tags], bool]
"""Returns whether a rule applies to a series, by name and tags."""


def is_metric(field: str) -> bool:
    return Kind.of(field) is Kind.METRIC


def matcher(names: Sequence[str], tags: Iterable[tuple[str, Sequence[str]]]) -> Matcher:
    """Return a function that matches a name with any of `names`, and each tag with its patterns.

    Patterns are shell patterns. Without patterns everything matches. Only a missing tag matches
    the empty pattern: line protocol has no empty tags.
    """
    name_fits = _any_of(names) if names else None
    tags_fit = [(tag, _any_of(patterns)) for tag, patterns in tags if patterns]

    def matches(name: str, tags: Tags) -> bool:
        if name_fits and not name_fits(name):
            return False
        return all(fits(tags.get(tag, "")) for tag, fits in tags_fit)

    return matches


def rule_matcher(names: Sequence[str], tags: Tags | None) -> Matcher:
    return matcher(names, [(tag, [pattern]) for tag, pattern in (tags or {}).items()])


def _any_of(patterns: Sequence[str]) -> Callable[[str], object]:
    # Only the empty pattern matches an empty text, so that `*` requires the tag.
    full = [f"(?=.)(?:{fnmatch.translate(pattern)})" for pattern in patterns if pattern]
    empty = [r"\Z"] if "" in patterns else []
    return re.compile("|".join(full + empty), re.DOTALL).match


def series(name: str, tags: Tags) -> Series | None:
    """Return a series as encoded in tables; None if line protocol cannot represent it."""
    try:
        return Series(name, dict(sorted(tags.items())), write_series(name, tags))
    except EncodeError:
        return None


def metric_rows(
    records: Lines, of_series: PerSeries[T | None]
) -> Iterator[tuple[T, int | None, float]]:
    """Yield the numbers of metrics, with what was decided for their series, if anything."""
    decided = of_series.of_lines(records)
    metrics = fields_of(records, is_metric)
    for row, code in enumerate(records.series):
        chosen = decided[code]
        if chosen is not None and metrics[records.fields[row]]:
            at, value = records.times[row], records.value(row)
            if is_number(value):
                yield chosen, None if at == NO_TIME else at, value


def with_rows(records: Lines, made: Sequence[Row]) -> Lines:
    """Return records and, after them, more rows."""
    lines = records.with_series(records.series[:])
    value_field = lines.table.field_code_of("value")
    for whole, at, value in made:
        code = lines.table.code_of(whole)
        lines.append(code, value_field, value, NO_TIME if at is None else at)
    lines.provenance = records.provenance and records.provenance.extended(len(lines))
    return lines
