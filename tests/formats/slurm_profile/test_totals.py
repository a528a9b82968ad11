"""Totals of tables."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.totals import FieldTotal, Totals

numbers = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30)


def total(values: list[int] | list[float], kind: str, cut: int = 0) -> FieldTotal:
    """Add up values in two blocks."""
    rows = np.zeros(len(values), [("x", kind)])
    rows["x"] = values
    totals = Totals(["x"])
    for block in (rows[:cut], rows[cut:]):
        totals.add(block)
    return totals.result()["x"]


@given(numbers, st.integers(0, 30))
def test_integers_are_exact(values: list[int], cut: int) -> None:
    """Sums beyond 64 bits do not wrap around, in however many blocks they come."""
    found = total(values, "<u8", cut)
    assert found == FieldTotal(min(values), max(values), sum(values), len(values))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30), st.integers(0, 30))
def test_floating_point_numbers_are_added_one_after_another(values: list[float], cut: int) -> None:
    """As sh5util adds them: the last digits are the same. Negative maxima are what they are."""
    added = 0.0
    for value in values:
        added += value
    assert total(values, "<f8", cut) == FieldTotal(min(values), max(values), added, len(values))


@given(numbers, st.integers(0, 30))
def test_totals_of_parts_join_to_that_of_the_whole(values: list[int], cut: int) -> None:
    """A part without values changes nothing."""
    parts = [total(part, "<u8") if part else FieldTotal() for part in (values[:cut], values[cut:])]
    assert parts[0].join(parts[1]) == total(values, "<u8")
    assert FieldTotal().average is None
