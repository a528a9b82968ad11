"""Minimum, maximum, sum and average of the fields of a table."""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ccpipe.formats.slurm_profile.hdf5 import Array, Records


class FieldTotal(msgspec.Struct):
    """Of one field; None, and a sum of 0, where it has no value at all."""

    min: int | float | None = None
    max: int | float | None = None
    sum: int | float = 0
    count: int = 0

    @property
    def average(self) -> float | None:
        """Return the sum by the count."""
        return float(self.sum) / self.count if self.count else None

    def join(self, other: "FieldTotal") -> "FieldTotal":
        """Return the total of both."""
        return FieldTotal(
            _pick(min, self.min, other.min),
            _pick(max, self.max, other.max),
            self.sum + other.sum,
            self.count + other.count,
        )


class Totals:
    """Adds up tables block by block.

    Integers are exact, however large. Floating point numbers are added one after another, as
    sh5util does it: other orders give other last digits.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        """Add up `fields`."""
        self._totals = {name: FieldTotal() for name in fields}

    def add(self, records: Records, missing: Callable[[str], Array] | None = None) -> None:
        """Add rows; `missing` returns which values of a field do not count."""
        for name, total in self._totals.items():
            values = records[name]
            if missing is not None and (gone := missing(name)).any():
                values = values[~gone]
            if len(values):
                self._totals[name] = _add(total, values)

    def result(self) -> dict[str, FieldTotal]:
        """Return the totals so far."""
        return self._totals


def _add(total: FieldTotal, values: Array) -> FieldTotal:
    if values.dtype.kind == "f":
        chain = np.concatenate([[float(total.sum)], values.astype("<f8")])
        added: int | float = float(np.add.accumulate(chain)[-1])
    else:
        added = int(total.sum) + _exact_sum(values)
    low, high = values.min().item(), values.max().item()
    return FieldTotal(
        _pick(min, total.min, low), _pick(max, total.max, high), added, total.count + len(values)
    )


def _exact_sum(values: Array) -> int:
    """Add integers of 64 bits whose sum may need more."""
    wide = values.astype("<u8")
    half = np.uint64(32)
    return (int((wide >> half).sum()) << 32) + int((wide & np.uint64(2**32 - 1)).sum())


def _pick(
    choose: Callable[[int | float, int | float], int | float],
    first: float | None,
    second: float | None,
) -> int | float | None:
    if first is None or second is None:
        return second if first is None else first
    return math.nan if first != first or second != second else choose(first, second)  # noqa: PLR0124
