"""Frames do not depend on the pieces in which their bytes come."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import Delivery, Frame
from ccpipe.bus.nats.protocol.splitter import LARGE, SMALL, FrameSplitter


def messages(frames: Iterable[Frame]) -> list[object]:
    """Return all messages and control lines of frames, one after the other."""
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
    """The store grows for it, once, and is small again afterwards."""
    splitter, payload = FrameSplitter(), bytes(3 * LARGE)
    data = b"MSG s 7 %d\r\n%b\r\n" % (len(payload), payload)
    assert messages(splitter.feed(data)) == [Delivery("s", payload)]
    assert messages(splitter.feed(data)) == [Delivery("s", payload)]
    assert len(splitter.free()) <= LARGE


def test_more_is_read_at_once_where_more_waits() -> None:
    """A connection with little to read keeps a small store."""
    splitter = FrameSplitter()
    data = b"MSG s 7 30000\r\n%b\r\n" % bytes(30000)
    assert len(splitter.free()) == SMALL
    for _ in range(50):
        splitter.feed(data)
    assert len(splitter.free()) == SMALL
    splitter.feed(data * 200)
    assert len(splitter.free()) == LARGE
