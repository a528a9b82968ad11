"""``to_lines``: messages as columns."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message


@given(st.lists(st.from_type(Message), max_size=8))
def test_messages_survive_columns(records: list[Message]) -> None:
    """The columns are a sequence of equal messages, with values of the same types."""
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
    """What could be encoded but not decoded again is among the rejected."""
    lines = to_lines([Message("m", {"a": "x" * 65536}, 1.0)])
    assert len(lines) == 0
    [rejected] = lines.rejected
    assert "longer than 65535 bytes" in str(rejected)
