"""What collectors declare that they send.

``docs/collectors/`` is written from it, by ``scripts/collector_pages.py``.
"""

import contextlib
import importlib
from importlib import metadata
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.units import parse_unit

AVERAGED = frozenset({"percent", "temperature", "hertz", "revolution", "volt"})
"""Quantities averaged over the parts of a node; the others are summed."""


POWERS = ("cpu_power", "mem_power", "nv_power_usage", "rocm_avg_power")
"""Metrics of a node's parts that add up to the energy of a job."""


class Metric(NamedTuple):
    """One row of a collector's table ``METRICS``."""

    name: str
    unit: str
    """Empty for a plain number or count."""
    kind: type[float | str]
    """``int``, ``float`` or ``str``: the type of the value on the wire."""
    meaning: str
    types: tuple[str, ...] = ("node",)
    """Values of the tag ``type``."""
    stype: str = ""
    """Value of the tag ``stype``; empty if there is none."""
    part: str = ""
    """The same for parts of the device, where these are reported too; else empty."""

    @property
    def measure(self) -> str:
        """The quantity; empty for numbers without a unit and unknown units."""
        try:
            return parse_unit(self.unit).measure if self.unit else ""
        except DataError:
            return ""

    @property
    def is_averaged(self) -> bool:
        """Whether parts of a node are averaged rather than summed, as ratios are."""
        is_ratio = not self.unit and self.kind is float
        return is_ratio or self.measure in AVERAGED


def declared() -> list[Metric]:
    """Return what all collectors declare that they send, plug-ins' too."""
    modules = {entry.module for entry in metadata.entry_points(group="ccpipe.collectors")}
    rows: list[Metric] = []
    for name in sorted(modules):
        with contextlib.suppress(Exception):  # a broken plug-in is reported where it is constructed
            rows += getattr(importlib.import_module(name), "METRICS", ())
    return rows


def units() -> dict[str, str]:
    return {row.name: row.unit for row in declared() if row.unit}
