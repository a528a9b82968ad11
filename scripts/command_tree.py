"""The commands as the command line knows them, for the pages that are written from it."""

import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.argument import Argument

from ccpipe.cli import COMMANDS, FOLDERS
from ccpipe.cli.console.command_table import Command, Option

WORDS = {Path: "PATH", int: "INTEGER", float: "NUMBER", str: "TEXT", Any: "TEXT"}


def commands() -> Iterator[Command]:
    """Yield all commands in the order of ``ccpipe --help``, each before its subcommands."""
    for name in COMMANDS:
        known = App()  # ccpipe's own has summaries in place of texts
        module = f"{name}.command" if name in FOLDERS else name
        known.command(f"ccpipe.cli.{module}:{name}", name=name)
        yield from _tree(known[name], name)


def _tree(command: App, name: str) -> Iterator[Command]:
    text = inspect.cleandoc(command.help)
    text = re.split(r"^Parameters\n-+\n", text, maxsplit=1, flags=re.MULTILINE)[0]
    prose, _, rest = text.partition("Examples:")
    examples, _, more = rest.strip().partition("\n\n")
    summary, *paragraphs = (
        " ".join(part.split()) for part in f"{prose}\n\n{more}".split("\n\n") if part.strip()
    )
    subcommands = {
        each: command[each].help.partition("\n\n")[0]
        for each in command
        if not each.startswith("-")
    }
    given = [
        argument
        for argument in command.assemble_argument_collection(parse_docstring=True)
        if argument.show
    ] if command.default_command else []  # fmt: skip
    options = [_option(argument) for argument in given]
    yield Command(
        name,
        summary,
        paragraphs,
        [line.strip() for line in examples.splitlines()],
        [option for option in options if not option.names[0].startswith("-")],
        [option for option in options if option.names[0].startswith("-")],
        subcommands,
    )
    for each in subcommands:
        yield from _tree(command[each], f"{name} {each}")


def _option(argument: Argument) -> Option:
    default = argument.field_info.default
    unset = argument.required or default is False or default in (None, inspect.Parameter.empty, ())
    names = list(dict.fromkeys(argument.names))
    if argument.field_info.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        names.insert(0, names[0].removeprefix("--").upper())
    return Option(
        names=tuple(names),
        value=_value(argument.hint),
        meaning=" ".join((argument.parameter.help or "").split()),
        default="" if unset else "on" if default is True else str(default),
        choices=tuple(argument.get_choices(force=True) or ()),
        required=argument.required,
    )


def _value(hint: Any) -> str:
    """Name the kind of a value; what may be repeated ends in dots."""
    inner = [each for each in typing.get_args(hint) if each not in (types.NoneType, ...)]
    match typing.get_origin(hint):
        case None:
            return "" if hint is bool else WORDS.get(hint, "TEXT")
        case typing.Literal:
            return "CHOICE"
        case outer if outer in (list, tuple):
            return f"{_value(inner[0])}..."
        case _:
            return _value(inner[0])
