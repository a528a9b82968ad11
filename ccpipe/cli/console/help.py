"""``--help`` of each command, and its text in the reference and the manual page.

Both read the signature and the docstring of the command, as the parser of the command line does.
"""

import inspect
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cyclopts import App
from cyclopts.argument import Argument

from ccpipe.terminal import paint

HELP = ("--help, -h", "Show this help.")
MAX_NAME = 26
"""Options with longer names have a line of their own."""

CHOICE = "CHOICE"
MAX_CHOICES = 60
"""Width up to which the possible values are listed in place of their kind."""

TYPES = {Path: "PATH", int: "INTEGER", float: "NUMBER", str: "TEXT", Any: "TEXT"}


class CommandOption(NamedTuple):
    """An option or a positional argument."""

    names: tuple[str, ...]
    value: str
    """Placeholder of its value, such as ``PATH``, or ``PATH...`` if it can be repeated; empty for a
    flag."""
    meaning: str
    default: str
    choices: tuple[str, ...]
    required: bool

    @property
    def form(self) -> str:
        """The option as shown in help: ``--output, -o {table,json}``."""
        names = ", ".join(self.names)
        if not self.names[-1].startswith("-"):
            return names + "..." * self.value.endswith("...")
        return f"{names} {self.value}".rstrip()

    @property
    def notes(self) -> str:
        found = [self.meaning]
        if CHOICE in self.value:
            found.append(f"One of {', '.join(self.choices)}.")
        if self.required:
            found.append("Required.")
        elif self.default:
            found.append(f"Default: {self.default}.")
        return " ".join(found)


class CommandEntry(NamedTuple):
    """A command or subcommand."""

    name: str
    """Full name, including parent commands, such as ``auth init``."""
    summary: str
    paragraphs: list[str]
    examples: list[str]
    arguments: list[CommandOption]
    options: list[CommandOption]
    subcommands: dict[str, str]

    @property
    def usage(self) -> str:
        words = ["ccpipe", self.name]
        if self.subcommands and not self.options and not self.arguments:
            words.append("COMMAND")
        if self.options:
            words.append("[OPTIONS]")
        for argument in self.arguments:
            name = argument.names[0] + "..." * argument.value.endswith("...")
            words.append(name if argument.required else f"[{name}]")
        return " ".join(words)


def command_entry(app: App, names: Sequence[str]) -> CommandEntry:
    _, apps, _ = app.parse_commands(names)
    command = apps[-1]
    prose, _, rest = _text(command).partition("Examples:")
    examples, _, more = rest.strip().partition("\n\n")
    summary, *paragraphs = (
        " ".join(part.split()) for part in f"{prose}\n\n{more}".split("\n\n") if part.strip()
    )
    options: list[CommandOption] = []
    if command.default_command:
        with app.app_stack(apps):
            found = command.assemble_argument_collection(parse_docstring=True)
        options = [_option(argument) for argument in found if argument.show]
    return CommandEntry(
        " ".join(names),
        summary,
        paragraphs,
        [line.strip() for line in examples.splitlines()],
        [option for option in options if not option.names[0].startswith("-")],
        [option for option in options if option.names[0].startswith("-")],
        {name: _text(command[name]).partition("\n\n")[0] for name in subcommands(command)},
    )


def subcommands(app: App) -> list[str]:
    return [name for name in app if not name.startswith("-")]


def _text(command: App) -> str:
    text = inspect.cleandoc(command.help)
    return re.split(r"^Parameters\n-+\n", text, maxsplit=1, flags=re.MULTILINE)[0]


def _option(argument: Argument) -> CommandOption:
    default = argument.field_info.default
    nothing = (None, inspect.Parameter.empty, (), Path())
    unset = argument.required or default is False or default in nothing
    names = list(dict.fromkeys(argument.names))
    if argument.field_info.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        names.insert(0, names[0].removeprefix("--").upper())
    return CommandOption(
        names=tuple(names),
        value=_value(argument),
        meaning=" ".join((argument.parameter.help or "").split()),
        default="" if unset else "on" if default is True else str(default),
        choices=_choices(argument),
        required=argument.required,
    )


def _choices(argument: Argument) -> tuple[str, ...]:
    return tuple(argument.get_choices(force=True) or ())


def _value(argument: Argument) -> str:
    metavar, in_place = argument.parameter.metavar, f"{{{','.join(_choices(argument))}}}"
    kind = _type(argument.hint)
    if metavar:
        return f"{metavar}..." if kind.endswith("...") else metavar
    return kind.replace(CHOICE, in_place) if len(in_place) <= MAX_CHOICES else kind


def _type(hint: Any) -> str:
    inner = [each for each in typing.get_args(hint) if each not in (types.NoneType, ...)]
    match typing.get_origin(hint):
        case None:
            return "" if hint is bool else TYPES.get(hint, "TEXT")
        case typing.Literal:
            return CHOICE
        case outer if outer in (list, tuple, Sequence):
            return f"{_type(inner[0])}..."
        case _:
            return _type(inner[0])


def print_help(entry: CommandEntry) -> None:
    print("\n\n".join(_page(entry, shutil.get_terminal_size().columns)))


def _page(entry: CommandEntry, width: int) -> Iterator[str]:
    yield _fill(entry.summary, width)
    yield paint("Usage:", "bold") + f" {entry.usage}"
    for paragraph in entry.paragraphs:
        yield _fill(paragraph, width)
    if entry.subcommands:
        yield _section("Commands", entry.subcommands.items(), width)
    if entry.arguments:
        yield _section("Arguments", [(each.form, each.notes) for each in entry.arguments], width)
    options = [(each.form, each.notes) for each in entry.options]
    yield _section("Options", [*options, HELP], width)
    yield "\n".join([paint("Examples:", "bold"), *(f"  {line}" for line in entry.examples)])


def _section(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    rows = list(rows)
    column = max(len(name) for name, _ in rows if len(name) <= MAX_NAME) + 4
    lines = [paint(f"{title}:", "bold")]
    for name, meaning in rows:
        start = f"  {name}".ljust(column)
        if len(start) > column:
            lines.append(start)
            start = " " * column
        lines.append(_fill(meaning, width, start, " " * column))
    return "\n".join(lines)


def _fill(text: str, width: int, start: str = "", indent: str = "") -> str:
    """Wrap a text at spaces only: options and patterns must not be broken."""
    return textwrap.fill(
        text,
        max(width, len(indent) + 20),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
