"""JSON lines (jsonlines.org): one object for each message, for scripts and for ``jq``."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.rfc3339 import parse_rfc3339, rfc3339
from ccpipe.message import Message, Uint


def _plain(value: Any) -> float | str:
    """Convert a type that msgspec does not know, such as ``Uint`` or a NumPy number."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise EncodeError(f"{value!r:.80} cannot be a value in JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tags: dict[str, str]
    field: str
    value: float | int | bool | str
    time: str | None


def encode(records: Iterable[Message]) -> bytes:
    """Encode records as JSON lines, each ending in LF.

    Integers keep all their digits (readers that use doubles round those beyond 2⁵³); ``time`` is
    RFC 3339, or null where a record has none. Raises EncodeError for what JSON cannot carry: NaN,
    infinity, half a surrogate pair, and times beyond RFC 3339. It names the record.
    """
    return b"".join(map(_encode_message, records))


def _encode_message(message: Message) -> bytes:
    try:
        if isinstance(message.value, float) and not math.isfinite(message.value):
            raise EncodeError(f"{message.value} cannot be a value in JSON")
        time = None if message.time is None else rfc3339(message.time)
        line = _Line(message.name, dict(message.tags), message.field, message.value, time)
        return _ENCODER.encode(line) + b"\n"
    except (EncodeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{message.name[:80]!r} {dict(message.tags)!r:.200}: {error}") from None


_DECODER = msgspec.json.Decoder(_Line)


def decode(line: bytes) -> Message:
    """Decode one line that ``encode`` wrote.

    Only what JSON cannot express is lost: an unsigned integer that fits a signed one of 64 bits is
    read as such. Raises DataError if the line is anything else.
    """
    try:
        found = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(str(error)) from None
    value = found.value
    if type(value) is int and not -(2**63) <= value < 2**63:
        if not 0 <= value < 2**64:
            raise DataError(f"{value} does not fit into 64 bits")
        value = Uint(value)
    time = None if found.time is None else parse_rfc3339(found.time)
    return Message(found.name, dict(sorted(found.tags.items())), value, time, found.field)
