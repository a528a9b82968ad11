"""Messages as a table, and numbers in short form, with their unit."""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, NamedTuple

from ccpipe.message import Kind, Message
from ccpipe.terminal import paint, printable

if TYPE_CHECKING:  # imported with the first event: a part of the time to the first line
    from ccpipe.cli.console.event_text import EventText, EventTexts

LEVELS = {"emerg": "red", "alert": "red", "crit": "red", "err": "red", "error": "red"}
LEVELS |= {"warn": "yellow", "warning": "yellow", "notice": "cyan", "debug": "dim"}
"""Colours of the levels of log messages."""

SCALED = {
    "bytes": ("B", 1.0),
    "kB": ("B", 1e3),
    "MByte": ("B", 1e6),
    "GBytes": ("B", 1e9),
    "bytes/s": ("B/s", 1.0),
    "MByte/s": ("B/s", 1e6),
    "Flops/s": ("F/s", 1.0),
    "MHz": ("Hz", 1e6),
    "W": ("W", 1.0),
    "J": ("J", 1.0),
}
"""Units that take a prefix: symbol and factor."""

PLAIN = {"percent": "%", "degC": "°C", "sec": "s"}

PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_STEP = 1000.0
_MAX_EXACT = 10**6


class TableRow(NamedTuple):
    """One line of a ``MessageTable``; of only two cells, the second one is a sentence."""

    cells: Sequence[str]
    colours: Sequence[str]
    marks: Sequence[str] = ()


class MessageTable:
    """A continuous table of messages: columns grow as needed, long lines are cut.

    What is not printable is escaped, so that no message can control the terminal. The value
    precedes columns that may be long, and on a narrow terminal names are shortened first: it is
    never cut.
    """

    HEADS = ("TIME", "NODE", "NAME", "VALUE", "WHERE", "CLUSTER")
    COLOURS = ("dim", "cyan", "", "bold", "", "", "dim")
    MAX_WIDTH = 24
    """Maximum column width; a longer cell shifts the rest of its own row only."""

    MIN_WIDTH = 6

    def __init__(self, stream: IO[str]) -> None:
        self.units: Mapping[str, str] = {}
        """Units of metrics that have no tag ``unit``."""
        self._stream = stream
        self._widths = [len("00:00:00"), *map(len, self.HEADS[1:])]
        self._rows_until_heads = 0
        self._events: EventTexts | None = None

    def render(self, messages: Iterable[Message], *, strict: bool = False) -> str:
        """Format messages; `strict` adds the rules that each one breaks."""
        return self.render_rows([self._row(message, strict=strict) for message in messages])

    def render_rows(self, rows: Sequence[TableRow]) -> str:
        size = shutil.get_terminal_size() if self._stream.isatty() else None
        lines: list[str] = []
        rows = [row._replace(cells=[printable(cell) for cell in row.cells]) for row in rows]
        columns = [row for row in rows if len(row.cells) > len(self._widths)]
        self._widths = [
            max(width, *(min(len(row.cells[i]), self.MAX_WIDTH) for row in columns), 0)
            for i, width in enumerate(self._widths)
        ]
        for row in rows:
            if self._rows_until_heads == 0:
                self._rows_until_heads = size.lines - 1 if size else sys.maxsize
                lines.append(self._line(self.HEADS, ["bold"] * len(self.HEADS), size))
            self._rows_until_heads -= 1
            lines.append(self._line(row.cells, row.colours, size))
            marks = (f"  {printable(mark)}" for mark in row.marks)
            lines.extend(self._line([mark], ["yellow"], size) for mark in marks)
        return "".join(line + "\n" for line in lines)

    def _row(self, message: Message, *, strict: bool) -> TableRow:
        colours = self.COLOURS
        if message.kind is Kind.LOG:
            colour = LEVELS.get(message.tags.get("loglevel", "").lower(), "")
            colours = (*colours[:-1], colour)
        marks = [f"^ {problem}" for problem in message.problems()] if strict else ()
        if message.kind is Kind.EVENT and (found := self._described(message)) is not None:
            return TableRow((clock(message.time), found.text), ("dim", found.colour), marks)
        return TableRow(_cells(message, self.units), colours, marks)

    def _described(self, message: Message) -> "EventText | None":
        if self._events is None:
            from ccpipe.cli.console.event_text import EventTexts

            self._events = EventTexts()
        return self._events.describe(message)

    def _line(
        self, cells: Sequence[str], colours: Sequence[str], size: os.terminal_size | None
    ) -> str:
        widths = self._widths
        if size and len(cells) >= len(widths):
            # Time, value and the gaps between columns; node and name share the rest.
            left = size.columns - widths[0] - max(widths[3], len(cells[3])) - 6
            share = max(self.MIN_WIDTH, left // 2)
            widths = [min(width, share) if i in (1, 2) else width for i, width in enumerate(widths)]
            cells = [_cut(cell, share) if i in (1, 2) else cell for i, cell in enumerate(cells)]
        padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
        padded[len(cells) - 1 :] = cells[-1:]
        room = size.columns if size else sys.maxsize
        pieces = []
        for text, colour in zip(padded, colours, strict=True):
            piece = _cut(text, room)
            pieces.append(paint(piece, colour, self._stream))
            room -= len(piece) + 2
            if room <= 0:
                break
        return "  ".join(pieces).rstrip()


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def _cells(message: Message, units: Mapping[str, str]) -> list[str]:
    tags = message.tags
    where = [" ".join(filter(None, (tags.get(t), tags.get(f"{t}-id")))) for t in ("type", "stype")]
    named = {"cluster", "hostname", "type", "type-id", "stype", "stype-id"}
    value, text = message.value, ""
    if message.kind is Kind.METRIC and not isinstance(value, str | bool):
        shown = short(value, tags.get("unit", units.get(message.name, "")))
        named.add("unit")
    elif message.kind is Kind.METRIC:
        shown = str(value).lower() if isinstance(value, bool) else str(value)
    else:
        # An event's text is long: it is last, after its subject.
        shown = tags.get("function") or tags.get("loglevel") or tags.get("method") or message.kind
        text = f"{message.field}={value}"
    rest = " ".join(f"{key}={tag}" for key, tag in tags.items() if key not in named)
    return [
        clock(message.time),
        message.hostname,
        message.name,
        shown,
        " ".join(filter(None, where)),
        tags.get("cluster", ""),
        " ".join(filter(None, (text, rest))),
    ]


def clock(nanoseconds: int | None) -> str:
    """Format a timestamp as local time of day, with as many decimals as needed."""
    if nanoseconds is None:
        return "-"
    seconds, rest = divmod(nanoseconds, 10**9)
    try:
        local = datetime.fromtimestamp(seconds)  # noqa: DTZ006 - people read local time
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"
    return f"{local:%H:%M:%S}" + (f".{rest:09d}".rstrip("0") if rest else "")


def short(value: float, unit: str = "", *, digits: int = 4) -> str:
    """Format a number with a maximum of significant digits, except small integers.

    >>> short(134217728, "bytes"), short(3450.0, "MHz"), short(12), short(0.123456, "percent")
    ('134.2 MB', '3.45 GHz', '12', '0.1235 %')
    >>> short(40123.4), short(134217728, "bytes", digits=3)
    ('40123', '134 MB')
    """
    symbol, factor = SCALED.get(unit, (PLAIN.get(unit, unit), 0.0))
    if factor:
        value *= factor
    elif isinstance(value, int) and abs(value) < _MAX_EXACT:
        return f"{value} {symbol}".rstrip()
    prefix = ""
    if factor or abs(value) >= _MAX_EXACT:
        for prefix in PREFIXES:
            if abs(value) < _STEP - 5 * 10.0 ** (2 - digits) or prefix == PREFIXES[-1]:
                break
            value /= _STEP
    number = f"{value:.0f}" if _STEP <= abs(value) < _MAX_EXACT else f"{value:.{digits}g}"
    return f"{number} {prefix}{symbol}".rstrip()
