"""JSON lines and CSV: one object or row per message, encoded, decoded and read from files.

Every digit and nanosecond is kept; every good row of a file is read, whatever surrounds it.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats import rows
from ccpipe.formats.lineprotocol import Lines, RejectedLine, decode
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.formats.rows import (
    COLUMNS,
    CSV_HEADER,
    TAG_COLUMNS,
    decode_csv,
    decode_json,
    encode_csv,
    encode_json,
    read_csv,
    read_json,
)
from ccpipe.message import Message, Uint, Value

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(),
    st.integers(0, 2**64 - 1).map(Uint),
    st.booleans(),
    texts,
)
messages = st.builds(
    Message,
    texts,
    st.dictionaries(texts, texts, max_size=3),
    values,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    texts,
)


def objects(payload: bytes) -> list[dict[str, Any]]:
    assert payload == b"" or payload.endswith(b"\n")
    return [json.loads(line) for line in payload.split(b"\n")[:-1]]


@given(st.lists(messages, max_size=4))
def test_json_has_all_values_of_messages(messages: list[Message]) -> None:
    found = objects(encode_json(messages))
    assert found == [
        {
            "name": m.name,
            "tags": dict(m.tags),
            "field": m.field,
            "value": m.value,
            "time": None if m.time is None else rfc3339(m.time),
        }
        for m in messages
    ]
    for line, message in zip(found, messages, strict=True):
        assert list(line) == ["name", "tags", "field", "value", "time"]
        # 1 is not 1.0 and not true, though Python calls them equal.
        plain = int if type(message.value) is Uint else type(message.value)
        assert type(line["value"]) is plain


def test_json_encodes_foreign_numbers_and_mappings() -> None:
    class Float64(float):
        """A subclass of float, like NumPy's."""

    message = Message("m", MappingProxyType({"a": "1"}), Float64(1.5), 0)
    assert objects(encode_json([message]))[0] == {
        "name": "m",
        "tags": {"a": "1"},
        "field": "value",
        "value": 1.5,
        "time": "1970-01-01T00:00:00Z",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "\ud800", 1j])
def test_json_encoder_rejects_unrepresentable_value(value: Any) -> None:
    with pytest.raises(EncodeError, match="'cpu_load' {'hostname': 'n1'}: "):
        encode_json([Message("cpu_load", {"hostname": "n1"}, value, 0)])


def test_json_encoder_rejects_unrepresentable_time() -> None:
    with pytest.raises(EncodeError, match="'cpu_load' {}: time .* is outside"):
        encode_json([Message("cpu_load", {}, 1.0, 10**40)])


def as_read(message: Message) -> Message:
    value = message.value
    if type(value) is Uint and value < 2**63:
        value = int(value)
    return Message(message.name, message.tags, value, message.time, message.field)


@given(messages.filter(lambda message: abs(message.time or 0) < 2**63))
def test_json_decoder_reads_encoded_message(message: Message) -> None:
    line = encode_json([message])
    value = message.value
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        with pytest.raises(DataError, match="64 bits|out of range"):
            decode_json(line)
        return
    found = decode_json(line)
    assert found == as_read(message)
    assert type(found.value) is type(as_read(message).value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "truncated"),
        (b'{"name":"m","tags":{},"field":"value","value":1}', "time"),
        (b'{"name":"m","tags":{},"field":"value","value":null,"time":null}', "value"),
        (b'{"name":"m","tags":{},"field":"value","value":1,"time":"now"}', "RFC 3339"),
        (b'{"name":"m","tags":{},"field":"value","value":1,"time":null,"x":1}', "x"),
        (b'{"name":"m","tags":' + b"[" * 100_000, "array|recursion"),
    ],
)
def test_json_decoder_rejects_invalid_line(line: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        decode_json(line)


odd_texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(list(' \\=,"\r\n')))
keys = odd_texts.filter(bool)
odd_messages = st.builds(
    Message,
    odd_texts,
    st.dictionaries(st.sampled_from(TAG_COLUMNS) | keys, odd_texts, max_size=4),
    st.floats() | st.integers() | st.booleans() | odd_texts,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    odd_texts,
)


def rows_of(payload: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((CSV_HEADER + payload).decode(), newline="")))


def tags_of(text: str) -> dict[str, str]:
    pairs, parts, letters = {}, [""], iter(text)
    for letter in letters:
        if letter == "\\":
            parts[-1] += next(letters)
        elif letter == "=":
            parts.append("")
        elif letter == " ":
            pairs[parts[0]] = parts[1]
            parts = [""]
        else:
            parts[-1] += letter
    return pairs | ({parts[0]: parts[1]} if text else {})


def spelling(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.lists(odd_messages, max_size=4))
def test_csv_has_all_values_of_messages(messages: list[Message]) -> None:
    found = rows_of(encode_csv(messages))
    assert len(found) == len(messages)
    for row, message in zip(found, messages, strict=True):
        assert tuple(row) == COLUMNS
        assert row["time"] == ("" if message.time is None else rfc3339(message.time))
        assert (row["name"], row["field"]) == (message.name, message.field)
        assert row["value"] == spelling(message.value)
        assert {tag: row[tag] for tag in TAG_COLUMNS} == {
            tag: message.tags.get(tag, "") for tag in TAG_COLUMNS
        }
        others = {k: v for k, v in message.tags.items() if k not in TAG_COLUMNS}
        assert tags_of(row["tags"]) == others


def test_csv_is_written_in_documented_form() -> None:
    payload = encode_csv(
        [
            *decode(b"m,hostname=n1,type=hwthread,type-id=3,unit=B,z=1 value=1 1740027951\n"),
            Message("m", {"a": "x y"}, Uint(2**64 - 1), None, "other"),
            Message("log", {}, 'say "hi",\nplease', 0, "log"),
            Message("m", {}, True, 0),
        ]
    )
    assert payload == (
        b"2025-02-20T05:05:51Z,m,value,,n1,hwthread,3,,,unit=B z=1,1.0\n"
        b",m,other,,,,,,,a=x\\ y,18446744073709551615\n"
        b'1970-01-01T00:00:00Z,log,log,,,,,,,,"say ""hi"",\nplease"\n'
        b"1970-01-01T00:00:00Z,m,value,,,,,,,,true\n"
    )


def test_csv_is_read_by_duckdb(tmp_path: Path) -> None:
    payload = encode_csv([Message("m", {"hostname": "n1"}, n / 2, n * 10**9 + n) for n in range(3)])
    path = tmp_path / "rows.csv"
    path.write_bytes(CSV_HEADER + payload)
    found = duckdb.read_csv(str(path))
    assert dict(zip(found.columns, map(str, found.types), strict=True))["value"] == "DOUBLE"
    assert found.aggregate("sum(value), max(epoch(time))").fetchall() == [(1.5, 2)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("\ud800", {}, 1.0, 0), "surrogates"),
        (Message("m", {"a": "\ud800"}, 1.0, 0), "surrogates"),
        (Message("m", {}, 1.0, 10**40), "time .* is outside"),
    ],
)
def test_csv_encoder_rejects_unrepresentable_values(message: Message, reason: str) -> None:
    with pytest.raises(EncodeError, match=f"^'.*' {{.*}}: .*{reason}"):
        encode_csv([Message("good", {}, 1.0, 0), message])


in_64_bits = odd_messages.filter(
    lambda m: (
        abs(m.time or 0) < 2**63 and (not isinstance(m.value, int) or -(2**63) <= m.value < 2**64)
    )
)


@given(in_64_bits)
def test_csv_decoder_reads_encoded_message(message: Message) -> None:
    found = decode_csv(encode_csv([message]))
    own = {tag for tag in TAG_COLUMNS if not message.tags.get(tag)}
    tags = {tag: text for tag, text in message.tags.items() if tag not in own}
    assert (found.name, found.field, found.tags, found.time) == (
        message.name, message.field, tags, message.time,
    )  # fmt: skip
    value = message.value
    if message.field in ("event", "log", "control"):
        assert found.value == spelling(value)
    elif isinstance(value, str):
        assert spelling(found.value) == value or not isinstance(found.value, str)
    else:
        assert repr(found.value) == repr(value)
        assert type(found.value) is (Uint if value >= 2**63 and type(value) is int else type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("1.0", 1.0), ("18446744073709551615", Uint(2**64 - 1)), ("true", True),
        ("1e3", 1000.0), ("-inf", float("-inf")), ("text", "text"), ("", ""), ("1_0", "1_0"),
        ("9" * 30, float("9" * 30)), ("True", "True"),
    ],
)  # fmt: skip
def test_csv_decoder_infers_type_of_value(text: str, value: Value) -> None:
    row = "2025-02-20T05:05:51Z,m,{},,,,,,,,{}"
    found = decode_csv(row.format("value", text).encode()).value
    assert (found, type(found)) == (value, type(value))
    assert decode_csv(row.format("event", text).encode()).value == text


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"a,b", "2 columns instead of 11"),
        (b'a,"b', "unexpected end"),
        (b"\xff", "utf-8"),
        (b"2025,m,value,,,,,,,,1", "RFC 3339"),
        (b"2025-02-30T00:00:00Z,m,value,,,,,,,,1", "RFC 3339"),
        (b"1600-01-01T00:00:00Z,m,value,,,,,,,,1", "between 1677 and 2262"),
        (b",m,value,,,,,,,no tag,1", "not a tag: 'no tag'"),
        (b",m,value,,,,,,,a=b\\,1", "not a tag"),
    ],
)
def test_csv_decoder_rejects_invalid_row(row: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        decode_csv(row)


Reader = Callable[..., Iterator[Lines]]

MESSAGES = [
    Message("m", {"hostname": "n1"}, 1.5, 1),
    Message("job", {"unit": "a b"}, 'say "hi",\nplease', 2, "event"),
    Message("m", {"type-id": "3"}, True, None),
]
FORMATS = pytest.mark.parametrize(
    ("read", "encode", "header"),
    [(read_json, encode_json, b""), (read_csv, encode_csv, CSV_HEADER)],
)


def read_all(
    read: Reader, payload: bytes, block: int = 2**18
) -> tuple[list[Message], list[RejectedLine]]:
    parts = list(read(io.BytesIO(payload), block=block))
    return (
        [message for part in parts for message in part],
        [bad for part in parts for bad in part.rejected],
    )


@FORMATS
@pytest.mark.parametrize("block", [1, 7, 2**18])
def test_reader_accepts_blocks_of_any_size(
    read: Reader, encode: Callable[..., bytes], header: bytes, block: int
) -> None:
    payload = header + encode(MESSAGES)
    for each in (payload, payload[:-1]):
        assert read_all(read, each, block) == (MESSAGES, [])


@FORMATS
def test_reader_rejects_only_damaged_row(
    read: Reader, encode: Callable[..., bytes], header: bytes
) -> None:
    before, after = header + encode(MESSAGES[:2]), encode(MESSAGES[2:])
    for torn in (encode(MESSAGES[:1])[:20], b"\xff\xfe", b"no row"):
        found, (bad,) = read_all(read, before + torn + b"\n" + after)
        assert found == MESSAGES
        assert (bad.line, bad.offset) == (1 + before.count(b"\n"), len(before))
        assert bad.original == torn
        assert bad.reason


@pytest.mark.parametrize("block", [16, 2**18])
def test_csv_reader_rejects_only_line_with_open_quote(block: int) -> None:
    """A row truncated inside quotes does not swallow the following rows."""
    torn = b'2025-02-20T05:05:51Z,job,event,,,,,,,,"cut off\n'
    for tail in (MESSAGES, MESSAGES[:1], MESSAGES[1:2] * 2):
        payload = CSV_HEADER + torn + encode_csv(tail)
        found, rejected = read_all(read_csv, payload, block)
        assert found == tail
        assert [bad.original for bad in rejected] == [torn[:-1]]


def test_csv_reader_rejects_row_of_several_lines_whole() -> None:
    fake = "2025-02-20T05:05:51Z,m,value,,,,,,,,1"
    row = encode_csv([Message("log", {}, f"one\n{fake}\ntwo", 5, "log")])
    payload = CSV_HEADER + row.replace(b"1970", b"70") + encode_csv(MESSAGES)
    found, (bad,) = read_all(read_csv, payload)
    assert found == MESSAGES
    assert bad.original.count(b"\n") == 2


def test_csv_reader_reads_output_of_spreadsheets() -> None:
    part = CSV_HEADER + encode_csv([MESSAGES[0], MESSAGES[2]])
    payload = b"\xef\xbb\xbf" + (part + part).replace(b"\n", b"\r\n")
    assert read_all(read_csv, payload) == ([MESSAGES[0], MESSAGES[2]] * 2, [])


def test_csv_reader_requires_header() -> None:
    with pytest.raises(DataError, match="expected the header time,name,"):
        read_all(read_csv, encode_csv(MESSAGES))
    assert read_all(read_csv, b"") == ([], [])
    assert read_all(read_csv, CSV_HEADER[:-1]) == ([], [])


@pytest.mark.parametrize("read", [read_json, read_csv])
def test_reader_rejects_too_long_line(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_LINE_SIZE", 1000)
    with pytest.raises(DataError, match="longer than 1000 bytes|expected the header"):
        read_all(read, b"a" * 10_000, block=100)
    if read is read_csv:
        with pytest.raises(DataError, match="longer than 1000 bytes"):
            read_all(read, CSV_HEADER + b"a" * 10_000, block=100)


def test_csv_reader_bounds_row_with_open_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the maximum line length, its first line is rejected and the rest is read."""
    monkeypatch.setattr(rows, "MAX_LINE_SIZE", 1000)
    good = encode_csv(MESSAGES[:1] * 100)
    found, rejected = read_all(read_csv, CSV_HEADER + b'"\n' + good, block=100)
    assert found == MESSAGES[:1] * 100
    assert [bad.original for bad in rejected] == [b'"']


@FORMATS
@given(
    st.binary(max_size=60) | st.text('",\n\\= a1', max_size=40).map(str.encode), st.integers(1, 50)
)
def test_reader_decodes_or_rejects_any_bytes(
    read: Reader, encode: Callable[..., bytes], header: bytes, junk: bytes, block: int
) -> None:
    payload = header + encode(MESSAGES[:1]) + junk
    found, rejected = read_all(read, payload, block)
    assert found[:1] == MESSAGES[:1]
    assert all(bad.original in payload and bad.reason for bad in rejected)
    assert (found, rejected) == read_all(read, payload)
    if junk.strip() and not any(line.strip() == CSV_HEADER.strip() for line in junk.split()):
        assert len(found) + len(rejected) > 1
