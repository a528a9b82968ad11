"""Units of timestamps: inferred from their magnitude."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.lineprotocol.precision import NANOSECONDS, UNITS, Precision, coarsest, unit_of


@given(st.sampled_from(UNITS), st.integers(100_000_001, 99_999_999_999))
def test_the_years_1973_to_5138_are_distinguished(unit: Precision, seconds: int) -> None:
    """Any second of these years, written in any unit, is read in that unit."""
    stamp = seconds * 10**9 // NANOSECONDS[unit]
    if abs(stamp) < 2**63:
        assert unit_of(stamp) == unit
        assert unit_of(-stamp) == unit


@pytest.mark.parametrize(
    ("stamp", "unit"),
    [(0, "s"), (10**11, "s"), (10**11 + 1, "ms"), (10**14, "ms"), (10**14 + 1, "us"),
     (10**17, "us"), (10**17 + 1, "ns"), (2**63 - 1, "ns")],
)  # fmt: skip
def test_the_limits_between_units(stamp: int, unit: Precision) -> None:
    """Each limit belongs to the coarser unit."""
    assert unit_of(stamp) == unit


def test_the_coarsest_unit_loses_nothing() -> None:
    """It is the largest that divides the time."""
    assert [coarsest(time) for time in (0, 10**9, 10**6, 10**3, 1, -(10**9) - 1)] == [
        "s", "s", "ms", "us", "ns", "ns",
    ]  # fmt: skip


def test_one_payload_may_mix_units() -> None:
    """Each timestamp is read by itself; the payload then has no unit."""
    lines = decode(b"m v=1 1740027951\nm v=1 1740027951000000000\n")
    assert [m.time for m in lines] == [1740027951 * 10**9] * 2
    assert lines.precision is None
