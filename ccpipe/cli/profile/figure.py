"""Series as a figure, with matplotlib."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccpipe.atomic_file import replacing
from ccpipe.cli.profile.curves import Curve, find_curves
from ccpipe.errors import CreateError, DataError, MissingExtra, UsageError
from ccpipe.formats.slurm_profile.table import Table

FORMATS = (".png", ".svg", ".pdf")
MAX_PANELS = 60
MAX_NAMED = 12
"""Maximum number of curves of a panel in its legend."""
_WIDTH, _HEIGHT = 9.0, 2.2


LARGE = 10_000
"""Values above it are shown as 250M, not as 2.5 with 1e8 above the panel."""


def draw(tables: Sequence[Table], data: Sequence[str], path: Path) -> int:
    """Draw a panel for each field, in it a curve for each table; return the number of curves.

    The file is replaced at once. Raises DataError if no table has any of the fields, all are
    constant, or they are too many; MissingExtra without matplotlib; UsageError for a name of a file
    that says no known format; CreateError if the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--output {path}: the name must end with {', '.join(FORMATS)}")
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
        raise MissingExtra("matplotlib", "figures") from None
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
            # Beside the curves, which it would cover.
            axis.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes[-1].set_xlabel("seconds since the step began")
    return figure


def _plain(text: str) -> str:
    """Escape labels that matplotlib would parse as mathematics or hide."""
    return text.replace("$", r"\$").lstrip("_")
