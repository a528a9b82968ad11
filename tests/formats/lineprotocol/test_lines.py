"""``Lines``: columns that are also a sequence of messages; texts and Arrow table."""

from array import array
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import (
    Dialect,
    Lines,
    Series,
    SeriesTable,
    ValueType,
    decode,
    encode,
    encoder,
    is_number,
    to_lines,
)
from ccpipe.formats.lineprotocol import lines as lines_module
from ccpipe.formats.lineprotocol.arrow import SCHEMA, TAG_COLUMNS
from ccpipe.formats.lineprotocol.decoder import decode_compiled, decode_in_python
from ccpipe.formats.lineprotocol.grammar import CC, INFLUX
from ccpipe.formats.lineprotocol.lines import COLUMNS
from ccpipe.formats.lineprotocol.precision import NO_TIME, Precision, coarsest
from ccpipe.formats.lineprotocol.values import IS_NUMBER, Texts
from ccpipe.message import Message, Uint
from tests.conftest import needs_kernel

SECOND = 10**9

messages = st.lists(st.from_type(Message), max_size=8)
PAYLOAD = (
    b"load,hostname=a value=1.5 1740027951\n"
    b'ccb,hostname=a log="x\ny" 1740027952\r\n'
    b"# nothing\n"
    b"bad\n"
    b"  pair x=1i,y=2u,z=t 1740027953 \n"
    b"load,hostname=b value=2.5 1740027954"
)


def received(lines: Lines) -> list[bytes]:
    return [lines.payload[a:b] for a, b in zip(lines.starts, lines.ends, strict=True)]


@given(st.lists(messages, max_size=4), st.booleans())
def test_concat_returns_rows_of_all_parts(parts: list[list[Message]], own_tables: bool) -> None:
    """Even if the parts number their series differently."""
    lines = [
        decode_in_python(encode(part), SeriesTable() if own_tables else table, "s", lenient=False)
        for table in [SeriesTable()]
        for part in parts
    ]
    if not lines:
        return
    whole = Lines.concat(lines)
    assert list(whole) == [message for part in parts for message in part]
    assert received(whole) == [line for part in lines for line in received(part)]


@given(st.lists(messages, min_size=2, max_size=4), st.sampled_from([*COLUMNS, "payload", "size"]))
def test_concat_builds_columns_in_any_order(parts: list[list[Message]], first: str) -> None:
    """Whichever column is accessed first, and after a row was added."""
    whole = Lines.concat([decode(encode(part, precision="ns"), precision="ns") for part in parts])
    expected = [message for part in parts for message in part]
    getattr(whole, first)
    assert len(whole) == len(expected)
    assert list(whole) == expected
    assert received(whole) == [encode([each], precision="ns").rstrip(b"\n") for each in expected]
    series = whole.table.add(b"added")
    whole.append(series, whole.table.add_field(b"value"), 3.0, 4)
    assert list(whole) == [*expected, Message("added", {}, 3.0, 4)]


@given(messages, st.slices(8))
def test_slice_returns_rows_of_range_like_list(records: list[Message], rows: slice) -> None:
    assert list(to_lines(records)[rows]) == records[rows]
    assert list(decode(encode(records, precision="s"), precision="s")[rows]) == records[rows]


def test_columns_are_buffers_of_equal_length() -> None:
    """They can be used without a copy or a library."""
    lines = decode(PAYLOAD)
    sizes = {
        name: memoryview(column).nbytes for name, column in zip(COLUMNS, lines.columns, strict=True)
    }
    assert sizes == {
        "series": 24, "fields": 24, "types": 6, "numbers": 48, "exact": 48,
        "times": 48, "starts": 48, "ends": 48,
    }  # fmt: skip
    assert [ValueType(kind).name for kind in lines.types] == [
        "FLOAT", "TEXT", "INT", "UINT", "BOOL", "FLOAT",
    ]  # fmt: skip


def test_passthrough_returns_bytes_of_valid_lines() -> None:
    """Without bad lines, comments and extra spaces; otherwise byte for byte."""
    lines = decode(PAYLOAD)
    assert lines.passthrough() == (
        b"load,hostname=a value=1.5 1740027951\n"
        b'ccb,hostname=a log="x\ny" 1740027952\n'
        b"pair x=1i,y=2u,z=t 1740027953\n"
        b"load,hostname=b value=2.5 1740027954\n"
    )
    assert received(lines)[3] == b"pair x=1i,y=2u,z=t 1740027953"


@needs_kernel
def test_passthrough_returns_clean_payload_without_copy() -> None:
    """Anything but lines is removed, and a missing last line end added."""
    payload = b"a v=1,w=2 1\nb v=2 2\n"
    assert decode(payload).passthrough() is payload
    for other in (b"a v=1,w=2 1 \nb v=2 2\n", b"a v=1,w=2 1\r\n\nb v=2 2", b"#\n" + payload):
        assert decode(other).passthrough() == payload
    whole = Lines.concat([decode(b"a v=1,w=2 1"), decode(b"broken\nb v=2 2\n")])
    assert whole.passthrough() == payload


@needs_kernel
def test_concat_summarizes_its_parts_when_all_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types, the only field and the bytes to pass on are known without building a column."""
    payloads = [b"m value=1 1\n", b"m value=2i 2\n"]
    whole = Lines.concat(list(map(decode, payloads)))
    mixed = Lines.concat([decode(payloads[0]), decode(b"m other=1 1\n\n")])
    with monkeypatch.context() as context:
        context.setattr(lines_module, "KERNEL", None)  # which builds the columns
        assert whole.used_types == {ValueType.FLOAT, ValueType.INT}
        assert whole.only_field == whole.table.field_codes[b"value"]
        assert whole.passthrough() == b"".join(payloads)
        assert mixed.only_field is None
    assert mixed.passthrough() == b"m value=1 1\nm other=1 1\n"


@pytest.mark.parametrize("number", ["1", "1.5", "0.5", "1.5e3", "1e3", "-1", "1i", "t"])
@pytest.mark.parametrize("odd", [".5", "-.5", "1.", "-12.", "1.e2"])
@pytest.mark.parametrize(
    "decode", [pytest.param(decode_compiled, marks=needs_kernel), decode_in_python]
)
def test_lines_detect_numbers_with_bare_decimal_point(
    decode: Callable[..., Lines], number: str, odd: str
) -> None:
    """In known and new series, alone in a line or not, and after ``concat`` or ``take``."""
    table = SeriesTable()
    plain = decode(f"m.n,a=.5,b=1. v={number} 1\n".encode() * 2, table, "auto", False)
    assert not plain.bare_points
    for payload in (f"m.n,a=b v={odd} 1\n", f"m.n,a=b v={odd} 1\n" * 2, f"x w=1,v={odd} 1\n"):
        found = decode(payload.encode(), table, "auto", False)
        assert found.bare_points
        assert Lines.concat([plain, found])[:1].bare_points


@given(st.slices(6))
def test_passthrough_decodes_to_same_rows(rows: slice) -> None:
    """A slice that splits the fields of a line cannot be passed on."""
    part = decode(PAYLOAD)[rows]
    passed = part.passthrough()
    if passed is not None:
        assert list(decode(passed)) == list(part)


@pytest.mark.parametrize(
    "payload", [b"m v=1", b"m v=1 1\nm v=2", b"m v=1 1\nm v=2 1740027951000"], ids=repr
)
def test_passthrough_requires_times_in_one_unit(payload: bytes) -> None:
    """A receiver reads all timestamps of a payload in one unit."""
    assert decode(payload).precision is None
    assert decode(payload).passthrough() is None


def test_passthrough_returns_none_for_repaired_and_added_rows() -> None:
    """Their bytes in the payload have another meaning."""
    repaired = decode(b"name, value=1 5", lenient=True)
    assert repaired.passthrough() is None
    lines = decode(b"m v=1 1")
    assert Lines.concat([lines, repaired]).passthrough() is None
    lines.append(0, 0, 2.0, SECOND)
    assert lines.passthrough() is None


def test_passthrough_returns_none_for_concat_of_different_units() -> None:
    """Seconds and nanoseconds cannot be mixed in one payload."""
    lines = to_lines([Message("m", {}, 1.0, SECOND)])
    assert Lines.concat([decode(b"m v=1 1"), lines]).passthrough() is None


@given(messages, st.data())
def test_take_returns_selected_rows(records: list[Message], data: st.DataObject) -> None:
    """Other rows are dropped; rejected lines are kept."""
    lines = Lines.concat([decode(b"broken\n"), to_lines(records)])
    keep = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    taken = lines.take(keep)
    assert list(taken) == [record for record, kept in zip(records, keep, strict=True) if kept]
    assert taken.rejected == lines.rejected
    assert list(lines) == records


@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_passthrough_returns_none_after_take_of_part_of_line(keep: list[bool]) -> None:
    """Only whole lines are passed on as received."""
    lines = decode(PAYLOAD)
    passed = lines.take(keep).passthrough()
    if 0 < sum(keep[2:5]) < 3:  # the rows of the line `pair`
        assert passed is None
    else:
        assert passed is not None
        assert list(decode(passed)) == list(lines.take(keep))


def test_with_series_changes_names_and_tags_only() -> None:
    """The source rows do not change, and the old bytes are not passed on."""
    lines = decode(PAYLOAD)
    code = lines.table.code_of(Series("new", {"a": "b"}, b"new,a=b"))
    changed = lines.with_series(array("i", [code] * len(lines)))
    before = list(lines)
    assert list(changed) == [Message("new", {"a": "b"}, m.value, m.time, m.field) for m in lines]
    assert (changed.rejected, changed.passthrough()) == (lines.rejected, None)
    changed.append(code, 0, 1.0, SECOND)
    changed.numbers[0] = 9.0
    assert list(lines) == before


@given(messages)
def test_original_returns_line_of_row(records: list[Message]) -> None:
    """Exact in time and without line end, whatever else the received line has."""
    lines = to_lines(records)
    for index, record in enumerate(records):
        line = lines.original(index)
        assert b"\n" not in line
        assert list(decode(line, precision=_unit(record))) == [record]
    assert [decode(PAYLOAD).original(i) for i in (1, 3)] == [
        b'ccb,hostname=a log="x\\ny" 1740027952',
        b"pair y=2u 1740027953",
    ]


def _unit(message: Message) -> Precision:
    return "s" if message.time is None else coarsest(message.time)


def test_original_returns_repr_of_row_that_cannot_be_encoded() -> None:
    """InfluxDB allows names that ClusterCockpit does not."""
    lines = decode(b"m,t=a\tb v=1 5", dialect="influx")
    assert lines.original(0).startswith(b"Message(name='m', tags={'t': 'a\\tb'}")


def test_size_grows_with_payload_and_rows() -> None:
    """Queues are bounded by it."""
    lines = decode(PAYLOAD)
    assert lines.size == len(PAYLOAD) + sum(memoryview(column).nbytes for column in lines.columns)


@given(messages)
def test_missing_times_are_filled(records: list[Message]) -> None:
    """Existing times are kept."""
    lines = to_lines(records).fill_missing_times(7 * SECOND)
    assert [m.time for m in lines] == [7 * SECOND if m.time is None else m.time for m in records]
    assert NO_TIME not in lines.times


def test_append_adds_rows_by_code() -> None:
    """Sources build columns without messages; invalid values are rejected."""
    lines = Lines()
    series = lines.table.code_of(Series("m", {"a": "b"}, b"m,a=b"))
    field = lines.table.field_code_of("value")
    lines.append(series, field, Uint(2**64 - 1), 5)
    lines.append(series, field, "x", NO_TIME)
    assert list(lines) == [
        Message("m", {"a": "b"}, Uint(2**64 - 1), 5),
        Message("m", {"a": "b"}, "x", None),
    ]
    for value in (float("nan"), float("-inf"), 2**63, Uint(-1), Uint(2**64), "\udc00"):
        with pytest.raises(EncodeError, match="not a valid value|surrogate"):
            lines.append(series, field, value, 5)
    with pytest.raises(EncodeError, match="outside 64 bits"):
        lines.append(series, field, 1.0, 2**63)
    assert {len(column) for column in lines.columns} == {2}


@given(messages)
def test_type_column_identifies_numbers(records: list[Message]) -> None:
    """By the same rule as the values of messages."""
    lines = to_lines(records)
    assert [IS_NUMBER[kind] for kind in lines.types] == [is_number(m.value) for m in records]


def test_extend_fills_missing_columns_with_zero() -> None:
    """Added rows have no position in a payload."""
    lines = decode(b"m v=1 1")
    lines.extend({"series": lines.series * 2, "numbers": array("d", [2.0, 3.0])})
    assert [(m.name, m.value, m.time) for m in lines] == [
        ("m", 1.0, SECOND), ("m", 2.0, 0), ("m", 3.0, 0),
    ]  # fmt: skip


def test_rejected_line_prints_readably() -> None:
    """For any bytes, the excerpt is one printable line around the error."""
    (bad,) = decode(b"x" * 100 + b"\xff\x00\n").rejected
    assert bad.reason == "expected a space and a field after measurement and tags"
    assert str(bad).startswith("line 1, column 102: expected a space and a field")
    assert str(bad).isprintable()
    assert "x\\xff\\x00" in bad.excerpt
    assert len(bad.excerpt) < 80


TEXTS = b'm log="a\\nb" 1\nm log="" 1\nm log="\xc3\xa9\\q" 1\n'


def test_texts_behave_like_list_of_strings() -> None:
    """Index, slice, length, membership and IndexError."""
    texts = decode(TEXTS).texts
    assert list(texts) == ["a\nb", "", "é\\q"]
    assert (len(texts), texts[2], texts[1:], "é\\q" in texts) == (3, "é\\q", ["", "é\\q"], True)
    for index in (3, -1):
        with pytest.raises(IndexError):
            texts[index]


def test_texts_do_not_copy_payload() -> None:
    """Each is stored as two numbers, whatever its length."""
    texts = decode(b'm log="%b" 1\n' % (b"x" * 10**6)).texts
    assert (list(texts.spans), texts.own) == ([7, 10**6 + 7], [])


def test_texts_keep_strings_outside_payload() -> None:
    """From repaired lines and from added rows."""
    lines = decode(b'm event={"a": 1} 1\nm event="x" 1\n', lenient=True)
    assert (list(lines.texts), lines.texts.own) == (['{"a": 1}', "x"], ['{"a": 1}'])
    lines.append(0, 0, "by hand", 1)
    assert [m.value for m in lines] == ['{"a": 1}', "x", "by hand"]


def test_concat_keeps_texts() -> None:
    """In payloads, outside payloads, and with the escapes of two dialects."""
    parts = [
        decode(b'm log="cc\\n" 1\n'),
        decode(b'm log="influx\\n" 1\n', dialect="influx"),
        decode(b"m event=own 1\n", lenient=True),
        decode(b'm value=1,log="\\"last\\"" 1\n'),
    ]
    whole = Lines.concat(parts)
    assert list(whole) == [message for part in parts for message in part]
    assert list(whole.texts) == ["cc\n", "influx\\n", "own", '"last"']
    assert list(Lines.concat([whole, whole]).texts) == [*whole.texts, *whole.texts]


def test_truncate_removes_last_texts() -> None:
    """The text of a line that is rejected after all is removed."""
    texts = Texts(b"abc", CC.unescape)
    texts.append("x")
    texts.append("y")
    texts.truncate(1)
    assert list(texts) == ["x"]
    lines = decode(b'm a="x",b=1e999 1\nm a="y" 1\n')
    assert list(lines.texts) == ["y"]


@given(
    st.lists(st.sampled_from([b"a", b"\\n", b'\\"', b"\\\\", b"\n", b"\\", b"\\q", b"\\t"]))
    .map(b"".join)
    .filter(lambda text: not text.endswith(b"\\")),
    st.sampled_from(["cc", "influx"]),
)
def test_encoder_writes_texts_of_any_dialect_in_cc(text: bytes, dialect: Dialect) -> None:
    """The text is encoded, not its escapes; with the kernel and without."""
    lines = decode(b'm log="%b" 1\n' % text, dialect=dialect)
    assert lines.table.grammar is (CC if dialect == "cc" else INFLUX)
    encoded = encode(lines)
    assert [m.value for m in decode(encoded)] == list(lines.texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "KERNEL", None)
        assert encode(lines) == encoded


def _expected(message: Message) -> dict[str, Any]:
    value, number = message.value, not isinstance(message.value, str)
    plain = isinstance(value, int) and not isinstance(value, bool | Uint)
    return {
        "time": message.time,
        "name": message.name,
        "field": message.field,
        **{tag.replace("-", "_"): message.tags.get(tag) for tag in TAG_COLUMNS},
        "tags": [(k, v) for k, v in message.tags.items() if k not in TAG_COLUMNS],
        "value": float(value) if number else None,
        "int": value if plain else None,
        "uint": int(value) if isinstance(value, Uint) else None,
        "bool": value if isinstance(value, bool) else None,
        "text": None if number else value,
    }


@given(messages, st.sampled_from(TAG_COLUMNS), st.slices(8))
def test_arrow_table_equals_messages(records: list[Message], tag: str, rows: slice) -> None:
    """Every value exactly and with its type; missing texts and tags are null."""
    records = [
        Message(m.name, {tag: "x", **m.tags} if i % 2 else m.tags, m.value, m.time, m.field)
        for i, m in enumerate(records)
    ]
    records = [
        Message(m.name, dict(sorted(m.tags.items())), m.value, m.time, m.field) for m in records
    ]
    table = to_lines(records)[rows].to_arrow()
    assert table.schema == SCHEMA
    times = table["time"].cast(pa.int64()).to_pylist()
    table = table.set_column(0, "time", pa.array(times, pa.int64()))
    assert table.to_pylist() == [_expected(m) for m in records[rows]]
