"""JSON lines: one object for each message, with every digit and every nanosecond."""

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats import jsonlines
from ccpipe.formats.jsonlines import encode
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.message import Message, Uint

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
def test_what_is_written_can_be_read(messages: list[Message]) -> None:
    found = objects(encode(messages))
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


def test_numbers_and_mappings_of_others() -> None:
    class Float64(float):
        """NumPy's is such a class too."""

    message = Message("m", MappingProxyType({"a": "1"}), Float64(1.5), 0)
    assert objects(encode([message]))[0] == {
        "name": "m",
        "tags": {"a": "1"},
        "field": "value",
        "value": 1.5,
        "time": "1970-01-01T00:00:00Z",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "\ud800", 1j])
def test_values_that_json_cannot_carry(value: Any) -> None:
    with pytest.raises(EncodeError, match="'cpu_load' {'hostname': 'n1'}: "):
        encode([Message("cpu_load", {"hostname": "n1"}, value, 0)])


def test_a_time_that_json_cannot_carry() -> None:
    with pytest.raises(EncodeError, match="'cpu_load' {}: time .* is outside"):
        encode([Message("cpu_load", {}, 1.0, 10**40)])


def as_read(message: Message) -> Message:
    value = message.value
    if type(value) is Uint and value < 2**63:
        value = int(value)
    return Message(message.name, message.tags, value, message.time, message.field)


@given(messages.filter(lambda message: abs(message.time or 0) < 2**63))
def test_what_is_written_is_read_back(message: Message) -> None:
    line = encode([message])
    value = message.value
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        with pytest.raises(DataError, match="64 bits|out of range"):
            jsonlines.decode(line)
        return
    found = jsonlines.decode(line)
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
def test_what_is_no_message(line: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        jsonlines.decode(line)
