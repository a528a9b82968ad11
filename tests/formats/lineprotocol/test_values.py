"""Values: their types and their cells."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import ValueType, is_number, to_lines
from ccpipe.formats.lineprotocol.values import IS_NUMBER, cells, signed
from ccpipe.message import Message, Uint, Value


@given(st.lists(st.from_type(Message), max_size=8))
def test_the_types_of_a_column_say_what_is_a_number(records: list[Message]) -> None:
    """A number in the column of types is a number as a message's value."""
    lines = to_lines(records)
    assert [IS_NUMBER[kind] for kind in lines.types] == [is_number(m.value) for m in records]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, (1.5, 0, ValueType.FLOAT)),
        (-7, (-7.0, -7, ValueType.INT)),
        (Uint(2**64 - 1), (2.0**64, -1, ValueType.UINT)),
        (True, (1.0, 1, ValueType.BOOL)),
    ],
)
def test_a_value_has_one_type_and_two_numbers(
    value: Value, expected: tuple[float, int, ValueType]
) -> None:
    """One as a double, one exact; unsigned integers keep their 64 bits."""
    assert cells(value) == expected


def test_a_text_has_no_number() -> None:
    """Its double is NaN."""
    number, exact, kind = cells("x")
    assert (math.isnan(number), exact, kind) == (True, 0, ValueType.TEXT)


@pytest.mark.parametrize("value", [math.nan, -math.inf, 2**63, Uint(-1), Uint(2**64), "\udc00"])
def test_what_cannot_be_a_value_is_refused(value: Value) -> None:
    """The error shows it."""
    with pytest.raises(EncodeError, match="cannot be a value"):
        cells(value)


@given(st.integers(0, 2**64 - 1))
def test_unsigned_integers_keep_their_bits(value: int) -> None:
    """In a column of signed integers."""
    assert signed(value) % 2**64 == value
    assert -(2**63) <= signed(value) < 2**63
