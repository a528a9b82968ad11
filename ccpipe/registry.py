"""Classes by name, for built-in parts and plug-ins alike, through entry points.

The options of a part are the keyword arguments of its class; a recipe's table is validated
against their annotations. Arguments named in `context` (``site``, ``telemetry``) are supplied by
ccpipe. A translator may be a function from records to records; its further arguments are options.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import msgspec

from ccpipe.bus.codecs import Codec
from ccpipe.config import split_list, to_struct
from ccpipe.errors import ConfigError, UsageError, suggestion
from ccpipe.pipeline import Sink, Source, Translator, fault_of, translator_interface

GROUPS = ("collectors", "sources", "codecs", "translators", "sinks")
"""Entry-point groups, without the prefix ``ccpipe.``."""

NESTED = {"codec": "codecs", "publish": "sinks"}
"""Options that are themselves parts, with the group of each."""

INTERFACES: Mapping[str, type[Any]] = {
    "codecs": Codec,
    "sources": Source,
    "translators": Translator,
    "sinks": Sink,
}
"""Protocols of the parts of a group; collectors are checked where they are constructed."""

Part = type[Any] | Callable[..., Any]
"""The class of a part, or the function of a translator."""


def entry_points(group: str) -> dict[str, metadata.EntryPoint]:
    """Return the entry points of a group ``ccpipe.…``, by name and in its order."""
    return {entry.name: entry for entry in sorted(metadata.entry_points(group=f"ccpipe.{group}"))}


def find(group: str, name: str, where: str) -> Part:
    """Load the class or the function registered under a name.

    Raises ConfigError, beginning with `where`, if it is unknown, with the most similar name, or
    cannot be loaded; MissingExtra if it needs a library that is not installed.
    """
    known = entry_points(group)
    if name not in known:
        raise ConfigError(f"{where}: unknown {group[:-1]} {name!r}; {suggestion(name, known)}")
    entry = known[name]
    try:
        cls: Part = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {name!r}: cannot load {entry.value}: {error}") from error
    return cls


def build(
    group: str, options: Mapping[str, Any], *, where: str, path: str, context: Mapping[str, Any]
) -> Any:
    """Construct a part from its table in a recipe, whose key ``use`` names the class.

    Raises ConfigError that begins with `where` (a file) and `path` (a key path), and names the key.
    """
    rest = dict(options)
    name = rest.pop("use", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"{where}: {path}: the key 'use' must name one of {', '.join(entry_points(group))}"
        )
    cls = find(group, name, f"{where}: {path}.use")
    place = f"{where}: {path}: {name!r}: {getattr(cls, '__module__', '')}.{name_of(cls)}"
    require_conforming(group, cls, place)
    part = construct(cls, rest, where=where, path=path, context=context)
    require_conforming(group, part, place)
    return part


def name_of(cls: Part) -> str:
    return str(getattr(cls, "__name__", cls))


def require_conforming(group: str, part: Any, place: str) -> None:
    """Raise ConfigError, beginning with `place`, if a class or a part lacks what its group needs.

    A class is checked before it is constructed: without an abstract method it could not be.
    """
    if group == "translators" and callable(part) and not isinstance(part, type):
        return
    interface = translator_interface(part) if group == "translators" else INTERFACES[group]
    if fault := fault_of(part, interface):
        raise ConfigError(f"{place}: {fault}")


def construct(
    cls: Part, options: Mapping[str, Any], *, where: str, path: str, context: Mapping[str, Any]
) -> Any:
    """Construct `cls` from options, validated against its annotations.

    A function is not called: it is returned with its options.
    """
    schema = options_of(cls, context)
    kinds = {field.name: field.type for field in msgspec.structs.fields(schema)}
    lists = {key: split_list(value, kinds.get(key)) for key, value in options.items()}
    checked = to_struct(lists, schema, where, path)
    values = msgspec.structs.asdict(checked)
    for key in NESTED.keys() & values.keys():
        if values[key] is not None:
            table = {"use": values[key]} if isinstance(values[key], str) else values[key]
            values[key] = build(
                NESTED[key], table, where=where, path=f"{path}.{key}", context=context
            )
    given = {name: context[name] for name in arguments_of(cls) if name in context}
    if not isinstance(cls, type):
        return functools.update_wrapper(functools.partial(cls, **values, **given), cls)
    try:
        return cls(**values, **given)
    except (ConfigError, UsageError) as error:
        raise ConfigError(f"{where}: {path}: {error}") from None


def constructors(cls: Part) -> Iterator[Callable[..., Any]]:
    """Yield the constructors that define the options of a class, or the function itself.

    A constructor with ``**options`` passes them to its next base class.
    """
    if not isinstance(cls, type):
        yield cls
        return
    for ancestor in cls.__mro__:
        if constructor := vars(ancestor).get("__init__"):
            yield constructor
            kinds = [each.kind for each in inspect.signature(constructor).parameters.values()]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                return


def arguments_of(cls: Part) -> dict[str, tuple[inspect.Parameter, Any]]:
    """Return the arguments of a class by name, each with its annotation."""
    found: dict[str, tuple[inspect.Parameter, Any]] = {}
    for constructor in constructors(cls):
        hints = typing.get_type_hints(constructor)
        _, *parameters = inspect.signature(constructor).parameters.values()  # not self, nor records
        for each in parameters:
            if each.kind not in _VARIADIC:
                found.setdefault(each.name, (each, hints.get(each.name, Any)))
    return found


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def options_of(cls: Part, context: Mapping[str, Any] | None = None) -> type[msgspec.Struct]:
    """Return the options of a class as a Struct: one field for each keyword argument."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, (parameter, hint) in arguments_of(cls).items():
        if name in (context or ()):
            continue
        kind = str | dict[str, Any] | None if name in NESTED else hint
        default = parameter.default
        if default is inspect.Parameter.empty:
            fields.append((name, kind))
        else:
            if isinstance(default, list | dict | set):
                default = msgspec.field(default_factory=default.copy)
            fields.append((name, kind, default))
    return msgspec.defstruct(
        name_of(cls), fields, kw_only=True, frozen=True, forbid_unknown_fields=True
    )
