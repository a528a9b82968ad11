"""The plain lines of a payload as columns, read by the compiled kernel.

The kernel knows no names: a ``KernelLayout`` lists the fields in their order, the type of each and
its column. ``scan.hpp`` defines what a plain line is; all others are *odd* and left to Python.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ccpipe.errors import MissingExtra
from ccpipe.formats.gridengine.classic import FIELDS, RUSAGE, SIGNED
from ccpipe.formats.gridengine.jsonl import KEYS
from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.record import Variant
from ccpipe.formats.gridengine.table import EUSAGE, JSON, SCHEMA, TEXTS, TIMES, WHOLE

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None


MAX_PAYLOAD = 2**31 - 1
"""Bytes of a payload; the offsets of Arrow's strings are 32-bit integers."""


class Odd(NamedTuple):
    """A line that is not plain and is left to the reader in Python."""

    row: int
    """Plain rows before it."""
    line: int
    """Lines before it in the payload."""
    start: int
    end: int


class Plain(NamedTuple):
    """The plain lines of a payload."""

    table: pa.Table
    odd: list[Odd]
    lines: int
    """All lines, the odd ones included."""


class KernelLayout(NamedTuple):
    """The fields and columns, in the kernel's types."""

    columns: list[tuple[str, bool]]
    """Of each its type, and whether a missing value is null."""
    classic: list[dict[str, int]]
    objects: list[list[dict[str, Any]]]
    variants: list[bytes]
    variant: int
    line: int
    offset: int


KINDS = (
    "text", "category", "named", "filled", "given", "task", "acct",
    "whole", "signed", "seconds", "microseconds", "amount", "object",
)  # fmt: skip
"""Types of fields, in the order of the enumeration ``Kind`` in ``scan.hpp``."""
_KINDS = {
    "project": "named", "granted_pe": "named", "pe_taskid": "given", "deleted_by": "filled",
    "category": "category", "type": "acct",
}  # fmt: skip
"""Texts with values that have a meaning of their own, such as ``NONE``."""
_NULL = {*_KINDS, "submit_cmd_line", *JSON, *TIMES, *RUSAGE, *EUSAGE} - {"category"}
"""Columns that are null where the field is missing; others are 0 or empty."""
_TYPES = {pa.int64(): "integers", pa.float64(): "doubles", pa.string(): "texts"}
_VARIANTS = (Variant.CLASSIC_45, Variant.CLASSIC_43, Variant.JSONL)


def plain_lines(payload: bytes, columns: Sequence[str], line: int, offset: int) -> Plain:
    assert KERNEL is not None
    names = tuple(dict.fromkeys(columns))
    rows, lines, memory, odd = KERNEL.scan(payload, _layout(names), line, offset)
    schema = pa.schema([SCHEMA.field(name) for name in names])
    arrays = []
    for kind, (nulls, parts) in zip(schema.types, memory, strict=True):
        buffers = [None if part is None else pa.py_buffer(part) for part in parts]
        arrays.append(pa.Array.from_buffers(kind, rows, buffers, nulls))
    table = pa.table(arrays, schema=schema).select(columns)
    return Plain(table, [Odd(*each) for each in odd], lines)


@functools.lru_cache(maxsize=32)
def _layout(columns: tuple[str, ...]) -> KernelLayout:
    places = {name: number for number, name in enumerate(columns)}

    def field(kind: str, name: str) -> dict[str, int]:
        return {"kind": KINDS.index(kind), "column": places.get(name, -1)}

    def key(name: str, value: dict[str, int]) -> dict[str, Any]:
        required = KEYS.get(name, False)
        return {"text": f'"{name}":'.encode(), "field": value, "is_required": required}

    def inner(number: int) -> dict[str, int]:
        return {"kind": KINDS.index("object"), "column": number}

    line = {name: field(_kind(name, "microseconds"), name) for name in KEYS}
    line["time"] = field("microseconds", "reported")
    objects = [
        {**line, "usage": inner(1)},
        {"rusage": inner(2), "eusage": inner(3)},
        {name: field("amount", name) for name in RUSAGE},
        {name: field("amount", name) for name in EUSAGE},
    ]
    classic = {name: field(_kind(name, "seconds"), name) for name in FIELDS[Variant.CLASSIC_45]}
    classic["pe_taskid"] = field("task", "pe_taskid")
    return KernelLayout(
        columns=[(_TYPES[SCHEMA.field(name).type], name in _NULL) for name in columns],
        classic=list(classic.values()),
        objects=[[key(name, value) for name, value in each.items()] for each in objects],
        variants=[variant.encode() for variant in _VARIANTS],
        variant=places.get("variant", -1),
        line=places.get("line", -1),
        offset=places.get("offset", -1),
    )


def _kind(name: str, unit: str) -> str:
    """Return the type of a field; times are in this unit."""
    if name in _KINDS:
        return _KINDS[name]
    if name in TEXTS:
        return "text"
    if name in TIMES:
        return unit
    if name in WHOLE:
        return "signed" if name in SIGNED else "whole"
    return "amount"
