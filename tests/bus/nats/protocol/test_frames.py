"""The server's protocol, from bytes to frames: the Python fallback, and the kernel against it."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import (
    BrokenFrame,
    Deliveries,
    Delivery,
    Frame,
    ack_tokens,
    is_redelivered,
    split_in_python,
    stored_as,
    stored_in_python,
    write_header,
)
from ccpipe.bus.nats.protocol.splitter import (
    KERNEL,
    LARGE,
    SMALL,
    FrameSplitter,
    concatenated,
)
from tests.conftest import needs_kernel

HEADER = b"NATS/1.0\r\nNats-Msg-Id: x\r\nB:\t c d \r\n\r\n"


PlainFrame = tuple[int, list[Delivery] | bytes]


def plain(frames: Iterable[Frame]) -> list[PlainFrame]:
    return [(sid, each if isinstance(each, bytes) else list(each)) for sid, each in frames]


def split(data: bytes) -> tuple[list[PlainFrame], int, int]:
    frames, start, needed = split_in_python(bytearray(b"old" + data + b"later"), 3, 3 + len(data))
    return plain(frames), start, needed


def test_splitter_groups_consecutive_messages_of_subscription() -> None:
    """Control lines separate the lists."""
    data = b"MSG a 1 2\r\nhi\r\nMSG a 1 r 0\r\n\r\nPING\r\nMSG b 2 2\r\n\r\n\r\n-ERR 'x y'\r\n"
    frames, start, _ = split(data)
    assert frames == [
        (1, [Delivery("a", b"hi"), Delivery("a", b"", b"", "r")]),
        (0, b"PING"),
        (2, [Delivery("b", b"\r\n")]),
        (0, b"-ERR 'x y'"),
    ]
    assert start == 3 + len(data)


def test_headers_are_read_by_name() -> None:
    """White space around a value is stripped; a line that is not a header is skipped."""
    ((_, found),) = split(b"HMSG a 9 r %d %d\r\n%b12\r\n" % (len(HEADER), len(HEADER) + 2, HEADER))[
        0
    ]
    (delivery,) = found
    assert isinstance(delivery, Delivery)
    assert (delivery.payload, delivery.reply, delivery.flaw) == (b"12", "r", "")
    assert delivery.headers == {"Nats-Msg-Id": "x", "B": "c d"}
    odd = b"NATS/1.0\r\n\xff: a\r\nno colon\r\na b: c\r\nd: \xff\r\n\r\n"
    assert Delivery("s", b"", odd).headers == {"d": "\ufffd"}
    assert Delivery("s", b"").headers == {}
    for headers in ({}, {"A": "b"}, {"A-B": "c d", "E": "ä"}):
        assert Delivery("s", b"", write_header(headers)).headers == headers


@pytest.mark.parametrize(
    ("delivery", "status"),
    [
        (Delivery("i", b"", b"NATS/1.0 404 No Messages\r\n\r\n"), ("404", "No Messages")),
        (Delivery("i", b"", b"NATS/1.0 503\r\n\r\n"), ("503", "")),
        (Delivery("i", b"", b"NATS/1.0 409 A B\r\nX: y\r\n\r\n"), ("409", "A B")),
        (Delivery("i", b"x", b"NATS/1.0 404 No Messages\r\n\r\n"), ("", "")),
        (Delivery("i", b"", b"NATS/1.0 404 No Messages\r\n\r\n", "$JS.ACK.a"), ("", "")),
        (Delivery("i", b"", b"NATS/1.0\r\nStatus: 503\r\n\r\n"), ("", "")),
        (Delivery("i", b"", b"NATS/1.0 503", "", "bad"), ("", "")),
        (Delivery("i", b""), ("", "")),
    ],
)
def test_status_is_accepted_from_server_only(delivery: Delivery, status: tuple[str, str]) -> None:
    """A header of that name is a publisher's, and so is a status line with a payload or a reply."""
    assert delivery.status == status


@pytest.mark.parametrize("reply", ["$JS.ACK.s.c.1.2.3.17.0", "$JS.ACK.d.h.s.c.1.2.3.17.0.x"])
def test_arrival_time_is_read_from_reply_subject(reply: str) -> None:
    assert Delivery("s", b"", b"", reply).arrival == 17


@pytest.mark.parametrize(
    "data",
    [
        b"MSG \xff 1 0\r\n\r\n",
        b"MSG a 1 \xff 0\r\n\r\n",
        b"HMSG a 1 3 5\r\nabcde\r\n",
        b"HMSG a 1 12 12\r\nNATS/2.0\r\n\r\n\r\n",
        b"HMSG a 1 12 12\r\nNATS/1.0\r\nxx\r\n",
    ],
)
def test_message_that_violates_protocol_has_flaw(data: bytes) -> None:
    """It is delivered with its payload; other messages are unaffected."""
    frames, _, _ = split(data + b"PING\r\n")
    ((_, (delivery,)), ping) = frames
    assert isinstance(delivery, Delivery)
    assert delivery.flaw
    assert (delivery.subject + delivery.reply).isascii()
    assert ping == (0, b"PING")


@pytest.mark.parametrize(
    "data",
    [
        b"MSG a 1\r\n",
        b"MSG a 1 r s 0\r\n\r\n",
        b"MSG  1 0\r\n\r\n",
        b"MSG a x 0\r\n\r\n",
        b"MSG a 0 0\r\n\r\n",
        b"MSG a 1 -1\r\n\r\n",
        b"MSG a 1 1_0\r\n\r\n",
        b"MSG a 1 1234567890123456789\r\n",
        b"MSG a 1 134217729\r\n",
        b"MSG a 1 2\r\nabcd\r\n",
        b"HMSG a 1 4 3\r\nabc\r\n",
        b"HMSG a 1 4\r\nabcd\r\n",
        b"x" * (2**20 + 1),
    ],
)
def test_splitter_raises_on_bytes_no_server_sends(data: bytes) -> None:
    """The start of the next frame is then unknown."""
    with pytest.raises(BrokenFrame):
        split(data)
    if KERNEL is not None:
        with pytest.raises(BrokenFrame):
            KERNEL.split(bytearray(data), 0, len(data))


@pytest.mark.parametrize(
    ("data", "begun", "needed"),
    [(b"PI", 0, 1), (b"PING\r\nMSG a 1 3\r\nab", 6, 16), (b"MSG a 1 3\r\nabc\r", 0, 16)],
)
def test_splitter_leaves_incomplete_frame(data: bytes, begun: int, needed: int) -> None:
    """The caller gets its start and its minimum size."""
    assert split(data)[1:] == (3 + begun, needed)


TOKEN = st.binary(max_size=6).map(lambda raw: re.sub(rb"[ \t\r\n]", b".", raw) or b"s")


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Draw what a server might send, and here and there what it would not."""
    parts = []
    for _ in range(draw(st.integers(0, 6))):
        words = [draw(TOKEN), b"%d" % draw(st.integers(0, 3)), *draw(st.lists(TOKEN, max_size=1))]
        header, payload = draw(st.sampled_from([b"", HEADER, b"abc"])), draw(st.binary(max_size=9))
        size = b"%d" % (len(header + payload) + draw(st.sampled_from([0, 0, 0, 0, 1])))
        kind, sizes = (b"HMSG", [b"%d" % len(header), size]) if header else (b"MSG", [size])
        parts.append(b" ".join([kind, *words, *sizes]) + b"\r\n" + header + payload + b"\r\n")
        parts.append(draw(st.sampled_from([b"", b"", b"PING\r\n", b"+OK\r\n", b"MSG\r\n"])))
    return b"".join(parts) + draw(st.binary(max_size=12))


def outcome(function: Any, data: bytes) -> object:
    store = bytearray(data)
    try:
        frames, start, needed = function(store, 0, len(data))
    except BrokenFrame as error:
        return str(error)
    store[:] = bytes(len(data))  # the next data are written to it
    return plain(frames), start, needed


@needs_kernel
@given(streams())
@example(b"HMSG a 1 0 0\r\n\r\n")
@example(b"MSG a\xc2 1 0\r\n\r\nMSG a 1 0\r\n\r\n")
@example(b"\r\r\n\r")
def test_kernel_splits_like_python_fallback(data: bytes) -> None:
    assert KERNEL is not None
    assert outcome(KERNEL.split, data) == outcome(split_in_python, data)


@needs_kernel
def test_kernel_stays_within_buffer() -> None:
    assert KERNEL is not None
    for start, end in ((-1, 2), (0, 3), (2, 1)):
        with pytest.raises(ValueError, match="store"):
            KERNEL.split(bytearray(2), start, end)


def messages(frames: Iterable[Frame]) -> list[object]:
    found: list[object] = []
    for _, content in frames:
        found += [content] if isinstance(content, bytes) else content
    return found


@given(st.lists(st.integers(0, 40), max_size=20), st.lists(st.integers(1, 60), min_size=1))
def test_splitter_gives_same_frames_for_pieces_of_any_size(
    sizes: list[int], pieces: list[int]
) -> None:
    """Also if a piece ends within a line, a payload or a line end."""
    payloads = [bytes(range(size)) for size in sizes]
    data = b"".join(b"MSG s 7 %d\r\n%b\r\nPING\r\n" % (len(p), p) for p in payloads)
    splitter, frames, place = FrameSplitter(), list[Frame](), 0
    while place < len(data):
        size = pieces[len(frames) % len(pieces)]
        frames += splitter.feed(data[place : place + size])
        place += size
    expected = [each for p in payloads for each in (Delivery("s", p), b"PING")]
    assert messages(frames) == expected


def test_splitter_reads_message_larger_than_its_buffer() -> None:
    splitter, payload = FrameSplitter(), bytes(3 * LARGE)
    data = b"MSG s 7 %d\r\n%b\r\n" % (len(payload), payload)
    assert messages(splitter.feed(data)) == [Delivery("s", payload)]
    assert messages(splitter.feed(data)) == [Delivery("s", payload)]
    assert len(splitter.free()) <= LARGE


def test_splitter_enlarges_buffer_if_more_data_is_waiting() -> None:
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


def test_ack_subjects_of_all_forms_are_read_in_columns() -> None:
    """Number and time have other positions if the server includes domain and account."""
    found = stored_in_python(" ".join([SHORT, LONG, LONG + ".token"]).encode())
    assert found is not None
    assert [list(column) for column in found] == [[7, 8, 8], [1740052800000000001, 17, 17]]
    assert stored_in_python(f"{SHORT} _INBOX.x {LONG}".encode()) is None


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
def test_reply_subject_of_publisher_is_not_metadata(reply: str) -> None:
    """A publisher chooses it; a line without a time then gets its time of arrival here."""
    assert stored_as(reply) is None
    assert stored_in_python(f"{SHORT} {reply}".encode()) is None
    assert Delivery("s", b"", b"", reply).arrival > 10**18


NUMBER = st.one_of(
    st.integers(0, 2**65).map(str), st.sampled_from(["", "-1", "1_0", "\u0667", "07", "x"])
)


@st.composite
def replies(draw: st.DrawFn) -> str:
    """Draw subjects that resemble those for acknowledgements."""
    tokens = draw(st.lists(NUMBER | st.text(max_size=3), min_size=5, max_size=12))
    return draw(st.sampled_from(["$JS.ACK.", "$JS.ACK", "$JS."])) + ".".join(tokens)


@needs_kernel
@given(st.lists(replies() | st.sampled_from([SHORT, LONG, LONG + ".token"]) | st.text()))
@example([SHORT.replace(".7.", f".{LARGEST}."), LONG])
@example([SHORT.replace("durable", "naïve"), LONG])
def test_kernel_reads_ack_subjects_like_python_fallback(subjects: list[str]) -> None:
    assert KERNEL is not None
    for text in [" ".join(subjects), *subjects]:
        encoded = text.encode(errors="backslashreplace")
        assert KERNEL.stored(encoded) == stored_in_python(encoded)


REPLIES = [SHORT, LONG, LONG + ".token", "_INBOX.x", "$JS.ACK", ""]
REPLIES += [reply.replace("durable.1.", "durable.2.") for reply in REPLIES[:3]]


@given(st.lists(st.sampled_from(REPLIES)))
@example([LONG, LONG.replace("durable", "other")])
@example([LONG] * 3)
def test_messages_are_first_deliveries_if_every_reply_subject_is_one(replies: list[str]) -> None:
    """They are not if one is redelivered, of another consumer, or without metadata."""
    deliveries = Deliveries([Delivery("s", b"", reply=reply) for reply in replies])
    consumers = {tuple(ack_tokens(reply)[:2]) for reply in replies}
    same = bool(replies) and len(consumers) == 1 and all(map(ack_tokens, replies))
    assert deliveries.are_first <= (same and not any(map(is_redelivered, replies)))
    if len(set(replies)) == 1:
        assert deliveries.are_first == (same and not is_redelivered(replies[0]))


SUBJECT = st.sampled_from([b"fox.metrics", b"p.fox", b"p.\xc3\xa4", b"p.\xff"])
REPLY = st.sampled_from([*(reply.encode() for reply in REPLIES), b"\xff", b"$JS.ACK.\xff.d.1.2"])
PAYLOAD = st.sampled_from([b"", b"m value=1", b"m value=1\n", b'm f="a"', b"m value=1\\"])


def columns(messages: Deliveries) -> list[object]:
    return [
        len(messages), list(messages), messages.size, messages.sizes, messages.subjects,
        messages.flawed, messages.replies, messages.are_first, messages.joined(),
        *map(list, messages.by_reply()), list(messages.without_prefix("p.")),
        messages.without_prefix("p.").subjects,
    ]  # fmt: skip


@needs_kernel
@given(st.lists(st.tuples(SUBJECT, REPLY, PAYLOAD), min_size=1), st.data())
@example([(b"p.fox", LONG.encode(), b"m value=1")] * 3, None)
def test_kernel_has_same_columns_of_messages_as_python_fallback(
    drawn: list[tuple[bytes, bytes, bytes]], data: st.DataObject | None
) -> None:
    """Also of a part of the messages, and of parts that are concatenated again."""
    assert KERNEL is not None
    stream = b"".join(
        b"MSG %b 1 %b%d\r\n%b\r\n" % (subject, reply + b" " * bool(reply), len(payload), payload)
        for subject, reply, payload in drawn
    )
    found = []
    for function in (split_in_python, KERNEL.split):
        [(_, messages)], _, _ = function(bytearray(stream), 0, len(stream))
        assert isinstance(messages, Deliveries)
        found.append(messages)
    expected, compiled = found
    assert columns(compiled) == columns(expected)
    cut = data.draw(st.integers(0, len(drawn))) if data else 1
    assert columns(compiled[cut:]) == columns(expected[cut:])
    assert columns(concatenated([compiled[:cut], compiled[cut:]])) == columns(expected)
    assert columns(concatenated([compiled[:cut], expected[cut:]])) == columns(expected)
    assert compiled[-1] == expected[-1]
    for place in (len(drawn), -len(drawn) - 1):
        with pytest.raises(IndexError):
            compiled[place]
