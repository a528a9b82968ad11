"""Output of commands: tables, JSON, line protocol and CSV."""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Literal

import msgspec

from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Kind, Message
from ccpipe.pipeline import Sink
from ccpipe.terminal import paint, printable

if TYPE_CHECKING:  # they take their time, and most commands start without
    from ccpipe.formats.lineprotocol import Precision

TableOrJson = Literal["table", "json"]
Format = Literal["line", "json", "csv"]


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> None:
    """Print rows with column heads; on a terminal the last column is wrapped."""
    print("\n".join(table(rows, heads, width=terminal_width())))


def terminal_width() -> int | None:
    """Return the width of the terminal; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


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


def fold(text: str, room: int) -> list[str]:
    """Break a text at spaces into lines of `room` characters; 0 does not break."""
    import textwrap

    lines = text.splitlines() or [""]
    if not room:
        return [" ".join(lines)]
    return [piece for line in lines for piece in textwrap.wrap(line, room) or [""]]


def encoder(
    output: Format, precision: "Precision | Literal['auto']" = "auto"
) -> tuple[bytes, Callable[[Sequence[Message]], bytes]]:
    """Return the first line of a format and its encoder; `precision` is for line protocol."""
    if output == "json":
        from ccpipe.formats import jsonlines

        return b"", jsonlines.encode
    if output == "csv":
        from ccpipe.formats import csvlines

        return csvlines.HEADER, csvlines.encode
    from ccpipe.formats.lineprotocol import encode

    return b"", functools.partial(encode, precision=precision)


class MessageTable:
    """Messages as a table without end: columns grow as needed, long lines are cut.

    What is not printable is escaped, so that no message can control the terminal.
    """

    HEADS = ("TIME", "CLUSTER", "NODE", "NAME", "WHERE", "VALUE")
    COLOURS = ("dim", "", "cyan", "", "", "", "dim")
    MAX_WIDTH = 24
    """A longer cell shifts the rest of its own row only."""

    def __init__(self, stream: IO[str]) -> None:
        """Format for a stream; lines are cut if it is a terminal."""
        self._stream = stream
        self._widths = [len("00:00:00"), *map(len, self.HEADS[1:])]
        self._rows_until_heads = 0

    def render(self, messages: Iterable[Message], *, strict: bool = False) -> str:
        """Return the lines of some messages; `strict` adds the rules that each one breaks."""
        size = shutil.get_terminal_size() if self._stream.isatty() else None
        lines: list[str] = []
        rows = [(message, [printable(cell) for cell in _cells(message)]) for message in messages]
        self._widths = [
            max(width, *(min(len(cells[i]), self.MAX_WIDTH) for _, cells in rows), 0)
            for i, width in enumerate(self._widths)
        ]
        for message, cells in rows:
            if self._rows_until_heads == 0:
                self._rows_until_heads = size.lines - 1 if size else sys.maxsize
                lines.append(self._line(self.HEADS, ["bold"] * len(self.HEADS), size))
            self._rows_until_heads -= 1
            lines.append(self._line(cells, self.COLOURS, size))
            if strict:
                marked = [f"  ^ {printable(problem)}" for problem in message.problems()]
                lines.extend(self._line([mark], ["yellow"], size) for mark in marked)
        return "".join(line + "\n" for line in lines)

    def _line(
        self, cells: Sequence[str], colours: Sequence[str], size: os.terminal_size | None
    ) -> str:
        padded = [f"{cell:<{width}}" for cell, width in zip(cells, self._widths, strict=False)]
        padded[len(cells) - 1 :] = cells[-1:]
        room = size.columns if size else sys.maxsize
        pieces = []
        for text, colour in zip(padded, colours, strict=True):
            piece = text if len(text) <= room else text[: max(room - 1, 0)] + "…"
            pieces.append(paint(piece, colour, self._stream))
            room -= len(piece) + 2
            if room <= 0:
                break
        return "  ".join(pieces).rstrip()


def _cells(message: Message) -> list[str]:
    tags = message.tags
    where = [" ".join(filter(None, (tags.get(t), tags.get(f"{t}-id")))) for t in ("type", "stype")]
    named = {"cluster", "hostname", "type", "type-id", "stype", "stype-id"}
    return [
        _clock(message.time),
        tags.get("cluster", ""),
        message.hostname,
        message.name,
        " ".join(filter(None, where)),
        _value(message),
        " ".join(f"{key}={value}" for key, value in tags.items() if key not in named),
    ]


def _clock(nanoseconds: int | None) -> str:
    """Write a timestamp as local time of day, with as many decimals as needed."""
    if nanoseconds is None:
        return "-"
    seconds, rest = divmod(nanoseconds, 10**9)
    try:
        clock = datetime.fromtimestamp(seconds)  # noqa: DTZ006 - people read local time
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"
    return f"{clock:%H:%M:%S}" + (f".{rest:09d}".rstrip("0") if rest else "")


def _value(message: Message) -> str:
    value = message.value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if message.kind is Kind.METRIC else f"{message.field}={text}"


class TableSink(Sink):
    """Prints records on stdout as a table."""

    takes = Messages

    def __init__(self) -> None:
        """Format for stdout."""
        self._table = MessageTable(sys.stdout)

    async def write(self, records: Sequence[Message]) -> None:
        """Print the records."""
        print(self._table.render(records), end="", flush=True)
