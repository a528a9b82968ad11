"""How tables are shown: sort order, filter, cells, bars, and the columns that fit the screen."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ccpipe.cli.console.message_table import short
from ccpipe.terminal import printable

BAR_CELLS = 5
"""Length of a bar in characters, each of which shows eighths."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
MAX_TEXT = 24
"""Maximum width of a text in any column but the last."""
GAP = 2
"""Characters between two columns."""
ID = "id"
"""In place of a unit: a number that is written in full."""


class Column(NamedTuple):
    """A column: title and unit, and whether large values are first."""

    head: str
    unit: str = ""
    descending: bool = True
    rank: int = 0
    """On a narrow screen columns of the highest rank are left out first."""
    has_bar: bool = False
    """Whether a percentage is drawn as a bar, too."""

    @property
    def justify(self) -> Literal["left", "right"]:
        return "right" if self.descending or self.unit else "left"


class TopRow(NamedTuple):
    """A row: its key, and the raw values of its cells."""

    key: str
    values: tuple[Any, ...]


def select_rows(
    columns: Sequence[Column],
    rows: Iterable[TopRow],
    *,
    sort: int,
    reverse: bool,
    words: Sequence[str],
    maximum: int,
    keys: Collection[str] | None = None,
) -> list[TopRow]:
    """Return the rows that contain all words, and have one of `keys`, sorted; NaN is last."""
    wanted = [word.lower() for word in words]
    found = [
        row
        for row in rows
        if (keys is None or row.key in keys)
        and all(word in " ".join(map(str, row.values)).lower() for word in wanted)
    ]
    descending = columns[sort].descending != reverse

    def is_missing(row: TopRow) -> bool:
        value = row.values[sort]
        return isinstance(value, float) and math.isnan(value)

    known = [row for row in found if not is_missing(row)]
    known.sort(key=lambda row: row.values[sort], reverse=descending)
    return (known + [row for row in found if is_missing(row)])[:maximum]


def printable_cells(columns: Sequence[Column], row: TopRow) -> list[str]:
    return [_cell(value, column.unit) for value, column in zip(row.values, columns, strict=True)]


def drawn_cells(columns: Sequence[Column], row: TopRow) -> list[str]:
    """Return the cells of a row with bars, and with long texts cut."""
    cells = printable_cells(columns, row)
    last = len(cells) - 1
    for number, (value, column) in enumerate(zip(row.values, columns, strict=True)):
        if column.has_bar:
            cells[number] = bar(value)
        elif number < last and len(cells[number]) > MAX_TEXT:
            cells[number] = cells[number][: MAX_TEXT - 1] + "…"
    return cells


def bar(percent: float) -> str:
    """Draw a percentage as a bar with its number, such as ``██▌    52%``."""
    if math.isnan(percent):
        return "-"
    eighths = round(min(max(percent, 0), 100) / 100 * BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    drawn = _FULL * full + (_EIGHTHS[rest] if rest else "")
    return f"{drawn:<{BAR_CELLS}}{percent:4.0f}%"


def fitting(
    columns: Sequence[Column], widths: Sequence[int], room: int, keep: Collection[int]
) -> list[int]:
    """Return the numbers of the columns that fit into `room` characters, those in `keep` always."""
    shown = list(range(len(columns)))
    while len(shown) > 1 and sum(widths[number] + GAP for number in shown) > room:
        left = [number for number in shown if columns[number].rank and number not in keep]
        if not left:
            break
        shown.remove(max(left, key=lambda number: (columns[number].rank, number)))
    return shown


def _cell(value: object, unit: str) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and math.isnan(value):
        return "-"
    assert isinstance(value, int | float)
    if unit == ID:
        return str(value)
    return age(value) if unit == "s" else short(value, unit, digits=3)


def age(seconds: float) -> str:
    """Format an elapsed time as ``12s``, ``5m`` or ``3d04h``."""
    whole = max(0, int(seconds))
    minute, hour, day = 60, 3600, 86400
    if whole < minute:
        return f"{whole}s"
    if whole < hour:
        return f"{whole // minute}m{whole % minute:02d}s"
    if whole < day:
        return f"{whole // hour}h{whole % hour // minute:02d}m"
    return f"{whole // day}d{whole % day // hour:02d}h"
