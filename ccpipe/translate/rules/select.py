"""Keep the records that match, or drop them: decided once a series, not once a row."""

import difflib
from array import array
from collections.abc import Mapping, Sequence
from itertools import compress
from operator import and_, not_
from typing import TypeGuard

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Kind, Message, Value
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.per_series import PerSeries, matcher

_NUMBERS = frozenset({ValueType.FLOAT, ValueType.INT, ValueType.UINT})
_IS_NUMBER = [kind in _NUMBERS for kind in ValueType]


class Select(Translator):
    """Keeps records that match everything that is asked for; what is not asked for is no hurdle.

    All but `kinds` are patterns as a shell's: ``*``, ``?``, ``[abc]``. A tag that is missing
    matches no pattern but the empty one, which asks for just that.
    """

    takes = gives = Messages

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
            Numbers only: neither texts nor booleans.

        Raises
        ------
        ConfigError
            for a kind that does not exist.

        """
        self._kinds = {_kind(kind) for kind in kinds}
        wanted = [("cluster", clusters), ("hostname", nodes)]
        wanted += [(tag, [pattern]) for tag, pattern in (tags or {}).items()]
        self._series = PerSeries(matcher(names, wanted))
        self._numeric = numeric

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Return the records that match; `records` itself where all do."""
        if isinstance(records, Lines):
            keep = self.rows(records)
            return records if all(keep) else take(records, keep)
        kept = [message for message in records if self.matches(message)]
        return records if len(kept) == len(records) else kept

    def matches(self, message: Message) -> bool:
        """Say whether one message is asked for."""
        return (
            self._takes_field(message.field)
            and not (self._numeric and not is_number(message.value))
            and self._series.of(message)
        )

    def _takes_field(self, field: str) -> bool:
        return not self._kinds or Kind.of(field) in self._kinds

    def rows(self, lines: Lines) -> list[bool]:
        """Say of each row whether it is asked for."""
        fields = [self._takes_field(field) for field in lines.table.fields]
        rows = list(map(self._series.of_lines(lines).__getitem__, lines.series))
        if not all(fields):
            rows = list(map(and_, rows, map(fields.__getitem__, lines.fields)))
        if self._numeric:
            rows = list(map(and_, rows, map(_IS_NUMBER.__getitem__, lines.types)))
        return rows


class Drop(Translator):
    """Drops records that match everything that is asked for: what `Select` with this would keep.

    All but `kinds` are patterns as a shell's: ``*``, ``?``, ``[abc]``. A tag that is missing
    matches no pattern but the empty one, which asks for just that.
    """

    takes = gives = Messages

    def __init__(
        self,
        *,
        kinds: Sequence[str] = (),
        clusters: Sequence[str] = (),
        nodes: Sequence[str] = (),
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Take what to ask for, as `Select` does.

        Raises
        ------
        ConfigError
            for a kind that does not exist, and where nothing is asked for: all would go.

        """
        if not (kinds or clusters or nodes or names or tags):
            raise ConfigError("nothing is asked for, and that would drop everything")
        self._select = Select(kinds=kinds, clusters=clusters, nodes=nodes, names=names, tags=tags)

    def feed(self, records: Sequence[Message]) -> Sequence[Message]:
        """Return the records that do not match; `records` itself where none does."""
        if isinstance(records, Lines):
            drop = self._select.rows(records)
            return take(records, list(map(not_, drop))) if any(drop) else records
        kept = [message for message in records if not self._select.matches(message)]
        return records if len(kept) == len(records) else kept


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


def is_number(value: Value) -> TypeGuard[float]:
    """Say whether a payload is a number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
