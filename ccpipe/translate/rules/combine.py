"""Adds and subtracts metrics of the same thing: used memory is total memory minus the free one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, Series
from ccpipe.formats.lineprotocol.series import PerSeries, Tags
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.aggregate import exact_sum, finite
from ccpipe.translate.rules.matching import Row, metric_rows, rule_matcher, series, with_rows


class _Term(NamedTuple):
    """A metric of the result's series."""

    result: Series
    name: str


class Combine(Translator[Lines, Lines]):
    """Computes the sum of some metrics minus others that have the same tags and timestamp.

    All of them must be in one batch: in one sample of a node, in one scrape of a target. The result
    follows all records, which are kept. Where one of the metrics is missing, there is none.
    """

    takes = gives = Lines

    def __init__(
        self,
        *,
        name: str,
        add: Sequence[str],
        subtract: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Set the terms.

        Parameters
        ----------
        name
            Name of the result.
        add, subtract
            Names of the metrics that are added and subtracted.
        tags
            Only series whose tags match these patterns, as in `Select`.

        Raises
        ------
        ConfigError
            if the name is invalid, there is nothing to add, or a metric occurs twice.

        """
        if series(name, {}) is None:
            raise ConfigError(f"name: {name!r} cannot be a name in line protocol")
        if not add:
            raise ConfigError("add: expected at least one name")
        self._signs = dict.fromkeys(add, 1) | dict.fromkeys(subtract, -1)
        if len(self._signs) < len(add) + len(subtract) or name in self._signs:
            raise ConfigError("add: a metric may occur once in name, add and subtract")
        self._name = name
        self._matches = rule_matcher((), tags)
        self._terms = PerSeries(self._decide)

    def feed(self, records: Lines) -> Lines:
        found: dict[tuple[bytes, int | None], tuple[Series, dict[str, float]]] = {}
        for term, at, value in metric_rows(records, self._terms):
            point = term.result.key, at
            found.setdefault(point, (term.result, {}))[1][term.name] = value
        made: list[Row] = []
        for (_, at), (result, values) in found.items():
            if len(values) == len(self._signs):
                terms = [self._signs[name] * value for name, value in values.items()]
                total = finite(exact_sum, terms)
                if total is not None:
                    made.append((result, at, total))
        return with_rows(records, made) if made else records

    def _decide(self, name: str, tags: Tags) -> _Term | None:
        if name not in self._signs or not self._matches(name, tags):
            return None
        result = series(self._name, tags)
        return result and _Term(result, name)
