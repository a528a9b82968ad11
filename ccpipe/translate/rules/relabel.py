"""Renames metrics, and adds, renames and removes tags."""

import re
from array import array
from collections.abc import Mapping, Sequence

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, Series
from ccpipe.formats.lineprotocol.series import PerSeries, Tags
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.matching import rule_matcher, series


class Rename(Translator[Lines, Lines]):
    """Renames measurements; tags, values, times and the order are kept.

    The first old name that matches counts. Series that have the same name and tags afterwards
    become one: ``--explain`` reports them.
    """

    takes = gives = Lines

    def __init__(self, *, names: Mapping[str, str], tags: Mapping[str, str] | None = None) -> None:
        """Set the names.

        Parameters
        ----------
        names
            New names by old ones. One ``*`` in an old name matches any characters, and a ``*`` in
            the new one is replaced by them: ``"nv_*" = "gpu_*"``. ``{tag}`` in a new name is
            replaced by the value of that tag, where every character but ``A-Z a-z 0-9 _`` becomes
            ``_``: ``net_bytes_in = "net_bytes_in_{stype-id}"``. Series without the tag do not
            match.
        tags
            Only series whose tags match these patterns, as in `Select`.

        Raises
        ------
        ConfigError
            if a name is invalid, or has too many ``*``.

        """
        if not names:
            raise ConfigError("names: expected at least one")
        self._names = [(_pattern(old), _checked(old, new)) for old, new in names.items()]
        self._matches = rule_matcher((), tags)
        self._new = PerSeries(self._decide)

    def feed(self, records: Lines) -> Lines:
        return relabel(records, self._new)

    def _decide(self, name: str, tags: Tags) -> Series | None:
        if not self._matches(name, tags):
            return None
        for old, new in self._names:
            if (found := old.fullmatch(name)) and tags.keys() >= set(_TAG.findall(new)):
                filled = _TAG.sub(lambda tag: _NOT_IN_NAMES.sub("_", tags[tag[1]]), new)
                return series(filled.replace("*", "".join(found.groups())), tags)
        return None


_TAG = re.compile(r"\{([^{}]+)\}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def _pattern(old: str) -> re.Pattern[str]:
    if old.count("*") > 1:
        raise ConfigError(f"names: {old!r} has more than one *")
    if series(old, {}) is None:
        raise ConfigError(f"names: {old!r} cannot be a name in line protocol")
    return re.compile("(.*)".join(map(re.escape, old.split("*"))), re.DOTALL)


def _checked(old: str, new: str) -> str:
    if new.count("*") > old.count("*"):
        raise ConfigError(f"names: {new!r} has more * than {old!r}")
    if series(new, {}) is None:
        raise ConfigError(f"names: {new!r} cannot be a name in line protocol")
    return new


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
            Tags with their values, which replace earlier ones. ``{name}`` in a value is replaced
            by the metric's name.
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
        added = {key: value.replace("{name}", name) for key, value in self._add.items()}
        return series(name, kept | renamed | added)


def relabel(records: Lines, new: PerSeries[Series | None]) -> Lines:
    """Replace the series of records; None leaves one as it is."""
    decided = new.of_lines(records)
    codes = {
        code: code if (other := decided[code]) is None else records.table.code_of(other)
        for code in set(records.series)
    }
    if all(old == code for old, code in codes.items()):
        return records
    return records.with_series(array("i", map(codes.__getitem__, records.series)))
