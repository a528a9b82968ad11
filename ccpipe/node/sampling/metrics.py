"""What collectors declare that they send.

``docs/collectors/`` is written from it, by ``scripts/collector_pages.py``.
"""

import contextlib
import importlib
from importlib import metadata
from typing import NamedTuple


class Metric(NamedTuple):
    """One row of a collector's table ``METRICS``."""

    name: str
    unit: str
    """Empty for a plain number or count."""
    kind: type[float]
    """``int`` or ``float``: the type of the value on the wire."""
    meaning: str
    types: tuple[str, ...] = ("node",)
    """Values of the tag ``type``."""
    stype: str = ""
    """Value of the tag ``stype``; empty where there is none."""
    part: str = ""
    """The same for parts of the device, where these are reported too; else empty."""


def units() -> dict[str, str]:
    """Return the units of all metrics whose collectors declare them, plug-ins' too, by name."""
    modules = {entry.module for entry in metadata.entry_points(group="ccpipe.collectors")}
    tables = []
    for name in sorted(modules):
        with contextlib.suppress(Exception):  # a broken plug-in is reported where it is constructed
            tables.append(getattr(importlib.import_module(name), "METRICS", ()))
    return {row.name: row.unit for table in tables for row in table if row.unit}
