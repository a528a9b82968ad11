"""What commands write: tables, JSON, notes for people, and colour where it helps."""

import functools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Literal

import msgspec

from ccpipe.config import Duration, Size
from ccpipe.message import Kind, Message

if TYPE_CHECKING:  # they take their time, and most commands start without
    from ccpipe.formats.lineprotocol import Precision
    from ccpipe.pipeline import Records

TableOrJson = Literal["table", "json"]
Format = Literal["line", "json", "csv"]

PATIENCE = 2.0
"""Seconds after which a terminal is told how far something has come."""

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def has_colour(stream: IO[Any]) -> bool:
    """Say whether colour is welcome: on a terminal, unless ``NO_COLOR`` is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: IO[Any] | None = None) -> str:
    """Colour a text for a stream (stdout if none is given), where colour is welcome there."""
    if not (text and colour and has_colour(stream or sys.stdout)):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def note(text: str, colour: str = "dim") -> None:
    """Tell people something on stderr, so that it never mixes with data."""
    print(paint(text, colour, sys.stderr), file=sys.stderr, flush=True)


def open_stdout() -> IO[bytes]:
    """Return stdout for bytes, with a buffer of its own that no interpreter's end flushes."""
    return open(sys.stdout.fileno(), "wb", closefd=False)


class Progress:
    """One line on a terminal's stderr, rewritten, once there was some time to wait."""

    def __init__(self) -> None:
        """Begin to wait."""
        self.next = time.monotonic() + PATIENCE
        self.shown = False

    def show(self, text: str) -> None:
        """Say how far it has come, where a terminal watches and it is time to."""
        if sys.stderr.isatty() and time.monotonic() >= self.next:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self.next = time.monotonic() + PATIENCE / 4
            self.shown = True

    def clear(self) -> None:
        """Take the line away, before anything else is told."""
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.shown = False


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> None:
    """Print rows below their heads; on a terminal the last column wraps at its edge."""
    print("\n".join(table(rows, heads, width=terminal_width())))


def terminal_width() -> int | None:
    """Return the columns of the terminal; None where stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    rows: Sequence[Sequence[str]], heads: Sequence[str], width: int | None = None
) -> list[str]:
    """Lay rows out in columns; the last column is folded where it would pass `width`."""
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
    """Break a text into lines of `room` characters, at spaces; 0 leaves it whole."""
    import textwrap

    lines = text.splitlines() or [""]
    if not room:
        return [" ".join(lines)]
    return [piece for line in lines for piece in textwrap.wrap(line, room) or [""]]


def plain(value: Any) -> Any:
    """Turn a value of the configuration into what TOML or JSON can hold, as people write it."""
    if isinstance(value, Duration | Size):
        return measure(value)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {f.encode_name: plain(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return msgspec.to_builtins(value, enc_hook=str)


def measure(value: Duration | Size) -> str | float:
    """Spell a duration or size with the largest unit that fits it: ``10s``, ``64KiB``."""
    units = sorted(type(value).UNITS.items(), key=lambda unit: -unit[1])
    for name, unit in units:
        count = round(value / unit)
        if name and count and count * unit == value:
            return f"{count}{name}"
    return float(value) if isinstance(value, float) else int(value)


def plural(count: int, word: str) -> str:
    """Write a count with its word: ``1 line``, ``12 345 lines``."""
    return f"{count:,}".replace(",", " ") + f" {word}" + ("" if count == 1 else "s")


def listed(words: Iterable[str], most: int = 3) -> str:
    """Write the first few of many: ``a, b, c and 4 more``."""
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def encoder(
    output: Format, precision: "Precision | Literal['auto']" = "auto"
) -> tuple[bytes, Callable[["Records"], bytes]]:
    """Return what stands at the head of a format, and the codec; `precision` is line's only."""
    if output == "json":
        from ccpipe.formats import jsonlines

        return b"", jsonlines.encode
    if output == "csv":
        from ccpipe.formats import csvlines

        return csvlines.HEADER, csvlines.encode
    from ccpipe.formats.lineprotocol import encode

    return b"", functools.partial(encode, precision=precision)


class MessageTable:
    """Messages as a table without end: columns grow with what comes, lines end at the edge.

    Nothing that a message holds can steer the terminal: what does not print is escaped.
    """

    HEADS = ("TIME", "CLUSTER", "NODE", "NAME", "WHERE", "VALUE")
    COLOURS = ("dim", "", "cyan", "", "", "", "dim")
    WIDEST = 24
    """A longer cell pushes the rest of its row to the right, and no other row."""

    def __init__(self, stream: IO[str]) -> None:
        """Lay out for a stream: lines are cut where it is a terminal."""
        self._stream = stream
        self._widths = [len("00:00:00"), *map(len, self.HEADS[1:])]
        self._rows_until_heads = 0

    def render(self, messages: Iterable[Message], *, strict: bool = False) -> str:
        """Return the lines for some messages; `strict` adds the rules that each one breaks."""
        size = shutil.get_terminal_size() if self._stream.isatty() else None
        lines: list[str] = []
        rows = [(message, [printable(cell) for cell in _cells(message)]) for message in messages]
        self._widths = [
            max(width, *(min(len(cells[i]), self.WIDEST) for _, cells in rows), 0)
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
    """Write a moment as a clock of this place shows it, with as many decimals as it has."""
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


def printable(text: str) -> str:
    """Escape what does not print, so that no text can steer a terminal."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    )


class TableSink:
    """Prints records on stdout as a table."""

    def __init__(self) -> None:
        """Lay out for stdout."""
        self._table = MessageTable(sys.stdout)

    async def write(self, records: "Records") -> None:
        """Print the records."""
        print(self._table.render(records), end="", flush=True)
