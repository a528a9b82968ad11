"""Names to classes, for built-ins and plug-ins alike, through entry points.

A part's options are the keyword arguments of its class: their annotations are the schema that a
recipe's table is checked against. Arguments named in `context` (``site``, ``telemetry``) are
given by ccpipe itself.
"""

import difflib
import inspect
import typing
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import msgspec

from ccpipe.config import convert, split
from ccpipe.errors import ConfigError, UsageError

GROUPS = ("collectors", "sources", "codecs", "translators", "sinks")
"""Entry-point groups are these with ``ccpipe.`` before them."""

PARTS = {"codec": "codecs"}
"""Options that are parts themselves, and the group of their names."""


MOVED = {
    ("sources", "sonar"): 'use = "nats" with codec = "sonar"',
    ("sinks", "sonar"): 'use = "nats" with codec = "sonar"',
}
"""Names of before, and what is written instead."""

MOVED_OPTIONS = {
    ("nats", key): f'codec = {{ use = "line", {key} = … }}' for key in ("precision", "lenient")
}
"""Options of before by the name of their part, and what is written instead."""


def names(group: str) -> dict[str, metadata.EntryPoint]:
    """Return what is installed in a group, by name."""
    found = metadata.entry_points(group=f"ccpipe.{group}")
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


def find(group: str, name: str, where: str) -> type[Any]:
    """Load the class that a name stands for.

    Raises
    ------
    ConfigError
        beginning with `where`, if there is no such name or its class cannot be loaded; it
        suggests the nearest.
    MissingExtra
        if the class needs a library that is not installed.

    """
    known = names(group)
    if name not in known:
        if instead := MOVED.get((group, name)):
            raise ConfigError(f"{where}: {name!r} is now {instead}")
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise ConfigError(f"{where}: there is no {group[:-1]} {name!r}; {hint}")
    entry = known[name]
    try:
        cls: type[Any] = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {name!r} is {entry.value}, which fails: {error}") from error
    return cls


def build(
    group: str, options: Mapping[str, Any], *, where: str, path: str, context: Mapping[str, Any]
) -> Any:
    """Make a part from its table in a recipe, whose key ``use`` names the class.

    `where` (a file) and `path` (a key path) begin the place that an error names.

    Raises
    ------
    ConfigError
        naming the key that is unknown, missing or of the wrong type.

    """
    rest = dict(options)
    name = rest.pop("use", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"{where}: {path}: the key 'use' must name one of {', '.join(names(group))}"
        )
    for key in rest:
        if instead := MOVED_OPTIONS.get((name, key)):
            raise ConfigError(f"{where}: {path}.{key}: is now {instead}")
    cls = find(group, name, f"{where}: {path}.use")
    return construct(cls, rest, where=where, path=path, context=context)


def construct(
    cls: type[Any],
    options: Mapping[str, Any],
    *,
    where: str,
    path: str,
    context: Mapping[str, Any],
) -> Any:
    """Make an object of `cls` from options that its annotations check."""
    schema = options_of(cls, context)
    kinds = {field.name: field.type for field in msgspec.structs.fields(schema)}
    lists = {key: split(value, kinds.get(key)) for key, value in options.items()}
    checked = convert(lists, schema, where, path)
    values = msgspec.structs.asdict(checked)
    for key in PARTS.keys() & values.keys():
        if values[key] is not None:
            table = {"use": values[key]} if isinstance(values[key], str) else values[key]
            values[key] = build(
                PARTS[key], table, where=where, path=f"{path}.{key}", context=context
            )
    given = {name: context[name] for name in inspect.signature(cls).parameters if name in context}
    try:
        return cls(**values, **given)
    except (ConfigError, UsageError) as error:
        raise ConfigError(f"{where}: {path}: {error}") from None


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def options_of(cls: type[Any], context: Mapping[str, Any] | None = None) -> type[msgspec.Struct]:
    """Return the options of a class as a Struct: one field for each keyword argument."""
    hints = typing.get_type_hints(cls.__init__)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in (context or ()) or parameter.kind in _VARIADIC:
            continue
        if name in PARTS:
            hints[name] = str | dict[str, Any] | None
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, hints.get(name, Any)))
        else:
            default = parameter.default
            if isinstance(default, list | dict | set):
                default = msgspec.field(default_factory=default.copy)
            fields.append((name, hints.get(name, Any), default))
    return msgspec.defstruct(
        cls.__name__, fields, kw_only=True, frozen=True, forbid_unknown_fields=True
    )
