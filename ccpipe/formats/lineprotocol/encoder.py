"""Records to bytes: canonical, so that equal records give equal bytes.

Tags are sorted, strings quoted and escaped as ClusterCockpit unescapes them, every line holds one
field and ends in LF.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.grammar import INFLUX
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.formats.lineprotocol.precision import (
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS,
    NO_TIME,
    PLACES,
    Precision,
    check_precision,
    coarsest,
)
from ccpipe.formats.lineprotocol.series import escape, write_series
from ccpipe.message import Message, Uint, Value


def encode(records: Iterable[Message], *, precision: Precision | Literal["auto"] = "s") -> bytes:
    """Encode records as line protocol.

    Parameters
    ----------
    records
        Messages, or ``Lines``.
    precision
        The unit of the timestamps, which are cut off to it; ``auto`` takes for each line the
        coarsest unit that loses nothing, which ``decode(precision="auto")`` reads back.

    Raises
    ------
    EncodeError
        for what line protocol cannot carry: NaN, infinity, integers beyond 64 bits, control
        characters in names, tags ending in a backslash. It names the record.
    UsageError
        where `precision` is none of those above.

    """
    check_precision(precision)
    if isinstance(records, Lines):
        return _encode_lines(records, precision)
    if KERNEL is None:
        return b"".join(_encode_message(message, precision) for message in records)
    encoded: bytes = KERNEL.encode_messages(
        records, PLACES[precision], lambda message: _encode_message(message, precision)
    )
    return encoded


def encode_each(
    records: Iterable[Message], *, precision: Precision | Literal["auto"] = "s"
) -> Iterator[bytes]:
    """Encode records one by one, each with its LF: for whoever bounds a payload's size."""
    check_precision(precision)
    if isinstance(records, Lines):
        # No line holds a line end of its own: strings and names write none raw.
        return iter(_encode_lines(records, precision).splitlines(keepends=True))
    return (_encode_message(message, precision) for message in records)


def _encode_lines(lines: Lines, precision: Precision | Literal["auto"]) -> bytes:
    if lines.table.grammar is INFLUX:  # whose names may hold what we would not read again
        for code in set(lines.series):
            write_series(lines.table.series[code].name, lines.table.series[code].tags)
    names = {code: escape(lines.table.fields[code]) for code in set(lines.fields)}
    if KERNEL is None:
        return b"".join(_encode_rows(lines, names, precision))
    encoded: bytes = KERNEL.encode_lines(lines, names, PLACES[precision])
    return encoded


def _encode_rows(
    lines: Lines, names: dict[int, bytes], precision: Precision | Literal["auto"]
) -> Iterator[bytes]:
    keys = lines.table.series
    stamp, last = b"", NO_TIME
    for index, (series, field, time) in enumerate(
        zip(lines.series, lines.fields, lines.times, strict=True)
    ):
        if time != last:
            last, stamp = time, b"" if time == NO_TIME else _stamp(time, precision)
        value = _value(lines.value(index))
        yield b"%b %b=%b%b\n" % (keys[series].key, names[field], value, stamp)


def _encode_message(message: Message, precision: Precision | Literal["auto"]) -> bytes:
    try:
        key = write_series(message.name, message.tags)
        stamp = b"" if message.time is None else _stamp(message.time, precision)
        return b"%b %b=%b%b\n" % (key, escape(message.field), _value(message.value), stamp)
    except EncodeError as error:
        raise EncodeError(f"{message.name[:80]!r} {dict(message.tags)!r:.200}: {error}") from None


def _stamp(time: int, precision: Precision | Literal["auto"]) -> bytes:
    if not INT64_MIN < time <= INT64_MAX:
        raise EncodeError(f"time {time} is outside 64 bits")
    unit = coarsest(time) if precision == "auto" else precision
    return b" %d" % (time // NANOSECONDS[unit])


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return b"true" if value else b"false"
        case Uint() if 0 <= value < 2**64:
            return b"%du" % value
        case int() if not isinstance(value, Uint) and INT64_MIN <= value <= INT64_MAX:
            return b"%di" % value
        case float() if math.isfinite(value):
            return repr(value).encode()
        case str():
            return b'"%b"' % _text(value)
        case _:
            raise EncodeError(f"{value!r:.80} cannot be a value in line protocol")


def _text(text: str) -> bytes:
    try:
        return text.translate(_ESCAPES).encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{text!r:.80} holds half a character") from None
