"""What is known of metrics by their names: unit, meaning, and how parts of a node add up."""

from typing import Any, NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.units import parse_unit
from ccpipe.node.sampling.metrics import declared

AVERAGED = {"percent", "temperature", "hertz", "revolution", "volt"}
"""Measures that are averaged over the parts of a node; the others are summed."""


class Known(NamedTuple):
    """What is known of one metric."""

    unit: str = ""
    meaning: str = ""
    averaged: bool = False
    """Whether parts of a node are averaged rather than summed."""


def known_metrics() -> dict[str, Known]:
    """Return what the collectors declare, plug-ins' too, by name of the metric.

    It imports every collector: call it in a thread.
    """
    return {
        row.name: Known(
            row.unit, row.meaning, is_averaged(row.unit) or (not row.unit and row.kind is float)
        )
        for row in declared()
    }


def is_averaged(unit: str) -> bool:
    """Return whether values of a unit are averaged over the parts of a node."""
    try:
        return bool(unit) and parse_unit(unit).measure in AVERAGED
    except DataError:
        return False


def plain(known: dict[str, Known], names: list[str]) -> dict[str, dict[str, Any]]:
    """Return what the page needs to know of some metrics."""
    return {name: known[name]._asdict() for name in names if name in known}
