"""Protocol Buffers' wire format, as far as remote write and OpenTelemetry need it.

Source: *Protocol Buffers documentation*, *Encoding*. A message is a sequence of fields; each is a
key, which is the number of the field times 8 plus the type of its value, and the value.
"""

from collections.abc import Iterator

from ccpipe.errors import DataError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}
_MAX_SHIFT = 63
_MORE = 0x80
"""The bit of a byte of an integer that another byte follows."""
_SHORT = [bytes([value]) for value in range(_MORE)]


def varint(value: int) -> bytes:
    """Encode an integer of up to 64 bits; a negative one as its two's complement."""
    if 0 <= value < _MORE:  # most lengths
        return _SHORT[value]
    value %= 2**64
    out = bytearray()
    while value >> 7:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(number: int, body: bytes) -> bytes:
    """Encode a field of up to 15 that is a message, a text or bytes."""
    return bytes([number << 3 | LENGTH]) + varint(len(body)) + body


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the message ``data[start:end]``: key, start and end of its value.

    Raises DataError if the bytes are not a message.
    """
    at = start
    while at < end:
        key = data[at]
        at += 1
        if key & _MORE:
            key, at = read_varint(data, at - 1, end)
        kind = key & 7
        if not key >> 3 or key >> 32:
            raise DataError(f"not a protobuf message: field {key >> 3} at byte {at - 1}")
        if kind == LENGTH:
            size = data[at] if at < end else _MORE
            at += 1
            if size & _MORE:
                size, at = read_varint(data, at - 1, end)
        elif kind == VARINT:
            size = read_varint(data, at, end)[1] - at
        elif (size := _SIZES.get(kind, 0)) == 0:
            raise DataError(f"not a protobuf message: type {kind} at byte {at - 1}")
        begin, at = at, at + size
        if at > end:
            raise DataError(f"not a protobuf message: the field at byte {begin - 1} is cut off")
        yield key, begin, at


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the unsigned integer at a position, and where it ends; raises DataError."""
    value = shift = 0
    while at < end and shift <= _MAX_SHIFT:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & _MORE:
            return value % 2**64, at
        shift += 7
    raise DataError(f"not a protobuf message: no integer at byte {at}")
