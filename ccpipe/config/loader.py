"""Configuration from a file, the environment and flags, merged into one Struct."""

import contextlib
import difflib
import functools
import logging
import os
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ccpipe.config.converter import bare_type, field_types, to_struct, type_at
from ccpipe.config.files import read_toml
from ccpipe.config.site import Recipe
from ccpipe.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")

ENVIRONMENT = "CCPIPE_"
"""Prefix of environment variables; ``__`` enters a table: ``CCPIPE_BUS__SERVERS=nats://a,nats://b``."""

_NOT_CONFIGURATION = (
    r"CCPIPE_(?:CONFIG|KERNEL|LOGLEVEL|TESTS_STRICT"
    # read by nats.conf
    r"|(?:NODE|BRIDGE|VIEWER|OPERATOR)_PASSWORD"
    # set by Kubernetes in every pod if a Service's name begins with ccpipe
    r"|(?!.*__)(?:.+_)?(?:SERVICE_(?:HOST|PORT)(?:_.+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_.+)?)?))"
)


def load(
    path: Path | None,
    kind: type[T],
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    below: Mapping[str, Any] | None = None,
) -> T:
    """Build a Struct of `kind` from a file, the environment and `flags`; later ones override.

    `flags` are given by key path (``{"bus.servers": [...]}``); None means not given. `below` are
    values that the file overrides: a recipe overrides the site's configuration. Raises ConfigError
    naming the file, the key path and, for an unknown key, the most similar one.
    """
    tree: dict[str, Any] = merge_tables(dict(below or {}), read_toml(path) if path else {})
    origins: dict[str, str] = {}  # of values that are not from the file
    for name, stems, text in _variables(os.environ if environ is None else environ):
        if stems[0] in field_types(kind) or stems[0] not in field_types(Recipe):
            set_at_path(tree, stems, split_list(text, type_at(kind, stems)), name)
            origins[".".join(stems)] = name
    for key, value in (flags or {}).items():
        if value is not None:
            set_at_path(tree, key.split("."), value, key)
            origins[key] = "command line"
    return to_struct(tree, kind, str(path or "configuration"), origins=origins)


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, list[str], str]]:
    """Yield the environment variables that are settings: name, key path and value.

    Other variables that begin with ``CCPIPE_`` are reported once and ignored. One that contains
    ``__`` or resembles a setting counts as a setting, so that a typo is still an error.
    """
    for name, text in environ.items():
        if not name.startswith(ENVIRONMENT) or re.fullmatch(_NOT_CONFIGURATION, name):
            continue
        stems = name.removeprefix(ENVIRONMENT).lower().split("__")
        if len(stems) == 1 and stems[0] not in field_types(Recipe):
            if meant := _similar_setting(stems[0]):
                raise ConfigError(f"{name}: unknown setting; did you mean {meant}?")
            _report_unknown(name)
        else:
            yield name, stems, text


def _similar_setting(stem: str) -> str | None:
    """Return the variable that was probably meant by ``CCPIPE_<stem>``."""
    for table in ("source", "sink"):  # their keys depend on the part
        if stem.startswith(f"{table}_"):
            return f"{ENVIRONMENT}{table}__{stem.removeprefix(f'{table}_')}".upper()
    paths = {"_".join(path): path for path in _key_paths(Recipe)}
    close = difflib.get_close_matches(stem, paths, n=1, cutoff=0.75)
    return f"{ENVIRONMENT}{'__'.join(paths[close[0]])}".upper() if close else None


def _key_paths(
    kind: type[msgspec.Struct], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for key, inner in field_types(kind).items():
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from _key_paths(inner, (*above, key))
        else:
            yield *above, key


@functools.cache
def _report_unknown(name: str) -> None:
    log.warning("%s is not a setting and is ignored; `ccpipe config show` lists settings", name)


def split_list(text: Any, kind: Any) -> Any:
    """Split the text of an environment variable where a list is expected.

    Text is split at commas. If the type depends on a part, such as for options of a sink, a list
    is written as in TOML: ``["a:1", "b:2"]``.
    """
    if isinstance(text, str) and typing.get_origin(bare_type(kind)) is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(text, str) and kind is Any and text.startswith("["):
        with contextlib.suppress(ValueError):  # not a list: text that begins with a bracket
            return tomllib.loads(f"list = {text}")["list"]
    return text


def merge_tables(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `above` into `below`: tables are merged, other values replaced."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            below[key] = merge_tables(dict(below[key]), value)
        else:
            below[key] = value
    return below


def set_at_path(tree: dict[str, Any], path: list[str], value: Any, name: str) -> None:
    """Set a value at a key path; raises ConfigError if something on the path is not a table."""
    *stems, leaf = path
    for stem in stems:
        below = tree.get(stem, {})
        if not isinstance(below, Mapping):
            raise ConfigError(f"{name}: {stem} is not a table")
        tree[stem] = dict(below)
        tree = tree[stem]
    tree[leaf] = value
