"""``ExtendedUint``: 0 unset, 1 infinite, v+2 for v."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import INFINITE, UNSET, ExtendedUint, decode


@given(st.integers(0, 2**64 - 1))
def test_the_wire_is_the_value(number: int) -> None:
    """Every number of 64 bits is one ExtendedUint, and back."""
    read = ExtendedUint.from_wire(number)
    assert read.wire == number
    assert read.value == (number - 2 if number >= 2 else None)
    assert (read == UNSET) == (number == 0) == (not read)
    assert (read == INFINITE) == (number == 1) == read.is_infinite


@given(st.integers(0, 2**64 - 3))
def test_a_value_is_two_less_than_what_is_written(value: int) -> None:
    """The specification's v+2."""
    assert ExtendedUint(value).wire == value + 2
    assert ExtendedUint(value) == ExtendedUint.from_wire(value + 2)


@pytest.mark.parametrize("value", [-1, 2**64 - 2])
def test_its_range_is_smaller_than_that_of_its_wire(value: int) -> None:
    """Two values are taken."""
    with pytest.raises(ValueError, match="outside"):
        ExtendedUint(value)


def test_it_says_what_it_is() -> None:
    """People see the value, not the wire; it is no number."""
    shown = [repr(x) for x in (ExtendedUint(90), UNSET, INFINITE)]
    assert shown == ["ExtendedUint(90)", "ExtendedUint(UNSET)", "ExtendedUint(INFINITE)"]
    assert ExtendedUint(90) != 92
    assert len({ExtendedUint(1), ExtendedUint(1), UNSET}) == 2


@pytest.mark.parametrize("written", ["-1", "1.0", '"5"', "true", "[]"])
def test_anything_else_is_an_error_with_its_path(written: str) -> None:
    """Only an integer of 64 bits is one."""
    attributes = '{"slurm_jobs":[{},{"time_limit":' + written + "}]}"
    payload = '{"meta":{},"data":{"type":"job","attributes":' + attributes + "}}"
    (bad,) = decode(payload.encode()).rejected
    assert bad.path == "$.data.attributes.slurm_jobs[1].time_limit"
