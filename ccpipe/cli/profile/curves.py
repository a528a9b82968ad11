"""Series over time, and how they are drawn in the terminal."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ccpipe.errors import DataError
from ccpipe.formats.slurm_profile.series import ELAPSED, EPOCH
from ccpipe.formats.slurm_profile.table import Table
from ccpipe.terminal import printable

BARS = "▁▂▃▄▅▆▇█"
DEFAULT_WIDTH = 60
MIN_WIDTH = 10


class Curve(NamedTuple):
    """A field of a table over time."""

    table: Table
    field: str
    unit: str
    elapsed: Any
    """Seconds since the start of the step, of the samples that have the field."""
    values: Any

    @property
    def place(self) -> str:
        """The step, node and task, and the series."""
        return printable(self.table.path.removeprefix("/Steps/").replace("/Nodes/", " "))


def find_curves(tables: Sequence[Table], data: Sequence[str]) -> list[Curve]:
    """Return the fields that `data` names, or without it all that are not constant.

    Raises DataError if no table has any of the fields.
    """
    wanted = {name.lower() for name in data}
    found = [curve for table in tables for curve in _curves_of(table, wanted)]
    if wanted and not found:
        raise DataError(f"no table has the field {data[0]!r:.60}")
    return found


def _curves_of(table: Table, wanted: set[str]) -> Iterator[Curve]:
    records = table.read()
    for name in table.fields:
        if name in (ELAPSED, EPOCH) or (wanted and name.lower() not in wanted):
            continue
        there = ~table.type.missing(records, name)
        values = records[name][there].astype("<f8")
        if not len(values) or (not wanted and values.min() == values.max()):
            continue
        field = table.type.field(name)
        yield Curve(table, name, (field and field.unit) or "", records[ELAPSED][there], values)


def curves(
    tables: Sequence[Table], data: Sequence[str], width: int | None, terminal: int | None
) -> Iterator[str]:
    """Yield a line for each field: its name, the curve over time, minimum and maximum.

    A column shows the largest value of its time. Without `data`, constant fields are left out.
    Raises DataError if no table has any of the fields.
    """
    rows = [
        (
            f"{found.place} {printable(found.field)}",
            found,
            f"{found.values.min():g} to {found.values.max():g} {found.unit}".rstrip(),
        )
        for found in find_curves(tables, data)
    ]
    if not rows:
        yield "all fields are constant"
        return
    names = max(len(name) for name, *_ in rows)
    ranges = max(len(text) for *_, text in rows)
    room = width or max(
        MIN_WIDTH, (terminal or DEFAULT_WIDTH + names + ranges) - names - ranges - 4
    )
    for name, found, text in rows:
        yield f"{name:<{names}}  {curve(found.elapsed, found.values, room):<{room}}  {text}"


def curve(elapsed: Any, values: Any, width: int) -> str:
    """Draw values over time with `width` characters; a time without samples is blank."""
    low, high = float(values.min()), float(values.max())
    start, span = int(elapsed.min()), max(1, int(elapsed.max()) - int(elapsed.min()))
    width = min(width, span + 1)
    columns = np.minimum((elapsed.astype("<i8") - start) * width // span, width - 1)
    peaks = np.full(width, -math.inf)
    np.maximum.at(peaks, columns, values)
    heights = (peaks - low) / ((high - low) or 1.0) * (len(BARS) - 1)
    return "".join(
        BARS[round(height)] if height >= 0 else " " for height in heights.tolist()
    ).rstrip()
