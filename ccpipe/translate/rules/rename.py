"""Renames metrics."""

import re
from collections.abc import Mapping

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, Series
from ccpipe.formats.lineprotocol.per_series import PerSeries, Tags
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.matching import relabel, rule_matcher, series


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
            the new one stands for them: ``"nv_*" = "gpu_*"``. ``{tag}`` in a new name stands for
            the value of that tag, where every character but ``A-Z a-z 0-9 _`` becomes ``_``:
            ``net_bytes_in = "net_bytes_in_{stype-id}"``. Series without the tag do not match.
        tags
            Only series whose tags match these patterns, as in `Select`.

        Raises
        ------
        ConfigError
            if a name cannot be one, or holds too many ``*``.

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
        raise ConfigError(f"names: {old!r} holds more than one *")
    if series(old, {}) is None:
        raise ConfigError(f"names: {old!r} cannot be a name in line protocol")
    return re.compile("(.*)".join(map(re.escape, old.split("*"))), re.DOTALL)


def _checked(old: str, new: str) -> str:
    if new.count("*") > old.count("*"):
        raise ConfigError(f"names: {new!r} holds more * than {old!r}")
    if series(new, {}) is None:
        raise ConfigError(f"names: {new!r} cannot be a name in line protocol")
    return new
