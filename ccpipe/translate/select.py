"""Keep the records that match, drop the others: decided once a series, not once a row."""

import difflib
import fnmatch
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import and_

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, SeriesTable, ValueType
from ccpipe.message import Kind, Message, Value
from ccpipe.pipeline import Records

_NUMBERS = frozenset({ValueType.FLOAT, ValueType.INT, ValueType.UINT})
_IS_NUMBER = [kind in _NUMBERS for kind in ValueType]


class Select:
    """Keeps records that match everything that is asked for; what is not asked for is no hurdle.

    All but `kinds` are patterns as a shell's: ``*``, ``?``, ``[abc]``. A tag that is missing
    matches no pattern.
    """

    def __init__(
        self,
        *,
        kinds: Sequence[str] = (),
        clusters: Sequence[str] = (),
        nodes: Sequence[str] = (),
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        numeric: bool = False,
    ) -> None:
        """Take what to ask for.

        Parameters
        ----------
        kinds
            Categories: metric, event, log, control, other.
        clusters, nodes, names
            Patterns for the tag ``cluster``, the tag ``hostname`` and the measurement; one of
            each must match.
        tags
            A pattern for each of these tags; all must match.
        numeric
            Keep numbers only: neither texts nor booleans.

        Raises
        ------
        ConfigError
            for a kind that does not exist.

        """
        self._kinds = {_kind(kind) for kind in kinds}
        wanted = [("cluster", clusters), ("hostname", nodes)]
        wanted += [(tag, [pattern]) for tag, pattern in (tags or {}).items()]
        self._tags = [(tag, _any_of(patterns)) for tag, patterns in wanted if patterns]
        self._name = _any_of(names) if names else None
        self._numeric = numeric
        self._table: SeriesTable | None = None
        self._known: dict[int, bool] = {}

    def feed(self, records: Records) -> Records:
        """Return the records that match; `records` itself where all do."""
        if isinstance(records, Lines):
            return self._feed_lines(records)
        kept = [message for message in records if self.matches(message)]
        return records if len(kept) == len(records) else kept

    def flush(self) -> Records:
        """Return nothing: nothing is ever held."""
        return []

    def matches(self, message: Message) -> bool:
        """Say whether one message is kept."""
        return (
            self._takes_field(message.field)
            and not (self._numeric and not _is_number(message.value))
            and self._takes_series(message.name, message.tags)
        )

    def _takes_field(self, field: str) -> bool:
        return not self._kinds or Kind.of(field) in self._kinds

    def _takes_series(self, name: str, tags: Mapping[str, str]) -> bool:
        if self._name and not self._name(name):
            return False
        return all(tag in tags and matches(tags[tag]) for tag, matches in self._tags)

    def _feed_lines(self, lines: Lines) -> Lines:
        table = lines.table
        fields = [self._takes_field(field) for field in table.fields]
        keep = list(map(self._series_of(lines).__getitem__, lines.series))
        if not all(fields):
            keep = list(map(and_, keep, map(fields.__getitem__, lines.fields)))
        if self._numeric:
            keep = list(map(and_, keep, map(_IS_NUMBER.__getitem__, lines.types)))
        return lines if all(keep) else take(lines, keep)

    def _series_of(self, lines: Lines) -> dict[int, bool]:
        """Decide for the series that are new; a number means the same in one table for ever."""
        if self._table is not lines.table:
            self._table, self._known = lines.table, {}
        for code in set(lines.series).difference(self._known):
            series = lines.table.series[code]
            self._known[code] = self._takes_series(series.name, series.tags)
        return self._known


def take(lines: Lines, keep: Sequence[int]) -> Lines:
    """Return the rows for which `keep` is true; texts, bytes and rejected lines are shared."""
    part = Lines(lines.payload, lines.table)
    for column in ("series", "fields", "types", "numbers", "exact", "times", "starts", "ends"):
        whole: array[int] = getattr(lines, column)
        setattr(part, column, array(whole.typecode, compress(whole, keep)))
    part.texts = lines.texts
    part.rejected = lines.rejected
    part.precision = lines.precision
    # A line of which one field was dropped must not travel on as the bytes it was.
    dropped = set(compress(lines.starts, (not kept for kept in keep)))
    part.verbatim = lines.verbatim and dropped.isdisjoint(part.starts)
    return part


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        close = difflib.get_close_matches(name, list(Kind), n=1)
        hint = f"did you mean {str(close[0])!r}?" if close else f"known are {', '.join(Kind)}"
        raise ConfigError(f"kinds: there is no kind {name!r}; {hint}") from None


def _any_of(patterns: Sequence[str]) -> Callable[[str], object]:
    return re.compile("|".join(map(fnmatch.translate, patterns))).match


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
