"""Series over time, drawn in the terminal or, with matplotlib, as a figure."""

import importlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ccpipe.atomic_file import replacing
from ccpipe.errors import CreateError, DataError, MissingExtra, UsageError
from ccpipe.formats.slurm_profile.series import ELAPSED, EPOCH
from ccpipe.formats.slurm_profile.table import Table
from ccpipe.terminal import printable

BARS = "▁▂▃▄▅▆▇█"
DEFAULT_WIDTH = 60
MIN_WIDTH = 10

FORMATS = (".png", ".svg", ".pdf")
MAX_PANELS = 60
MAX_NAMED = 12
_WIDTH, _HEIGHT = 9.0, 2.2
LARGE = 10_000
"""Values above it are shown as 250M, not as 2.5 with 1e8 above the panel."""


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


def draw(tables: Sequence[Table], data: Sequence[str], path: Path) -> int:
    """Draw a panel for each field, in it a curve for each table; return the number of curves.

    The file is replaced at once. Raises DataError if no table has any of the fields, all are
    constant, or they are too many; MissingExtra without matplotlib; UsageError for a file name with
    an unknown suffix; CreateError if the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--out {path}: the name must end with {', '.join(FORMATS)}")
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in find_curves(tables, data):
        panels.setdefault((curve.table.series, curve.field), []).append(curve)
    if not panels:
        raise DataError("all fields are constant; name those to draw with --data")
    if len(panels) > MAX_PANELS:
        raise DataError(f"{len(panels)} fields, more than {MAX_PANELS}: choose some with --data")
    figure = _figure(panels)
    try:
        with replacing(path) as draft:
            figure.savefig(draft, format=path.suffix[1:].lower())
    except OSError as error:
        raise CreateError(f"{path}: {error.strerror}") from None
    return sum(map(len, panels.values()))


def _figure(panels: dict[tuple[str, str], list[Curve]]) -> Any:
    try:
        figures = importlib.import_module("matplotlib.figure")
        ticker = importlib.import_module("matplotlib.ticker")
    except ImportError:
        raise MissingExtra("matplotlib", "plot") from None
    figure = figures.Figure(figsize=(_WIDTH, _HEIGHT * len(panels) + 0.5), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, ((series, field), curves) in zip(axes, panels.items(), strict=True):
        for curve in curves:
            marker = "." if len(curve.values) == 1 else ""
            axis.plot(curve.elapsed, curve.values, label=_plain(curve.place), marker=marker)
        unit = f" ({curves[0].unit})" if curves[0].unit else ""
        axis.set_title(_plain(f"{series} {field}{unit}"), loc="left", fontsize="medium")
        axis.grid(visible=True, alpha=0.3)
        if axis.get_ylim()[1] > LARGE:
            axis.yaxis.set_major_formatter(ticker.EngFormatter(sep=""))
        axis.margins(x=0.01)
        if len(curves) <= MAX_NAMED:
            # Outside of the curves, which it would cover.
            axis.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes[-1].set_xlabel("seconds since the step began")
    return figure


def _plain(text: str) -> str:
    """Escape labels that matplotlib would parse as mathematics or hide."""
    return text.replace("$", r"\$").lstrip("_")
