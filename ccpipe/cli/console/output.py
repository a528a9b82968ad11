"""Output of commands: tables, JSON, line protocol and CSV."""

import functools
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.terminal import note, paint

if TYPE_CHECKING:  # they take their time, and most commands start without
    from ccpipe.formats.lineprotocol import Precision
    from ccpipe.message import Message

TableOrJson = Literal["table", "json"]
Output = Annotated[TableOrJson, Parameter(alias="-o", help="Output format.")]
"""The option of commands that print a table, or JSON for programs."""
Format = Literal["line", "json", "csv"]


MIN_WIDTH = 8
"""A column of text is not cut to less than this to fit the terminal."""


def print_json(value: Any) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> None:
    """Print rows with column heads; on a terminal the last column is wrapped."""
    print("\n".join(table(rows, heads, width=terminal_width())))


def terminal_width() -> int | None:
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def table(
    rows: Sequence[Sequence[str]], heads: Sequence[str], width: int | None = None
) -> list[str]:
    """Format rows as columns; the last column is wrapped at `width`."""
    cells = [heads, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads) - 1)]
    indent = sum(widths) + 2 * len(widths)
    room = max(20, width - indent) if width else 0
    lines = []
    for number, row in enumerate(cells):
        start = "".join(f"{cell:<{size}}  " for cell, size in zip(row, widths, strict=False))
        for piece in fold(row[-1], room):
            line = (start + piece).rstrip()
            lines.append(paint(line, "bold") if number == 0 else line)
            start = " " * indent
    return lines


def fit(widths: Sequence[int], is_number: Sequence[bool], room: int) -> list[int]:
    """Return the widths of the columns that fit a line of `room` characters, two apart.

    Long texts are cut, to MIN_WIDTH at the least; if that is not enough, the last columns go.
    Numbers are never cut.
    """
    for count in range(len(widths), 0, -1):
        kept = list(zip(widths[:count], is_number, strict=False))
        for limit in range(min(max(widths), room), MIN_WIDTH - 1, -1):
            cut = [width if number else min(width, limit) for width, number in kept]
            if sum(cut) + 2 * (count - 1) <= room:
                return cut
    return list(widths[:1])


def cut(text: str, width: int) -> str:
    """Cut a text to a width; an ellipsis marks the end."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def fold(text: str, room: int) -> list[str]:
    """Wrap a text at spaces into lines of `room` characters; 0 does not wrap."""
    lines = text.splitlines() or [""]
    if not room:
        return [" ".join(lines)]
    return [piece for line in lines for piece in textwrap.wrap(line, room) or [""]]


def print_fitting(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> None:
    """Print a table; on a terminal, texts are cut and the last columns omitted to fit its width."""
    room = terminal_width()
    if room is not None:
        columns = list(zip(heads, *rows, strict=True))
        are_numbers = [all(map(is_number, column[1:])) for column in columns]
        widths = fit([max(map(len, column)) for column in columns], are_numbers, room)
        if hidden := heads[len(widths) :]:
            note(f"not shown for lack of width: {', '.join(hidden)}")
        heads = [cut(head, width) for head, width in zip(heads, widths, strict=False)]
        rows = [
            [cut(cell, width) for cell, width in zip(row, widths, strict=False)] for row in rows
        ]
    print_table(rows, heads)


def is_number(cell: str) -> bool:
    return not cell or cell == "-" or cell.lstrip()[0].isdigit()


def encoder(
    output: Format, precision: "Precision | Literal['auto']" = "auto"
) -> tuple[bytes, Callable[["Sequence[Message]"], bytes]]:
    """Return the header line of a format and its encoder; `precision` is for line protocol."""
    if output == "json":
        from ccpipe.formats import rows

        return b"", rows.encode_json
    if output == "csv":
        from ccpipe.formats import rows

        return rows.CSV_HEADER, rows.encode_csv
    from ccpipe.formats.lineprotocol import encode

    return b"", functools.partial(encode, precision=precision)
