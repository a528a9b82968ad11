"""Adds, renames and removes tags."""

from collections.abc import Mapping, Sequence

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, Series
from ccpipe.formats.lineprotocol.per_series import PerSeries, Tags
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.matching import relabel, rule_matcher, series


class Tag(Translator[Lines, Lines]):
    """Adds, renames and removes tags; names, values, times and the order are kept.

    Series that differ only in a tag that is removed become one: ``--explain`` reports them.
    """

    takes = gives = Lines

    def __init__(
        self,
        *,
        add: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        names: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Set the tags.

        Parameters
        ----------
        add
            Tags with their values, which replace earlier ones.
        remove
            Names of tags, removed before others are added.
        rename
            New names of tags by old ones, as in ``host = "hostname"``; a tag that has the new
            name already is replaced.
        names, tags
            Only series whose name matches one of these patterns and whose tags match all of
            theirs, as in `Select`.

        Raises
        ------
        ConfigError
            if there is nothing to add, rename or remove, or a tag is invalid.

        """
        if not (add or remove or rename):
            raise ConfigError("nothing to add, rename or remove")
        self._rename = dict(rename or {})
        for key in self._rename.values():
            if series("name", {key: "value"}) is None:
                raise ConfigError(f"rename: {key!r} cannot be a tag in line protocol")
        self._add = dict(add or {})
        for key, value in self._add.items():
            if not value or series("name", {key: value}) is None:
                raise ConfigError(f"add: {key!r} = {value!r} cannot be a tag in line protocol")
        self._remove = frozenset(remove)
        self._matches = rule_matcher(names, tags)
        self._new = PerSeries(self._decide)

    def feed(self, records: Lines) -> Lines:
        return relabel(records, self._new)

    def _decide(self, name: str, tags: Tags) -> Series | None:
        if not self._matches(name, tags):
            return None
        kept = {key: value for key, value in tags.items() if key not in self._remove}
        renamed = {new: kept.pop(old) for old, new in self._rename.items() if old in kept}
        return series(name, kept | renamed | self._add)
