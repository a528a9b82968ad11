"""Targets of the source ``prometheus_scrape``: from its recipe, and from files of Prometheus.

A file is what Prometheus reads as ``file_sd_configs``, in JSON::

    [{"targets": ["f0101:9100", "f0102:9100"], "labels": {"subcluster": "main"}}]

Source: Prometheus, *Configuration*, ``file_sd_config``. Of the labels that begin with ``__``, those
of the address are used: ``__scheme__``, ``__metrics_path__`` and ``__param_<name>``.
"""

import glob
import ipaddress
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from ccpipe.errors import ConfigError, DataError, system_reason
from ccpipe.formats import nodelist
from ccpipe.formats.lineprotocol.series import check_name

log = logging.getLogger(__name__)

MAX_FILE = 16 * 2**20
"""Maximum size of a file of targets in bytes."""

_TEXT = re.compile(r"(?:(https?)://)?(\[[0-9A-Fa-f:.]+\]|[^/?#\s@]+?)(:[0-9]{1,5})?(/[^\s#]*)?")
_PORTS = {"http": "80", "https": "443"}


class Target(NamedTuple):
    """An address to scrape, and the tags of its metrics."""

    url: str
    instance: str
    """The address for readers: without the scheme, and without the usual path."""
    tags: tuple[tuple[str, str], ...]


class TargetRules(NamedTuple):
    """What all targets of a source have in common."""

    scheme: str
    path: str
    short_hostnames: bool

    def targets(self, text: str, labels: Mapping[str, str]) -> Iterator[Target]:
        """Yield the target ``host``, ``host:port`` or a URL; the host may be a node list.

        Raises
        ------
        DataError
            if it is not one, or a label cannot be a tag.

        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise DataError(f"{text!r:.80} is not host:port or an http:// or https:// address")
        own_scheme, hosts, port, path = found.groups()
        scheme = own_scheme or labels.get("__scheme__", self.scheme)
        path = path or labels.get("__metrics_path__", self.path)
        parameters = {
            key.removeprefix("__param_"): value
            for key, value in labels.items()
            if key.startswith("__param_")
        }
        if parameters:
            path += ("&" if "?" in path else "?") + urlencode(parameters)
        tags = _tags(labels)
        for host in [hosts] if hosts.startswith("[") else nodelist.expand(hosts):
            address = f"{host}{port or ':' + _PORTS.get(scheme, '')}"
            url = f"{scheme}://{address}{path}"
            _check(url)
            instance = address if path == self.path else address + path
            named = {"hostname": self._hostname(host), "type": "node"} | tags
            yield Target(url, instance, tuple(sorted(named.items())))

    def _hostname(self, host: str) -> str:
        name = host.strip("[]")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.partition(".")[0] if self.short_hostnames else name
        return name


def _check(url: str) -> None:
    try:
        is_valid = urlsplit(url).port != 0 and urlsplit(url).scheme in _PORTS
    except ValueError:
        is_valid = False
    if not is_valid:
        raise DataError(f"{url!r:.80} is not an http:// or https:// address")


def _tags(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that are tags; Prometheus drops those that begin with two underscores."""
    tags = {key: value for key, value in labels.items() if value and not key.startswith("__")}
    for text in (*tags, *tags.values()):
        check_name(text)
    return tags


class TargetGroup(msgspec.Struct):
    """An element of a file; other keys are ignored."""

    targets: list[str]
    labels: dict[str, str] = {}


class TargetFiles:
    """The targets of files, which are read again when they change."""

    def __init__(self, patterns: Sequence[str], rules: TargetRules) -> None:
        """Read the files that match shell patterns."""
        self._patterns = patterns
        self._rules = rules
        self._seen: dict[str, tuple[int, int, int]] = {}
        """Time of change, size and inode of each file as last read."""
        self._targets: dict[str, list[Target]] = {}

    def read(self) -> list[Target]:
        """Return the targets; those of a file that cannot be read any more stay the same."""
        paths = sorted({path for each in self._patterns for path in glob.glob(each)})  # noqa: PTH207 - absolute patterns
        for path in self._seen.keys() - paths:
            del self._seen[path]
            self._targets.pop(path, None)
        for path in paths:
            try:
                self._read_if_changed(path)
            except (OSError, DataError, msgspec.DecodeError) as error:
                kept = "; its earlier targets are kept" if path in self._targets else ""
                log.warning("target_files: %s: %s%s", path, system_reason(error), kept)
        return [target for path in paths for target in self._targets.get(path, ())]

    def check(self) -> None:
        """Raise ConfigError if a pattern matches no file, or a file cannot be read."""
        for pattern in self._patterns:
            paths = glob.glob(pattern)  # noqa: PTH207 - absolute patterns
            if not paths:
                raise ConfigError(f"target_files: {pattern}: no such file")
            for path in paths:
                try:
                    self._load(path)
                except (OSError, DataError, msgspec.DecodeError) as error:
                    raise ConfigError(f"target_files: {path}: {system_reason(error)}") from None

    def _read_if_changed(self, path: str) -> None:
        status = Path(path).stat()
        seen = status.st_mtime_ns, status.st_size, status.st_ino
        if self._seen.get(path) != seen:
            self._seen[path] = seen  # so that an error is logged once
            self._targets[path] = self._load(path)

    def _load(self, path: str) -> list[Target]:
        with Path(path).open("rb") as file:
            text = file.read(MAX_FILE + 1)
        if len(text) > MAX_FILE:
            raise DataError(f"more than {MAX_FILE} bytes")
        groups = msgspec.json.decode(text, type=list[TargetGroup])
        return [
            target
            for group in groups
            for each in group.targets
            for target in self._rules.targets(each, group.labels)
        ]
