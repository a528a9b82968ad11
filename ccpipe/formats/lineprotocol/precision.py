"""Timestamps: units, and conversion to nanoseconds.

The ClusterCockpit specification requires seconds; its receivers, cc-backend and the Slurm adapter
use nanoseconds. The unit is not transmitted, so ``auto`` infers it from the magnitude: the ranges
of the four units do not overlap for the years 1973 to 5138.
"""

from typing import Literal, get_args

from ccpipe.errors import UsageError

Precision = Literal["s", "ms", "us", "ns"]

UNITS: tuple[Precision, ...] = get_args(Precision)

UNIT_NUMBERS: dict[str, int] = {"auto": -1, **{unit: number for number, unit in enumerate(UNITS)}}
"""Codes of the units in the compiled kernel."""

NANOSECONDS: dict[Precision, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

NO_TIME = INT64_MIN
"""Time of a line without a timestamp, in a column of times."""


def unit_of(timestamp: int) -> Precision:
    """Return the unit of a timestamp, inferred from its magnitude."""
    size = abs(timestamp)
    if size <= 10**11:
        return "s"
    if size <= 10**14:
        return "ms"
    if size <= 10**17:
        return "us"
    return "ns"


def coarsest(nanoseconds: int) -> Precision:
    for unit in UNITS:
        if nanoseconds % NANOSECONDS[unit] == 0:
            return unit
    raise AssertionError  # every integer is a number of nanoseconds


def check_precision(precision: str) -> None:
    """Check a precision; raises UsageError naming the choices."""
    choices = (*UNITS, "auto")
    if precision not in choices:
        raise UsageError(f"precision is {precision!r}, not one of {', '.join(choices)}")
