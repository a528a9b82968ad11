"""Matching of series by name and tags, shared by all rules."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Series
from ccpipe.formats.lineprotocol.series import Tags, write_series
from ccpipe.message import Kind

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
