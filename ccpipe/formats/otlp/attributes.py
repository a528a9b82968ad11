"""Attributes of OpenTelemetry as tags.

::

    KeyValue     { string key = 1; AnyValue value = 2; }
    AnyValue     { oneof { string string_value = 1; bool bool_value = 2; int64 int_value = 3;
                           double double_value = 4; ArrayValue array_value = 5;
                           KeyValueList kvlist_value = 6; bytes bytes_value = 7; } }
    ArrayValue   { repeated AnyValue values = 1; }
    KeyValueList { repeated KeyValue values = 1; }
"""

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ccpipe.errors import DataError
from ccpipe.formats.otlp import CLUSTER, HOST, OWN_SERVICE, SERVICE
from ccpipe.formats.protobuf import fields, read_varint

Span: TypeAlias = tuple[int, int]
"""Start and end of a message in the request."""

MAX_DEPTH = 16
"""Maximum depth of arrays and maps in an attribute."""
MAX_NESTED = 2**16
"""Maximum size of an array or map; an element can be two bytes."""

_STRING, _BOOL, _INT, _DOUBLE, _ARRAY, _MAP, _BYTES = 0x0A, 0x10, 0x18, 0x21, 0x2A, 0x32, 0x3A
_KEY, _VALUE = 0x0A, 0x12


def read_attributes(data: bytes, spans: Iterable[Span]) -> dict[str, str]:
    """Return the attributes in some ``KeyValue``, without empty ones; raises DataError.

    A value that is not a text is written as in JSON, and bytes in Base64.
    """
    pairs = (_pair(data, start, end, MAX_DEPTH) for start, end in spans)
    return {key: text for key, value in pairs if (text := as_text(value))}


def as_text(value: Any) -> str:
    """Return the text of a value from ``read_value``."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def resource_tags(attributes: Mapping[str, str], wanted: Iterable[str]) -> dict[str, str]:
    """Return the tags of a resource: host and cluster, and the `wanted` attributes.

    Our own service does not count, so that metrics return as they were sent.
    """
    names = {HOST: "hostname", CLUSTER: "cluster"}
    tags = {key: attributes[key] for key in wanted if key in attributes}
    if tags.get(SERVICE) == OWN_SERVICE:
        del tags[SERVICE]
    return tags | {tag: attributes[key] for key, tag in names.items() if key in attributes}


def read_value(data: bytes, start: int, end: int, depth: int = MAX_DEPTH) -> Any:
    """Return an ``AnyValue`` as Python's value; None if it has none. Raises DataError."""
    value: Any = None
    for key, begin, stop in fields(data, start, end):
        if key == _STRING:
            value = utf8(data, begin, stop)
        elif key == _BOOL:
            value = bool(read_varint(data, begin, stop)[0])
        elif key == _INT:
            number = read_varint(data, begin, stop)[0]
            value = number - 2**64 if number >> 63 else number
        elif key == _DOUBLE:
            value = struct.unpack_from("<d", data, begin)[0]
        elif key == _BYTES:
            value = base64.b64encode(data[begin:stop]).decode()
        elif key in (_ARRAY, _MAP):
            value = _read_nested(data, begin, stop, key, depth - 1)
    return value


def _read_nested(data: bytes, start: int, end: int, kind: int, depth: int) -> Any:
    if depth < 0:
        raise DataError(f"a value has more than {MAX_DEPTH} levels")
    if end - start > MAX_NESTED:
        raise DataError(f"an array or map has more than {MAX_NESTED} bytes")
    parts = [(begin, stop) for key, begin, stop in fields(data, start, end) if key == _KEY]
    if kind == _ARRAY:
        return [read_value(data, begin, stop, depth) for begin, stop in parts]
    return dict(_pair(data, begin, stop, depth) for begin, stop in parts)


def utf8(data: bytes, start: int, end: int) -> str:
    """Decode a text; raises DataError."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise DataError(f"the text at byte {start} is not UTF-8") from None


def _pair(data: bytes, start: int, end: int, depth: int) -> tuple[str, Any]:
    name, value = "", None
    for key, begin, stop in fields(data, start, end):
        if key == _KEY:
            name = utf8(data, begin, stop)
        elif key == _VALUE:
            value = read_value(data, begin, stop, depth)
    return name, value
