"""Encoding one message to a canonical line, in pure Python: reference for the compiled kernel."""

import math
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
from ccpipe.message import Message, Uint, Value


def write_message(message: Message, precision: Precision | Literal["auto"]) -> bytes:
    """Write a message as a line with its LF; raises EncodeError, which names the message."""
    try:
        key = write_series(message.name, message.tags)
        time = b"" if message.time is None else write_time(message.time, precision)
        return b"%b %b=%b%b\n" % (key, escape(message.field), write_value(message.value), time)
    except EncodeError as error:
        raise EncodeError(f"{message.name[:80]!r} {dict(message.tags)!r:.200}: {error}") from None


def original(message: Message) -> bytes:
    """Return a message for a dead letter: a line without LF, or its ``repr()``.

    The latter is for messages that cannot be encoded. Timestamps keep full precision.
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
    match value:
        case bool():
            return b"true" if value else b"false"
        case Uint() if 0 <= value < 2**64:
            return b"%du" % value
        case int() if not isinstance(value, Uint) and INT64_MIN <= value <= INT64_MAX:
            return b"%di" % value
        case float() if math.isfinite(value):
            return float.__repr__(value).encode()  # a subclass, such as NumPy's, prints differently
        case str():
            return b'"%b"' % _escape_text(value)
        case _:
            raise EncodeError(f"{value!r:.80} cannot be a value in line protocol")


_TEXT_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def _escape_text(text: str) -> bytes:
    try:
        return text.translate(_TEXT_ESCAPES).encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{text!r:.80} holds half a surrogate pair") from None
