"""JSON lines (jsonlines.org): one object for each message, for scripts and for ``jq``.

>>> from ccpipe.message import metric
>>> encode([metric("cpu_load", 1.5, time=1740027951 * 10**9, tags={"hostname": "e1208"})])
b'{"name":"cpu_load","tags":{"hostname":"e1208"},"field":"value","value":1.5,\
"time":"2025-02-20T05:05:51Z"}\\n'
"""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from ccpipe.errors import EncodeError
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.message import Message


def _plain(value: Any) -> float | str:
    """Convert a type that msgspec does not know, such as ``Uint`` or a NumPy number."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise EncodeError(f"{value!r:.80} cannot be a value in JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


class _Line(msgspec.Struct):
    name: str
    tags: dict[str, str]
    field: str
    value: float | int | bool | str
    time: str | None


def encode(records: Iterable[Message]) -> bytes:
    """Encode records as JSON lines, each ending in LF.

    Integers keep all their digits (readers that use doubles round those beyond 2⁵³); ``time`` is
    RFC 3339, or null where a record has none.

    Raises
    ------
    EncodeError
        for what JSON cannot carry: NaN, infinity, half a surrogate pair, and times beyond RFC 3339.
        It names the record.

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
