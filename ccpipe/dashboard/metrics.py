"""Properties of metrics by name: unit, meaning, and aggregation over parts of a node."""

from typing import Any, NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.units import parse_unit
from ccpipe.node.sampling.metrics import declared

AVERAGED = {"percent", "temperature", "hertz", "revolution", "volt"}
"""Quantities averaged over the parts of a node; the others are summed."""


class Known(NamedTuple):
    """Properties of one metric."""

    unit: str = ""
    meaning: str = ""
    averaged: bool = False
    """Whether parts of a node are averaged rather than summed."""


def known_metrics() -> dict[str, Known]:
    """Return the metrics declared by collectors, including plug-ins, by name.

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
    """Return the properties of some metrics that the page needs."""
    return {name: known[name]._asdict() for name in names if name in known}
