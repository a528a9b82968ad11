"""``Lines``: columns that are also a sequence, joined, cut, stamped and passed through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType, decode, encode
from ccpipe.formats.lineprotocol.decoder import decode_in_python
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import write_series
from ccpipe.message import Message, Uint

SECOND = 10**9

messages = st.lists(st.from_type(Message), max_size=8)
COLUMNS = ("series", "fields", "types", "numbers", "exact", "times", "starts", "ends")
PAYLOAD = (
    b"load,hostname=a value=1.5 1740027951\n"
    b'ccb,hostname=a log="x\ny" 1740027952\r\n'
    b"# nothing\n"
    b"bad\n"
    b"  pair x=1i,y=2u,z=t 1740027953 \n"
    b"load,hostname=b value=2.5 1740027954"
)


@given(messages)
def test_messages_survive_columns(records: list[Message]) -> None:
    """``Lines.of`` is a sequence of the very messages put in."""
    lines = Lines.of(records)
    assert list(lines) == records
    assert len(lines) == len(records)
    assert [type(m.value) for m in lines] == [type(m.value) for m in records]
    assert Lines.of(lines) is lines


@given(st.lists(messages, max_size=4), st.booleans())
def test_joined_lines_hold_the_rows_of_all(parts: list[list[Message]], own_tables: bool) -> None:
    """Also where the parts number their series differently."""
    lines = [
        decode_in_python(encode(part), SeriesTable() if own_tables else table, "s", lenient=False)
        for table in [SeriesTable()]
        for part in parts
    ]
    if not lines:
        return
    whole = Lines.concat(lines)
    assert list(whole) == [message for part in parts for message in part]
    for index, _ in enumerate(whole):
        assert (
            whole.bytes_of(index)
            == [part.bytes_of(row) for part in lines for row in range(len(part))][index]
        )


@given(messages, st.slices(8))
def test_a_slice_holds_the_rows_of_its_range(records: list[Message], rows: slice) -> None:
    """As for a list."""
    assert list(Lines.of(records)[rows]) == records[rows]
    assert list(decode(encode(records, precision="s"), precision="s")[rows]) == records[rows]


def test_columns_are_buffers_of_equal_length() -> None:
    """Whoever takes buffers takes them without copying; no library is needed for that."""
    lines = decode(PAYLOAD)
    sizes = {name: memoryview(getattr(lines, name)).nbytes for name in COLUMNS}
    assert sizes == {
        "series": 24, "fields": 24, "types": 6, "numbers": 48, "exact": 48,
        "times": 48, "starts": 48, "ends": 48,
    }  # fmt: skip
    assert [ValueType(kind).name for kind in lines.types] == [
        "FLOAT", "TEXT", "INT", "UINT", "BOOL", "FLOAT",
    ]  # fmt: skip


def test_the_valid_lines_bytes_pass_through() -> None:
    """Bad lines, comments and stray spaces are cut out; the rest stays byte for byte."""
    lines = decode(PAYLOAD)
    assert lines.passthrough() == (
        b"load,hostname=a value=1.5 1740027951\n"
        b'ccb,hostname=a log="x\ny" 1740027952\n'
        b"pair x=1i,y=2u,z=t 1740027953\n"
        b"load,hostname=b value=2.5 1740027954\n"
    )
    assert lines.bytes_of(3) == b"pair x=1i,y=2u,z=t 1740027953"


@given(st.slices(6))
def test_what_passes_through_decodes_to_the_same_rows(rows: slice) -> None:
    """A slice that cuts a line with several fields in two passes nothing."""
    part = decode(PAYLOAD)[rows]
    passed = part.passthrough()
    if passed is not None:
        assert list(decode(passed)) == list(part)


@pytest.mark.parametrize(
    "payload", [b"m v=1", b"m v=1 1\nm v=2", b"m v=1 1\nm v=2 1740027951000"], ids=repr
)
def test_nothing_passes_where_times_miss_or_differ_in_unit(payload: bytes) -> None:
    """A destination reads all stamps of a payload in one unit."""
    assert decode(payload).precision is None
    assert decode(payload).passthrough() is None


def test_repaired_and_added_rows_do_not_pass_through() -> None:
    """Their bytes are not what they mean."""
    repaired = decode(b"name, value=1 5", lenient=True)
    assert repaired.passthrough() is None
    lines = decode(b"m v=1 1")
    assert Lines.concat([lines, repaired]).passthrough() is None
    lines.append(0, 0, 2.0, SECOND)
    assert lines.passthrough() is None


def test_messages_pass_through_in_nanoseconds() -> None:
    """Columns made of messages have bytes too; they cannot be mixed with seconds."""
    lines = Lines.of([Message("m", {}, 1.0, SECOND)])
    assert (lines.precision, lines.passthrough()) == ("ns", b"m value=1.0 1000000000\n")
    assert Lines.concat([decode(b"m v=1 1"), lines]).passthrough() is None


def test_a_series_too_long_to_be_read_is_refused() -> None:
    """What could be written but not read back is no row."""
    with pytest.raises(EncodeError, match="longer than 65535 bytes"):
        Lines.of([Message("m", {"a": "x" * 65536}, 1.0)])


@given(messages)
def test_stamping_gives_a_time_to_rows_without(records: list[Message]) -> None:
    """Rows that carry one keep it."""
    lines = Lines.of(records).fill_missing_times(7 * SECOND)
    assert [m.time for m in lines] == [7 * SECOND if m.time is None else m.time for m in records]
    assert NO_TIME not in lines.times


def test_rows_can_be_added_by_number() -> None:
    """Sources build columns without messages; what cannot be a value is refused."""
    lines = Lines()
    series = lines.table.code_of(Series("m", {"a": "b"}, write_series("m", {"a": "b"})))
    field = lines.table.field_code_of("value")
    lines.append(series, field, Uint(2**64 - 1), 5)
    lines.append(series, field, "x", NO_TIME)
    assert list(lines) == [
        Message("m", {"a": "b"}, Uint(2**64 - 1), 5),
        Message("m", {"a": "b"}, "x", None),
    ]
    for value in (float("nan"), 2**63, Uint(-1)):
        with pytest.raises(EncodeError):
            lines.append(series, field, value, 5)
    assert len(lines) == 2


def test_a_rejected_line_prints_readably() -> None:
    """Whatever bytes it holds, its excerpt is one printable line around the offence."""
    (bad,) = decode(b"x" * 100 + b"\xff\x00\n").rejected
    assert str(bad).startswith("line 1, column 102: expected a space and a field")
    assert str(bad).isprintable()
    assert "x\\xff\\x00" in bad.excerpt
    assert len(bad.excerpt) < 80
