"""CSV: one row for each message, in columns that never change."""

import csv
import io
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats import csvlines
from ccpipe.formats.csvlines import COLUMNS, HEADER, TAG_COLUMNS, encode
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.message import Message, Uint, Value

texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(list(' \\=,"\r\n')))
keys = texts.filter(bool)
messages = st.builds(
    Message,
    texts,
    st.dictionaries(st.sampled_from(TAG_COLUMNS) | keys, texts, max_size=4),
    st.floats() | st.integers() | st.booleans() | texts,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    texts,
)


def rows(payload: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((HEADER + payload).decode(), newline="")))


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


@given(st.lists(messages, max_size=4))
def test_what_is_written_can_be_read(messages: list[Message]) -> None:
    found = rows(encode(messages))
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


def test_the_spelling() -> None:
    payload = encode(
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


def test_data_frames_read_it(tmp_path: Path) -> None:
    payload = encode([Message("m", {"hostname": "n1"}, n / 2, n * 10**9 + n) for n in range(3)])
    path = tmp_path / "rows.csv"
    path.write_bytes(HEADER + payload)
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
def test_what_csv_cannot_carry(message: Message, reason: str) -> None:
    with pytest.raises(EncodeError, match=f"^'.*' {{.*}}: .*{reason}"):
        encode([Message("good", {}, 1.0, 0), message])


in_64_bits = messages.filter(
    lambda m: (
        abs(m.time or 0) < 2**63 and (not isinstance(m.value, int) or -(2**63) <= m.value < 2**64)
    )
)


@given(in_64_bits)
def test_what_is_written_is_read_back(message: Message) -> None:
    found = csvlines.decode(encode([message]))
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
def test_the_type_of_a_value(text: str, value: Value) -> None:
    row = "2025-02-20T05:05:51Z,m,{},,,,,,,,{}"
    found = csvlines.decode(row.format("value", text).encode()).value
    assert (found, type(found)) == (value, type(value))
    assert csvlines.decode(row.format("event", text).encode()).value == text


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
def test_what_is_no_row(row: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        csvlines.decode(row)
