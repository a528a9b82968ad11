"""The wire format: what is written is read, and any bytes give fields or a named error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.protobuf import fields, message, read_varint, varint


@given(st.integers(-(2**63), 2**64 - 1))
def test_varint_is_read_as_written(value: int) -> None:
    """Of up to 64 bits; a negative one as its two's complement."""
    written = varint(value)
    assert read_varint(written, 0, len(written)) == (value % 2**64, len(written))


@given(st.lists(st.tuples(st.integers(1, 15), st.binary(max_size=300))))
def test_fields_are_read_as_written(written: list[tuple[int, bytes]]) -> None:
    data = b"".join(message(number, body) for number, body in written)
    read = [(key >> 3, data[start:end]) for key, start, end in fields(data, 0, len(data))]
    assert read == written


@given(st.binary(max_size=50))
def test_fields_of_any_bytes_lie_in_them(data: bytes) -> None:
    """Or are refused; no field is read beyond the end."""
    last = 0
    try:
        for key, start, end in fields(data, 0, len(data)):
            assert key >= 8
            assert last < start <= end <= len(data)
            last = end
    except DataError as error:
        assert "not a protobuf message" in str(error)  # noqa: PT017 - some bytes are one
    else:
        assert last == len(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x05abc", "cut off"),
        (b"\x0b", "type 3"),
        (b"\x00\x01", "field 0"),
        (b"\x09\x01", "cut off"),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "no integer"),
        (b"\x08", "no integer"),
        (b"\x0a", "no integer"),
    ],
)
def test_invalid_bytes_are_named(data: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"not a protobuf message: .*{reason}"):
        list(fields(data, 0, len(data)))
