"""The cyclopts app with all subcommands, and its errors in our words."""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, Parameter, Token
from cyclopts.argument import Argument
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnusedCliTokensError,
)

from ccpipe import __version__
from ccpipe.cli import COMMANDS, import_path, print_commands
from ccpipe.cli.console.help import command_entry, print_help, subcommands
from ccpipe.cli.console.log import start_logging
from ccpipe.cli.console.options import LogOptions
from ccpipe.errors import UsageError, invalid_choice
from ccpipe.terminal import listed, printable

HELP_FLAGS = ("--help", "-h")


class _App(App):
    """Prints our own help, also where ``--help`` is between other arguments."""

    def help_print(self, tokens: Any = None, *, console: Any = None) -> None:  # noqa: ARG002
        names, *_ = self.parse_commands(tokens)
        if names:
            print_help(command_entry(self, names))
        else:
            print_commands()


app = _App(
    name="ccpipe",
    version=__version__,
    version_flags=["--version"],
    default_parameter=Parameter(negative_bool=(), negative_iterable=()),
)

for _name in COMMANDS:
    app.command(import_path(_name), name=_name)


def run(words: list[str], begin: Callable[[], object]) -> None:
    """Run a subcommand; raises UsageError if the words do not fit it.

    `begin` is called when its modules have been imported: an exception raised by a signal handler
    during an import can get lost in a callback of the import system.
    """
    try:
        if words[-1] in HELP_FLAGS and not app.parse_commands(words[:-1])[2]:
            app.help_print(words[:-1])  # cyclopts would load what colours its own help
            return
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError(_explain(error)) from None
    given = list(_values(bound.arguments.values()))
    if any(not word or word.endswith("=") for word in words) and Path() in given:
        raise UsageError("empty path; use . for the current directory")
    levels = [value.level() for value in given if isinstance(value, LogOptions)]
    start_logging(*filter(None, levels))
    if inspect.iscoroutinefunction(command):
        import asyncio

        begin()
        asyncio.run(command(*bound.args, **bound.kwargs))
    else:
        begin()
        command(*bound.args, **bound.kwargs)


def _values(arguments: Iterable[Any]) -> Iterator[Any]:
    """Yield arguments, and those in classes of options."""
    for value in arguments:
        yield value
        if dataclasses.is_dataclass(value):
            yield from _values(vars(value).values())


def _explain(error: CycloptsError) -> str:
    of = " ".join(error.command_chain or ())
    hint = f"; see ccpipe {of} --help".replace("  ", " ")
    match error:
        case UnusedCliTokensError():
            text = f"unexpected argument: {printable(listed(error.unused_tokens or []))}{hint}"
        case UnknownCommandError(unused_tokens=[name, *_]):
            text = f"no command {printable(name)!r}{_similar(error) or hint}"
        case MissingArgumentError(argument=argument) if argument is not None:
            name = error.keyword or argument.name
            text = f"{name} {'needs a value' if error.keyword else 'is missing'}{hint}"
        case RepeatArgumentError():
            text = f"{error.token.keyword} is given more than once{hint}"
        case CoercionError(token=token, argument=argument, msg=None) if token and argument:
            text = _invalid_value(error, argument, token)
        case _:
            text = str(error).rstrip(".")
    return text


def _invalid_value(error: CoercionError, argument: Argument, token: Token) -> str:
    name = token.keyword or argument.name.lstrip("-").upper()
    value = printable(token.value)
    if choices := argument.get_choices(force=True):
        return f"{name}: {invalid_choice(value, choices)}"
    kind = getattr(error.target_type, "__name__", "value").replace("int", "whole number")
    return f"{name}: not a {kind}: {value!r}"


def _similar(error: UnknownCommandError) -> str:
    assert error.app is not None
    assert error.unused_tokens
    known = subcommands(error.app)
    if close := difflib.get_close_matches(error.unused_tokens[0], known, n=1):
        return f"; did you mean {close[0]!r}?"
    return "" if error.app is app else f"; known are {', '.join(known)}"
