"""Encoder of one message, in pure Python: reference implementation of the compiled kernel."""

from typing import Literal

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.precision import (
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS,
    Precision,
    coarsest,
)
from ccpipe.formats.lineprotocol.series import escape, write_series
from ccpipe.formats.lineprotocol.values import ValueType, cells
from ccpipe.message import Message, Value


def write_message(message: Message, precision: Precision | Literal["auto"]) -> bytes:
    """Write a message as a line with LF; raises EncodeError naming the message."""
    try:
        key = write_series(message.name, message.tags)
        time = b"" if message.time is None else write_time(message.time, precision)
        return b"%b %b=%b%b\n" % (key, escape(message.field), write_value(message.value), time)
    except EncodeError as error:
        raise EncodeError(f"{message.name[:80]!r} {dict(message.tags)!r:.200}: {error}") from None


def original(message: Message) -> bytes:
    """Return a message for a dead letter: a line without LF, or ``repr()`` if not encodable.

    Timestamps keep full precision.
    """
    try:
        return write_message(message, "auto")[:-1]
    except EncodeError:
        return repr(message).encode(errors="backslashreplace")


def write_time(time: int, precision: Precision | Literal["auto"]) -> bytes:
    """Write a space and a timestamp, truncated to its unit; raises EncodeError."""
    if not INT64_MIN < time <= INT64_MAX:
        raise EncodeError(f"time {time} is outside 64 bits")
    unit = coarsest(time) if precision == "auto" else precision
    return b" %d" % (time // NANOSECONDS[unit])


def write_value(value: Value) -> bytes:
    number, _, kind = cells(value)
    match kind:
        case ValueType.FLOAT:
            return float.__repr__(number).encode()  # subclasses such as NumPy's print differently
        case ValueType.BOOL:
            return b"true" if value else b"false"
        case ValueType.TEXT:
            return b'"%b"' % str(value).translate(_TEXT_ESCAPES).encode()
    return b"%d%c" % (int(value), b"u" if kind is ValueType.UINT else b"i")


_TEXT_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
