"""``ccpipe plugins``: the installed sources, collectors, translators and sinks."""

import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from ccpipe.cli.console.output import Output, print_json, print_table
from ccpipe.config import Duration, Interval, Size, plain
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
    meaning: str = ""


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
        print_table(rows, ("GROUP", "NAME", "FROM", "HERE"))
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
    meanings = _meanings(cls)
    options = [
        _option(field, meanings.get(field.encode_name, ""))
        for field in msgspec.structs.fields(schema)
    ]
    return msgspec.structs.replace(part, help=_help(cls), options=options)


def describe(part: Plugin) -> None:
    print(paint(f"{part.group}.{part.name}", "bold") + f"  {part.cls}, {part.origin}\n")
    if part.problem:
        print(f"{part.problem}\n")
        return
    if part.help:
        print(f"{part.help}\n")
    if part.options:
        print(paint("Options:", "bold"))
    for option in part.options:
        default = "required" if option.required else _default_text(option)
        print(f"  {option.name}  " + ", ".join(filter(None, (option.type, default))))
        print(fill(option.meaning, 80, initial_indent=_INDENT, subsequent_indent=_INDENT))
    print("" if part.options else "No options.\n")


_INDENT = " " * 6


def _help(cls: Part) -> str:
    """Return the prose of a docstring, without its sections."""
    prose = _SECTION.split(inspect.getdoc(cls) or "")[0].strip()
    return prose.replace("``", "`")


def _meanings(cls: Part) -> dict[str, str]:
    """Read the options' meanings off the sections *Parameters* of docstrings."""
    found: dict[str, str] = {}
    texts = [cls.__doc__] if isinstance(cls, type) else []
    for text in [*texts, *(each.__doc__ for each in constructors(cls))]:  # the nearest class first
        _, *parts = _SECTION.split(inspect.cleandoc(text or ""))
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            for block in re.split(r"\n(?=\S)", body.strip()) if title == "Parameters" else ():
                names, _, meaning = block.partition("\n")
                for name in names.split(", "):
                    found.setdefault(name, " ".join(meaning.split()).replace("``", "`"))
    return found


_SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises)\n-+\n", re.MULTILINE)


def _option(field: msgspec.structs.FieldInfo, meaning: str) -> PluginOption:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    missing = default is msgspec.NODEFAULT
    value = None if missing else plain(default)
    if isinstance(default, Duration) and not default:
        value = 0  # as a recipe has it, not 0.0
    kind = type_name(field.type)
    return PluginOption(field.encode_name, kind, value, required=missing, meaning=meaning)


def _default_text(option: PluginOption) -> str:
    if option.default in (None, "", [], {}):
        return ""
    return f"default {msgspec.json.encode(option.default).decode()}"


_WORDS: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    Duration: "duration",
    Interval: "interval",
    Size: "size",
    Path: "path",
    Any: "any value",
    object: "any value",
}


def type_name(kind: Any) -> str:
    """Return the name of a type in the terms of TOML, with choices in backticks."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, inside = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is typing.Annotated:
        name = type_name(inside[0])
    elif choices := _choices(kind):
        name = "one of " + ", ".join(f"`{choice}`" for choice in choices)
    elif origin in (typing.Union, types.UnionType):
        name = " or ".join(type_name(each) for each in inside if each is not types.NoneType)
    elif isinstance(origin, type) and issubclass(origin, Mapping | msgspec.Struct):
        word = type_name(inside[-1]) if inside else ""
        name = f"table: {word} by name" if word in _NAMED else "table"
    elif isinstance(origin, type) and issubclass(origin, Sequence):
        word = type_name(inside[0]) if inside else "any value"
        name = "list of tables" if word.startswith("table") else f"list of {word}"
    else:
        name = getattr(kind, "__name__", str(kind))
    return name


_NAMED = {"text", "integer", "number", "list of text", "list of integer"}
"""Types of values that the type of a table names."""


def _choices(kind: Any) -> list[Any]:
    """Return the values of a Literal, or of a union of several; none for other types."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) is typing.Union else [kind]
    choices = [each for each in kinds if each is not types.NoneType]
    if any(typing.get_origin(each) is not typing.Literal for each in choices):
        return []
    return list(dict.fromkeys(value for each in choices for value in typing.get_args(each)))
