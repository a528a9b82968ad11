"""Draws series in the terminal."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ccpipe.errors import DataError
from ccpipe.formats.slurm_profile import Table
from ccpipe.formats.slurm_profile.series import ELAPSED, EPOCH
from ccpipe.terminal import printable

BARS = "▁▂▃▄▅▆▇█"
DEFAULT_WIDTH = 60
MIN_WIDTH = 10


def curves(
    tables: Sequence[Table], data: Sequence[str], width: int | None, terminal: int | None
) -> Iterator[str]:
    """Yield a line for each field: its name, the curve over time, minimum and maximum.

    A column shows the largest value of its time. Without `data`, constant fields are left out.

    Raises
    ------
    DataError
        where no table has any of the fields

    """
    wanted = {name.lower() for name in data}
    rows = [row for table in tables for row in _rows(table, wanted)]
    if wanted and not rows:
        raise DataError(f"no table has the field {data[0]!r:.60}")
    if not rows:
        yield "all fields are constant"
        return
    names = max(len(name) for name, *_ in rows)
    ranges = max(len(text) for *_, text in rows)
    room = width or max(
        MIN_WIDTH, (terminal or DEFAULT_WIDTH + names + ranges) - names - ranges - 4
    )
    for name, elapsed, values, text in rows:
        yield f"{name:<{names}}  {curve(elapsed, values, room):<{room}}  {text}"


def _rows(table: Table, wanted: set[str]) -> Iterator[tuple[str, Any, Any, str]]:
    records = table.read()
    where = table.path.removeprefix("/Steps/").replace("/Nodes/", " ")
    for name in table.fields:
        if name in (ELAPSED, EPOCH) or (wanted and name.lower() not in wanted):
            continue
        there = ~table.type.missing(records, name)
        values = records[name][there].astype("<f8")
        if not len(values) or (not wanted and values.min() == values.max()):
            continue
        field = table.type.field(name)
        unit = f" {field.unit}" if field and field.unit else ""
        text = f"{values.min():g} to {values.max():g}{unit}"
        yield printable(f"{where} {name}"), records[ELAPSED][there], values, text


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
