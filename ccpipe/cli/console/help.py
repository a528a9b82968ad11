"""``--help`` of each command."""

import os
import textwrap
from collections.abc import Iterable, Iterator

from ccpipe.cli.console.command_table import CommandEntry, command
from ccpipe.terminal import paint

HELP = ("--help, -h", "Show this help.")
MAX_NAME = 26
"""Options with longer names have a line of their own."""


def print_help(name: str) -> bool:
    """Print the help of a command, wrapped to the terminal; return whether it exists."""
    shown = command(name)
    if shown is not None:
        print("\n\n".join(_page(shown, _terminal_width())))
    return shown is not None


def _page(shown: CommandEntry, width: int) -> Iterator[str]:
    yield _fill(shown.summary, width)
    yield paint("Usage:", "bold") + f" {shown.usage}"
    for paragraph in shown.paragraphs:
        yield _fill(paragraph, width)
    if shown.subcommands:
        yield _section("Commands", shown.subcommands.items(), width)
    if shown.arguments:
        yield _section("Arguments", [(each.form, each.notes) for each in shown.arguments], width)
    options = [(each.form, each.notes) for each in shown.options]
    yield _section("Options", [*options, HELP], width)
    yield "\n".join([paint("Examples:", "bold"), *(f"  {line}" for line in shown.examples)])


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


def _terminal_width() -> int:
    """Return the same as ``shutil.get_terminal_size``, which is slow to import."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80
