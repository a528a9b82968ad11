"""``ccpipe plugins``: the installed sources, collectors, translators and sinks."""

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from ccpipe.cli.console.output import Output, print_json, print_table
from ccpipe.config import Duration, Size, plain
from ccpipe.errors import MissingExtra, UsageError, suggestion
from ccpipe.registry import GROUPS, Part, constructors, entry_points, options_of
from ccpipe.terminal import paint

NAME = "A plug-in, such as parquet; sinks.nats selects one of several with that name."

CONTEXT = {"site": None, "telemetry": None}
"""Arguments supplied by ccpipe; they are not options."""


class PluginOption(msgspec.Struct, frozen=True):
    """One key of a part's table in a recipe."""

    name: str
    type: str
    default: Any
    required: bool


class Plugin(msgspec.Struct, frozen=True):
    """One source, collector, translator or sink, as installed."""

    group: str
    name: str
    cls: str = msgspec.field(name="class")
    origin: str = msgspec.field(name="from")
    problem: str = ""
    help: str = ""
    options: list[PluginOption] = []


def plugins(
    name: Annotated[str | None, Parameter(help=NAME)] = None, *, output: Output = "table"
) -> None:
    """List sources, collectors, translators and sinks.

    Shows built-in plug-ins and other packages' ones, with the package of each, and
    whether it is usable or what must be installed first. With a NAME, shows its
    options in a recipe: type, default, meaning.

    Examples:
      ccpipe plugins
      ccpipe plugins parquet
      ccpipe plugins -o json | jq -r '.[] | select(.problem != "") | .name'
    """
    parts = [read(group, entry) for group, entry in (wanted(name) if name else everything())]
    if output == "json":
        print_json(parts)
    elif name is None:
        rows = [(part.group, part.name, part.origin, part.problem or "usable") for part in parts]
        print_table(rows, ("group", "name", "from", "here"))
    else:
        for part in parts:
            describe(part)


def everything() -> list[tuple[str, EntryPoint]]:
    return [(group, entry) for group in GROUPS for entry in entry_points(group).values()]


def wanted(name: str) -> list[tuple[str, EntryPoint]]:
    found = [(g, e) for g, e in everything() if name in (e.name, f"{g}.{e.name}")]
    if not found:
        known = [entry.name for _, entry in everything()]
        hint = suggestion(name.rpartition(".")[2], known, "`ccpipe plugins` lists them")
        raise UsageError(f"unknown plug-in {name!r}; {hint}")
    return found


def read(group: str, entry: EntryPoint) -> Plugin:
    origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist else ""
    part = Plugin(group, entry.name, entry.value, origin)
    try:
        cls = entry.load()
        schema = options_of(cls, CONTEXT)
    except MissingExtra as missing:
        return msgspec.structs.replace(part, problem=str(missing))
    except Exception as error:  # noqa: BLE001 - the import of a plug-in can raise anything
        return msgspec.structs.replace(part, problem=f"{type(error).__name__}: {error}")
    return msgspec.structs.replace(
        part, help=_help(cls), options=[_option(field) for field in msgspec.structs.fields(schema)]
    )


def describe(part: Plugin) -> None:
    print(paint(f"{part.group}.{part.name}", "bold") + f"  {part.cls}, {part.origin}")
    if part.problem:
        print(f"\n{part.problem}\n")
        return
    print(f"\n{part.help}\n" if part.help else "")
    if part.options:
        rows = [
            (o.name, o.type, "required" if o.required else _default_text(o)) for o in part.options
        ]
        print_table(rows, ("option", "type", "default"))
    else:
        print("No options.")
    print()


def _help(cls: Part) -> str:
    texts = [inspect.getdoc(cls)] if isinstance(cls, type) else []
    texts += [inspect.cleandoc(each.__doc__ or "") for each in constructors(cls)]
    inherited = (inspect.cleandoc(object.__init__.__doc__ or ""), "")
    return "\n\n".join(text for text in texts if text and text not in inherited)


def _option(field: msgspec.structs.FieldInfo) -> PluginOption:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    missing = default is msgspec.NODEFAULT
    value = None if missing else plain(default)
    return PluginOption(field.encode_name, type_name(field.type), value, required=missing)


def _default_text(option: PluginOption) -> str:
    return "" if option.default is None else msgspec.json.encode(option.default).decode()


_WORDS: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Duration: "duration (10s)",
    Size: "size (4MiB)",
    Path: "path",
    Any: "anything",
    type(None): "",
}
_FAMILIES = {Mapping: "table", msgspec.Struct: "table", Sequence: "list"}


def type_name(kind: Any) -> str:
    """Return the name of a type in the terms of TOML."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, inside = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(map(repr, inside))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(filter(None, map(type_name, inside)))
    content = f" of {type_name(inside[-1])}" if inside else ""
    for family, word in _FAMILIES.items():
        if isinstance(origin, type) and issubclass(origin, family):
            return word + content
    return getattr(kind, "__name__", str(kind))
