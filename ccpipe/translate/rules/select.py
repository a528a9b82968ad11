"""Keep the records that match, or drop them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, not_

from ccpipe.errors import ConfigError, suggestion
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.lineprotocol.series import PerSeries, fields_of
from ccpipe.formats.lineprotocol.values import IS_NUMBER
from ccpipe.message import Kind
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.matching import matcher


class Select(Translator[Lines, Lines]):
    """Keeps the records that match every given option.

    All but `kinds` are shell patterns: ``*``, ``?``, ``[abc]``. A missing tag matches the empty
    pattern only.
    """

    takes = gives = Lines

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
        """Set what to keep.

        Parameters
        ----------
        kinds
            Categories: metric, event, log, control, other.
        clusters, nodes, names
            Patterns for the tag ``cluster``, the tag ``hostname`` and the measurement; one of
            each list must match.
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
        self._series = PerSeries(matcher(names, wanted))
        self._any_series = not (names or clusters or nodes or tags)
        self._numeric = numeric

    def feed(self, records: Lines) -> Lines:
        keep = self.rows(records)
        return records if keep is None or all(keep) else records.take(keep)

    def _keeps_field(self, field: str) -> bool:
        return not self._kinds or Kind.of(field) in self._kinds

    def rows(self, lines: Lines) -> list[bool] | None:
        """Return for each row whether it is kept; None if all are, without checking each."""
        rules: list[Iterable[bool]] = []
        if not self._any_series:
            rules.append(self._series.of_rows(lines))
        if self._kinds:
            fields = fields_of(lines, self._keeps_field)
            if not all(fields.values()):
                rules.append(map(fields.__getitem__, lines.fields))
        if self._numeric and not lines.used_types <= _NUMBERS:
            rules.append(map(IS_NUMBER.__getitem__, lines.types))
        if not rules:
            return None
        return list(reduce(lambda one, other: map(and_, one, other), rules))


class Drop(Translator[Lines, Lines]):
    """Drops the records that match every given option: those that `Select` would keep.

    All but `kinds` are shell patterns: ``*``, ``?``, ``[abc]``. A missing tag matches the empty
    pattern only.
    """

    takes = gives = Lines

    def __init__(
        self,
        *,
        kinds: Sequence[str] = (),
        clusters: Sequence[str] = (),
        nodes: Sequence[str] = (),
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Set what to drop.

        Parameters
        ----------
        kinds
            Categories: metric, event, log, control, other.
        clusters, nodes, names
            Patterns for the tag ``cluster``, the tag ``hostname`` and the measurement; one of
            each list must match.
        tags
            A pattern for each of these tags; all must match.

        Raises
        ------
        ConfigError
            for a kind that does not exist, and without any option: that would drop all.

        """
        if not (kinds or clusters or nodes or names or tags):
            raise ConfigError("no option is given, which would drop everything")
        self._select = Select(kinds=kinds, clusters=clusters, nodes=nodes, names=names, tags=tags)

    def feed(self, records: Lines) -> Lines:
        drop = self._select.rows(records)
        if drop is None:
            return records.take([False] * len(records))
        return records.take(list(map(not_, drop))) if any(drop) else records


_NUMBERS = frozenset(kind for kind, is_number in enumerate(IS_NUMBER) if is_number)


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        hint = suggestion(name, map(str, Kind), f"expected {', '.join(Kind)}")
        raise ConfigError(f"kinds: unknown kind {name!r}; {hint}") from None
