"""The cyclopts app with all subcommands, and translation of its errors."""

import difflib
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    UnknownCommandError,
    UnusedCliTokensError,
)

from ccpipe import __version__
from ccpipe.cli.commands import COMMANDS, FOLDERS, print_commands
from ccpipe.cli.console.help import print_help
from ccpipe.errors import UsageError
from ccpipe.terminal import listed, printable


class _App(App):
    """Prints our own help, also where ``--help`` is between other arguments."""

    def help_print(self, tokens: Any = None, *, console: Any = None) -> None:  # noqa: ARG002
        """Print the help of the command given by the arguments."""
        chain, *_ = self.parse_commands(tokens)
        if not print_help(" ".join(chain)):
            print_commands()


app = _App(
    name="ccpipe",
    version=__version__,
    version_flags=["--version"],
)


def _target(name: str) -> str:
    return f"ccpipe.cli.{name}{'.command' if name in FOLDERS else ''}:{name}"


for _name, _summary in COMMANDS.items():
    app.command(_target(_name), name=_name, help=_summary)


def run(words: list[str]) -> None:
    """Run a subcommand.

    Raises
    ------
    UsageError
        if the words do not fit it.

    """
    try:
        if any(not word or word.endswith("=") for word in words):
            _refuse_empty_paths(words)
        app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError(_explain(error)) from None


def _refuse_empty_paths(words: list[str]) -> None:
    """Raise UsageError for ``--dir "$UNSET"``: an empty path would be the current folder."""
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    for value in bound.arguments.values():
        if Path() in [value, *getattr(value, "__dict__", {}).values()]:
            raise UsageError("empty path; use . for the current folder")


def _explain(error: CycloptsError) -> str:
    """Describe an error of the command line."""
    of = " ".join(error.command_chain or ())
    hint = f"; see ccpipe {of} --help".replace("  ", " ")
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected argument: {printable(listed(error.unused_tokens or []))}{hint}"
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        return f"no command {printable(error.unused_tokens[0])!r}{_similar(error) or hint}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        return f"{name} {'needs a value' if error.keyword else 'is missing'}{hint}"
    if isinstance(error, CoercionError) and error.token and error.msg is None and error.argument:
        choices = error.argument.get_choices(force=True) or ()
        name = error.token.keyword or error.argument.name.lstrip("-").upper()
        value = printable(error.token.value)
        if choices:
            return f"{name}: {value!r} is none of {', '.join(choices)}"
        kind = getattr(error.target_type, "__name__", "value").replace("int", "whole number")
        return f"{name}: not a {kind}: {value!r}"
    return str(error).rstrip(".")


def _similar(error: UnknownCommandError) -> str:
    """Return the command that was probably meant, else all if they are few."""
    assert error.app is not None
    assert error.unused_tokens
    known = [name for name in error.app if not name.startswith("-")]
    if close := difflib.get_close_matches(error.unused_tokens[0], known, n=1):
        return f"; did you mean {close[0]!r}?"
    return "" if error.app is app else f"; known are {', '.join(known)}"
