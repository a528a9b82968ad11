"""What collectors say that they send.

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
    """``int`` or ``float``: how the value stands on the wire."""
    meaning: str
    types: tuple[str, ...] = ("node",)
    """What the tag ``type`` says."""
    stype: str = ""
    """What the tag ``stype`` says; empty where there is none."""
    part: str = ""
    """What it says where parts of the device are told of too; empty where they are not."""


def units() -> dict[str, str]:
    """Return the units of all metrics whose collectors declare them, plug-ins' too, by name."""
    modules = {entry.module for entry in metadata.entry_points(group="ccpipe.collectors")}
    tables = []
    for name in sorted(modules):
        with contextlib.suppress(Exception):  # a broken plug-in: whoever constructs it reports that
            tables.append(getattr(importlib.import_module(name), "METRICS", ()))
    return {row.name: row.unit for table in tables for row in table if row.unit}
