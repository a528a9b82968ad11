"""``to_lines``: messages as columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message


@given(st.lists(st.from_type(Message), max_size=8))
def test_messages_survive_columns(records: list[Message]) -> None:
    """The columns are a sequence of the very messages, values with their types."""
    lines = to_lines(records)
    assert list(lines) == records
    assert len(lines) == len(records)
    assert [type(m.value) for m in lines] == [type(m.value) for m in records]
    assert to_lines(lines) is lines


def test_messages_pass_through_in_nanoseconds() -> None:
    """Columns made of messages have a payload too."""
    lines = to_lines([Message("m", {}, 1.0, 10**9)])
    assert (lines.precision, lines.passthrough()) == ("ns", b"m value=1.0 1000000000\n")


def test_a_series_too_long_to_be_read_is_refused() -> None:
    """What could be encoded but not decoded again is an error."""
    with pytest.raises(EncodeError, match="longer than 65535 bytes"):
        to_lines([Message("m", {"a": "x" * 65536}, 1.0)])
