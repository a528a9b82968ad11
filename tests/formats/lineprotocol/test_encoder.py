"""Encoder: canonical bytes that decode to the same records."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError, UsageError
from ccpipe.formats.lineprotocol import (
    EncodedLines,
    Lines,
    Precision,
    decode,
    encode,
    encode_rows,
    to_lines,
)
from ccpipe.formats.lineprotocol.precision import NANOSECONDS, UNITS, coarsest, unit_of
from ccpipe.formats.lineprotocol.writer import original, write_message, write_value
from ccpipe.message import Message, Uint
from ccpipe.records import RejectedRecord

SECOND = 10**9

messages = st.lists(st.from_type(Message), max_size=8)


@given(messages)
def test_encoded_messages_decode_to_same(records: list[Message]) -> None:
    """All value types, names and texts survive; nothing is rejected."""
    lines = decode(encode(records), precision="s")
    assert lines.rejected == []
    assert list(lines) == records
    assert [type(m.value) for m in lines] == [type(m.value) for m in records]


@given(messages, st.integers(-(2**63) + 1, 2**63 - 1))
def test_encoder_is_lossless_in_nanoseconds(records: list[Message], time: int) -> None:
    """For any time."""
    timed = [Message(m.name, m.tags, m.value, time, m.field) for m in records]
    assert list(decode(encode(timed, precision="ns"), precision="ns")) == timed


@given(st.integers(10**17 + 1, 2**63 - 1), st.sampled_from([1, 10**3, 10**6, 10**9]))
def test_encoder_is_lossless_with_auto_from_1973(time: int, unit: int) -> None:
    """The coarsest unit for a time is read back as that unit."""
    record = Message("m", {}, 1.0, time // unit * unit)
    assert list(decode(encode([record], precision="auto"))) == [record]


@given(messages)
def test_encoder_writes_columns_and_messages_alike(records: list[Message]) -> None:
    """Messages, columns and decoded columns give the same bytes; each row is a line of them."""
    payload = encode(records, precision="ns")
    lines = to_lines(records)
    assert to_lines(lines) is lines
    assert encode(lines, precision="ns") == payload
    assert encode(decode(payload, precision="ns"), precision="ns") == payload
    encoded = encode_rows(lines, precision="ns")
    assert encoded == EncodedLines.of([encode([each], precision="ns") for each in lines])
    assert encoded.payload == payload
    backwards = range(len(lines) - 1, -1, -1)
    assert encoded.take(backwards).payload == encode([*lines][::-1], precision="ns")


@given(st.from_type(Message), st.randoms())
def test_encoder_ignores_order_of_tags(record: Message, random: Random) -> None:
    pairs = list(record.tags.items())
    random.shuffle(pairs)
    shuffled = Message(record.name, dict(pairs), record.value, record.time, record.field)
    assert encode([shuffled]) == encode([record])


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Message("m", {}, 1.5, 5 * SECOND), b"m value=1.5 5\n"),
        (Message("m", {"b": "2", "a": "1"}, 1.0, 5 * SECOND), b"m,a=1,b=2 value=1.0 5\n"),
        (Message("m", {"a": "", "b": "2"}, 7, None), b"m,b=2 value=7i\n"),
        (Message("m", {}, Uint(2**64 - 1), 0), b"m value=18446744073709551615u 0\n"),
        (Message("m", {}, value=True, time=-SECOND), b"m value=true -1\n"),
        (
            Message("a b,c=", {"d e,f=": "g h,i="}, 1e300, None, "j k,l="),
            b"a\\ b\\,c=,d\\ e\\,f\\==g\\ h\\,i\\= j\\ k\\,l\\==1e+300\n",
        ),
        (Message("ccb", {}, 'a\\"\n\r\t\x01', 1, "log"), b'ccb log="a\\\\\\"\\n\\r\\t\x01" 0\n'),
    ],
)
def test_encoder_writes_canonical_form(message: Message, line: bytes) -> None:
    """Sorted tags, no empty tags, each value in the canonical form of its type."""
    assert encode([message]) == line
    assert encode(to_lines([message])) == line


@pytest.mark.parametrize("precision", ["s", "ms", "us", "ns"])
def test_encoder_truncates_times_to_precision(precision: Precision) -> None:
    """Times are rounded down, also before 1970."""
    size = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[precision]
    for time in (1740027951123456789, -1):
        line = encode([Message("m", {}, 1.0, time)], precision=precision)
        assert line == b"m value=1.0 %d\n" % math.floor(time // size)


@pytest.mark.parametrize(
    "message",
    [
        Message("m", {}, math.nan),
        Message("m", {}, math.inf),
        Message("m", {}, 2**63),
        Message("m", {}, -(2**63) - 1),
        Message("m", {}, Uint(2**64)),
        Message("m", {}, Uint(-1)),
        Message("", {}, 1.0),
        Message("#m", {}, 1.0),
        Message("m\\", {}, 1.0),
        Message("a\nb", {}, 1.0),
        Message("m", {"": "x"}, 1.0),
        Message("m", {"a\\": "x"}, 1.0),
        Message("m", {"a": "x\\"}, 1.0),
        Message("m", {"a": "x\ty"}, 1.0),
        Message("m", {"a": "\ud800"}, 1.0),
        Message("m", {}, "\ud800"),
        Message("m", {}, 1.0, field=""),
        Message("m", {}, 1.0, field="a\x7f"),
        Message("m", {}, 1.0, time=2**63),
        Message("m", {}, 1.0, time=-(2**63)),
        Message("m", {}, None),  # type: ignore[arg-type]
        Message("m", {}, b"x"),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_encoder_rejects_unrepresentable_message(message: Message) -> None:
    """The error names the record; the encoder writes only what can be decoded."""
    lines = to_lines([message])
    with pytest.raises(EncodeError, match=r".+"):
        encode([message])
    assert (len(lines), len(lines.rejected)) == (0, 1)


def test_encoder_rejects_unknown_precision() -> None:
    """Of messages and of columns."""
    none: list[Message] = []
    for records in (none, Lines()):
        with pytest.raises(UsageError, match="not one of"):
            encode(records, precision="d")  # type: ignore[arg-type]


def test_lines_of_messages_pass_through_in_nanoseconds() -> None:
    """Columns made from messages have a payload too."""
    lines = to_lines([Message("m", {}, 1.0, 10**9)])
    assert (lines.precision, lines.passthrough()) == ("ns", b"m value=1.0 1000000000\n")


def test_to_lines_keeps_records_that_translator_rejects() -> None:
    """Plain ones, too, which then are as printable as undecodable lines."""
    lines = to_lines([], [RejectedRecord(b"rack17;A", "2 fields", 3, 29)])
    assert [*map(str, lines.rejected)] == ["line 3, column 0: 2 fields: rack17;A"]
    assert (lines.rejected[0].reason, lines.rejected[0].offset) == ("2 fields", 29)


def test_to_lines_rejects_too_long_series() -> None:
    """Messages that can be encoded but not decoded are rejected."""
    lines = to_lines([Message("m", {"a": "x" * 65536}, 1.0)])
    assert len(lines) == 0
    [rejected] = lines.rejected
    assert "longer than 65535 bytes" in str(rejected)


class Float(float):
    """A subclass of float with its own ``__repr__``, like NumPy's."""

    def __repr__(self) -> str:
        return f"Float({float(self)})"


@given(st.from_type(Message), st.sampled_from(["s", "ms", "us", "ns", "auto"]))
def test_writer_writes_same_bytes_as_encoder(message: Message, precision: str) -> None:
    """In every unit."""
    line = write_message(message, precision)  # type: ignore[arg-type]
    assert line == encode([message], precision=precision)  # type: ignore[arg-type]


def test_encoder_error_names_message() -> None:
    with pytest.raises(EncodeError, match=r"'m' \{'hostname': 'n1'\}: nan is not a valid value"):
        write_message(Message("m", {"hostname": "n1"}, float("nan")), "s")


def test_encoder_writes_float_of_subclass_as_number() -> None:
    """``__repr__`` of the subclass is not line protocol."""
    assert write_value(Float(1.5)) == b"1.5"
    assert list(decode(encode([Message("m", {}, Float(1.5))]))) == [Message("m", {}, 1.5)]


@given(st.from_type(Message))
def test_original_of_message_is_line(message: Message) -> None:
    """Without line end; a message that cannot be encoded is returned as ``repr()``."""
    assert original(message) + b"\n" == write_message(message, "auto")
    broken = Message("", message.tags, message.value, message.time, message.field)
    assert original(broken) == repr(broken).encode()


@given(st.sampled_from(UNITS), st.integers(100_000_001, 99_999_999_999))
def test_unit_is_inferred_for_years_1973_to_5138(unit: Precision, seconds: int) -> None:
    """Any second of these years is read in the unit it was written in."""
    stamp = seconds * 10**9 // NANOSECONDS[unit]
    if abs(stamp) < 2**63:
        assert unit_of(stamp) == unit
        assert unit_of(-stamp) == unit


@pytest.mark.parametrize(
    ("stamp", "unit"),
    [(0, "s"), (10**11, "s"), (10**11 + 1, "ms"), (10**14, "ms"), (10**14 + 1, "us"),
     (10**17, "us"), (10**17 + 1, "ns"), (2**63 - 1, "ns")],
)  # fmt: skip
def test_unit_at_limit_is_coarser_one(stamp: int, unit: Precision) -> None:
    assert unit_of(stamp) == unit


def test_coarsest_unit_is_lossless() -> None:
    """It is the largest unit that divides the time."""
    assert [coarsest(time) for time in (0, 10**9, 10**6, 10**3, 1, -(10**9) - 1)] == [
        "s", "s", "ms", "us", "ns", "ns",
    ]  # fmt: skip


def test_decoder_infers_unit_of_each_timestamp() -> None:
    """A payload with several units has no precision."""
    lines = decode(b"m v=1 1740027951\nm v=1 1740027951000000000\n")
    assert [m.time for m in lines] == [1740027951 * 10**9] * 2
    assert lines.precision is None
