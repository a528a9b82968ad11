"""``Messages``: a list of messages with what ``Lines`` has."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, Messages, decode, to_lines
from ccpipe.formats.lineprotocol.precision import coarsest
from ccpipe.message import Message

messages = st.lists(st.from_type(Message), max_size=6)


@given(messages)
def test_records_are_wrapped_once(records: list[Message]) -> None:
    """``Lines`` and ``Messages`` are returned as they are; other sequences become messages."""
    wrapped = Messages.of(iter(records))
    assert isinstance(wrapped, Messages)
    assert wrapped == records
    assert Messages.of(wrapped) is wrapped
    lines = to_lines(records)
    assert Messages.of(lines) is lines


@given(st.lists(st.tuples(messages, st.sampled_from(["lines", "messages", "list"])), max_size=4))
def test_joined_records_keep_their_order(parts: list[tuple[list[Message], str]]) -> None:
    """Columns stay columns where all parts are; a part without records changes nothing."""
    kinds: dict[str, Callable[[list[Message]], Sequence[Message]]] = {
        "lines": to_lines,
        "messages": Messages,
        "list": list,
    }
    joined = Messages.concat([kinds[kind](records) for records, kind in parts])
    assert list(joined) == [message for records, _ in parts for message in records]
    found = {kind for records, kind in parts if records}
    assert isinstance(joined, Lines if found == {"lines"} else Messages)


def test_joining_loses_no_rejected_lines() -> None:
    """Also where a payload had nothing else."""
    joined = Messages.concat([decode(b"m v=1 1"), Messages(), decode(b"broken")])
    assert isinstance(joined, Lines)
    assert [bad.original for bad in joined.rejected] == [b"broken"]


@given(messages, st.slices(6))
def test_a_slice_is_of_the_same_kind(records: list[Message], rows: slice) -> None:
    """So a part of a batch can do what the batch can."""
    part = Messages(records)[rows]
    assert isinstance(part, Messages)
    assert part == records[rows]


def test_the_size_counts_messages_and_their_texts() -> None:
    """Half a kilobyte each: what bounds a queue."""
    records = Messages([Message("m", {}, 1.0), Message("m", {}, "x" * 1000, field="log")])
    assert (records.size, Messages().size) == (2024, 0)


@given(messages.filter(bool))
def test_a_message_is_a_line_for_a_dead_letter(records: list[Message]) -> None:
    """The same line as a row of columns, exact in time and without line end."""
    line = Messages(records).original(0)
    assert line == to_lines(records).original(0)
    assert b"\n" not in line
    time = records[0].time
    unit = "s" if time is None else coarsest(time)
    assert list(decode(line, precision=unit)) == records[:1]


@pytest.mark.parametrize("value", [float("nan"), 2**64, "\ud800"], ids=repr)
def test_a_message_that_cannot_be_encoded_is_shown_in_a_dead_letter(value: float | str) -> None:
    """As Python prints it."""
    line = Messages([Message("m", {}, value)]).original(0)
    assert line == repr(Message("m", {}, value)).encode()


def test_messages_have_no_rejected_lines() -> None:
    """They were never bytes."""
    assert (Messages.name, len(Messages().rejected)) == ("lines", 0)
