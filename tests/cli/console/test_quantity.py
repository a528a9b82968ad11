"""Numbers for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.console.quantity import SCALED, short


@pytest.mark.parametrize(
    ("value", "unit", "says"),
    [
        (12, "", "12"),
        (-7, "packets", "-7 packets"),
        (1234567, "", "1.235 M"),
        (1.5, "", "1.5"),
        (0.123456, "percent", "0.1235 %"),
        (134217728, "bytes", "134.2 MB"),
        (65536, "kB", "65.54 MB"),
        (3450.0, "MHz", "3.45 GHz"),
        (999.96, "W", "1 kW"),
        (0, "bytes/s", "0 B/s"),
        (float("nan"), "", "nan"),
        (float("-inf"), "W", "-inf EW"),
    ],
)
def test_numbers_are_short_and_have_their_unit(value: float, unit: str, says: str) -> None:
    """At most four digits, a prefix where the unit takes one."""
    assert short(value, unit) == says


@given(st.floats() | st.integers(-(2**64), 2**64), st.sampled_from(["", "percent", *SCALED]))
def test_any_number_fits_into_a_column(value: float, unit: str) -> None:
    """Whatever comes over the wire."""
    assert len(short(value, unit)) <= 20
