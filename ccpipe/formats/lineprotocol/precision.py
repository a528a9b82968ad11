"""Timestamps: which unit a number is in, and nanoseconds out of it.

The ClusterCockpit specification says seconds; its receivers, cc-backend and the Slurm adapter say
nanoseconds. Nothing on the wire names the unit, so ``auto`` reads it off the magnitude: each of
the four units names the years 1973 to 5138 without touching its neighbour.
"""

from typing import Literal, get_args

from ccpipe.errors import UsageError

Precision = Literal["s", "ms", "us", "ns"]
"""A unit of timestamps."""

UNITS: tuple[Precision, ...] = get_args(Precision)

PLACES: dict[str, int] = {"auto": -1, **{unit: place for place, unit in enumerate(UNITS)}}
"""The numbers by which the compiled kernel knows the units."""

NANOSECONDS: dict[Precision, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""How many nanoseconds one of the unit is."""

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

NO_TIME = INT64_MIN
"""Stands in a column of times where a line carries no timestamp."""


def unit_of(stamp: int) -> Precision:
    """Return the unit that a timestamp is most likely in, by its magnitude."""
    size = abs(stamp)
    if size <= 10**11:
        return "s"
    if size <= 10**14:
        return "ms"
    if size <= 10**17:
        return "us"
    return "ns"


def coarsest(nanoseconds: int) -> Precision:
    """Return the largest unit that holds a time without losing anything."""
    for unit in UNITS:
        if nanoseconds % NANOSECONDS[unit] == 0:
            return unit
    raise AssertionError  # every integer is a number of nanoseconds


def check_precision(precision: str, *, auto: bool = True) -> None:
    """Refuse what is no precision.

    Raises
    ------
    UsageError
        naming the choices.

    """
    choices = (*UNITS, "auto") if auto else UNITS
    if precision not in choices:
        raise UsageError(f"precision is {precision!r}, not one of {', '.join(choices)}")
