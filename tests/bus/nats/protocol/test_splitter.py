"""Frames do not depend on the pieces in which their bytes come."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import (
    Delivery,
    Frame,
    ack_tokens,
    are_first,
    is_redelivered,
    stored_as,
)
from ccpipe.bus.nats.protocol.splitter import KERNEL, LARGE, SMALL, FrameSplitter, stored_in_python
from tests.conftest import needs_kernel


def messages(frames: Iterable[Frame]) -> list[object]:
    found: list[object] = []
    for _, content in frames:
        found += content if isinstance(content, list) else [content]
    return found


@given(st.lists(st.integers(0, 40), max_size=20), st.lists(st.integers(1, 60), min_size=1))
def test_pieces_of_any_size_give_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    """Also where a piece ends within a line, a payload or a line end."""
    payloads = [bytes(range(size)) for size in sizes]
    data = b"".join(b"MSG s 7 %d\r\n%b\r\nPING\r\n" % (len(p), p) for p in payloads)
    splitter, frames, place = FrameSplitter(), list[Frame](), 0
    while place < len(data):
        size = pieces[len(frames) % len(pieces)]
        frames += splitter.feed(data[place : place + size])
        place += size
    expected = [each for p in payloads for each in (Delivery("s", p), b"PING")]
    assert messages(frames) == expected


def test_a_message_larger_than_the_store_is_read() -> None:
    splitter, payload = FrameSplitter(), bytes(3 * LARGE)
    data = b"MSG s 7 %d\r\n%b\r\n" % (len(payload), payload)
    assert messages(splitter.feed(data)) == [Delivery("s", payload)]
    assert messages(splitter.feed(data)) == [Delivery("s", payload)]
    assert len(splitter.free()) <= LARGE


def test_more_is_read_at_once_where_more_waits() -> None:
    splitter = FrameSplitter()
    data = b"MSG s 7 30000\r\n%b\r\n" % bytes(30000)
    assert len(splitter.free()) == SMALL
    for _ in range(50):
        splitter.feed(data)
    assert len(splitter.free()) == SMALL
    splitter.feed(data * 200)
    assert len(splitter.free()) == LARGE


SHORT = "$JS.ACK.stream.durable.1.7.9.1740052800000000001.0"
LONG = "$JS.ACK._.hash.stream.durable.1.8.9.17.0"
LARGEST = 2**63 - 1


def test_all_forms_in_columns() -> None:
    """Number and time stand in other places where the server names domain and account."""
    found = stored_in_python([SHORT, LONG, LONG + ".token"])
    assert found is not None
    assert [list(column) for column in found] == [[7, 8, 8], [1740052800000000001, 17, 17]]
    assert stored_in_python([SHORT, "_INBOX.x", LONG]) is None


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "$JS.ACK",
        "$JS.ACK.x",
        SHORT.replace(".7.", ".-7."),
        SHORT.replace(".7.", ".\u0667."),
        SHORT.replace(".7.", f".{LARGEST + 1}."),
        SHORT.replace(".7.", f".{'9' * 5000}."),
        SHORT + ".1",
        LONG + ".token.more",
        "X" + SHORT,
    ],
)
def test_a_hostile_reply_subject_says_nothing(reply: str) -> None:
    """A publisher chooses it; a line without a time then has that of its arrival here."""
    assert stored_as(reply) is None
    assert stored_in_python([SHORT, reply]) is None
    assert Delivery("s", b"", b"", reply).arrival > 10**18


NUMBER = st.one_of(
    st.integers(0, 2**65).map(str), st.sampled_from(["", "-1", "1_0", "\u0667", "07", "x"])
)


@st.composite
def replies(draw: st.DrawFn) -> str:
    """Draw subjects that nearly are those of acknowledgements."""
    tokens = draw(st.lists(NUMBER | st.text(max_size=3), min_size=5, max_size=12))
    return draw(st.sampled_from(["$JS.ACK.", "$JS.ACK", "$JS."])) + ".".join(tokens)


@needs_kernel
@given(st.lists(replies() | st.sampled_from([SHORT, LONG, LONG + ".token"]) | st.text()))
@example([SHORT.replace(".7.", f".{LARGEST}."), LONG])
@example([SHORT.replace("durable", "naïve"), LONG])
def test_the_kernel_reads_as_the_twin_does(subjects: list[str]) -> None:
    assert KERNEL is not None
    assert KERNEL.stored(subjects) == stored_in_python(subjects)
    for subject in subjects:
        assert KERNEL.stored([subject]) == stored_in_python([subject])


REPLIES = [SHORT, LONG, LONG + ".token", "_INBOX.x", "$JS.ACK", ""]
REPLIES += [reply.replace("durable.1.", "durable.2.") for reply in REPLIES[:3]]


@given(st.lists(st.sampled_from(REPLIES)))
@example([LONG, LONG.replace("durable", "other")])
@example([LONG] * 3)
def test_messages_are_first_deliveries_when_every_reply_subject_is_one(replies: list[str]) -> None:
    """One redelivered message, one of another consumer or none at all makes the difference."""
    deliveries = [Delivery("s", b"", reply=reply) for reply in replies]
    consumers = {tuple(ack_tokens(reply)[:2]) for reply in replies}
    same = bool(replies) and len(consumers) == 1 and all(map(ack_tokens, replies))
    assert are_first(deliveries) <= (same and not any(map(is_redelivered, replies)))
    if len(set(replies)) == 1:
        assert are_first(deliveries) == (same and not is_redelivered(replies[0]))
