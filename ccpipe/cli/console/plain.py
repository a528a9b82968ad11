"""A fast parser for simple command lines, without cyclopts, which is slow to import.

Anything else, such as a mistake, is left to cyclopts and its error messages.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccpipe.cli.console.command_table import CommandOption, command

READERS: Mapping[str, Callable[[str], Any]] = {
    "TEXT": str,
    "CHOICE": str,
    "INTEGER": int,
    "PATH": Path,
}
"""Parsers by type; other types are not supported."""


def read(name: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of a command by long option name; None if not supported.

    Options that can be repeated are lists; a flag is true, or false if it begins with ``no-``.
    """
    known = command(name)
    assert known is not None
    options = {each: option for option in known.options for each in option.names}
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        option = options.get(flag)
        if not word.startswith("-"):
            is_plain = bool(known.arguments) and _put_text(found, known.arguments[0], word)
        elif option is None or (equals and not (option.value and flag.startswith("--"))):
            return None
        elif option.value:
            value = value if equals else next(rest, "-")
            is_plain = not value.startswith("-") and _put_text(found, option, value)
        else:
            is_plain = _put(found, option, not flag.startswith("--no-"))
        if not is_plain:
            return None
    return found


def _put_text(found: dict[str, Any], option: CommandOption, text: str) -> bool:
    """Store a parsed value; false if it cannot be parsed."""
    kind = option.value.removesuffix("...")
    if kind not in READERS or (kind == "PATH" and not text):
        return False
    if kind == "INTEGER" and not (text.isascii() and text.isdecimal()):
        return False
    return (not option.choices or text in option.choices) and _put(
        found, option, READERS[kind](text)
    )


def _put(found: dict[str, Any], option: CommandOption, value: Any) -> bool:
    """Store a value; false if a single option is repeated."""
    key = option.names[0].removeprefix("--").lower()
    if option.value.endswith("..."):
        found.setdefault(key, []).append(value)
        return True
    return found.setdefault(key, value) is value
