"""The plain lines of a payload as columns, and which lines are odd: what the kernel is told.

The kernel knows no names. A ``Layout`` says which fields come in which order, what each holds and
to which column it goes; ``scan.hpp`` says what a plain line is.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ccpipe.formats import kernel
from ccpipe.formats.gridengine.classic import FIELDS, RUSAGE, SIGNED
from ccpipe.formats.gridengine.jsonl import KEYS
from ccpipe.formats.gridengine.record import Variant
from ccpipe.formats.gridengine.table import EUSAGE, SCHEMA, TEXTS, TIMES, WHOLE

KERNEL = kernel.load("ccpipe.formats.gridengine._kernel")

MAX_PAYLOAD = 2**31 - 1
"""Bytes of a payload whose texts surely fit Arrow's strings."""


class Odd(NamedTuple):
    """A line that is not plain: the reader of single lines must look at it."""

    row: int
    """Plain rows before it."""
    line: int
    """Lines before it in the payload."""
    start: int
    end: int


class Plain(NamedTuple):
    """What the plain lines of a payload hold."""

    table: pa.Table
    odd: list[Odd]
    lines: int
    """All of them, with the odd ones."""


class Layout(NamedTuple):
    """What the kernel needs to know, in its own types."""

    columns: list[tuple[str, bool]]
    """Of each its type, and whether what is missing is null."""
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
"""What a field can hold, as ``scan.hpp`` numbers and explains it."""
_KINDS = {
    "project": "named", "granted_pe": "named", "pe_taskid": "given", "deleted_by": "filled",
    "category": "category", "type": "acct",
}  # fmt: skip
"""Of texts that are not taken as they are."""
_NULL = {*_KINDS, "submit_cmd_line", *TIMES, *RUSAGE, *EUSAGE} - {"category"}
"""Columns that are null where their field is missing; others are 0 or empty."""
_TYPES = {pa.int64(): "integers", pa.float64(): "doubles", pa.string(): "texts"}
_VARIANTS = (Variant.CLASSIC_45, Variant.CLASSIC_43, Variant.JSONL)


def plain_lines(payload: bytes, columns: Sequence[str], line: int, offset: int) -> Plain:
    """Read a payload with the kernel."""
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
def _layout(columns: tuple[str, ...]) -> Layout:
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
    return Layout(
        columns=[(_TYPES[SCHEMA.field(name).type], name in _NULL) for name in columns],
        classic=list(classic.values()),
        objects=[[key(name, value) for name, value in each.items()] for each in objects],
        variants=[variant.encode() for variant in _VARIANTS],
        variant=places.get("variant", -1),
        line=places.get("line", -1),
        offset=places.get("offset", -1),
    )


def _kind(name: str, unit: str) -> str:
    """Return what a field holds; times are in this unit."""
    if name in _KINDS:
        return _KINDS[name]
    if name in TEXTS:
        return "text"
    if name in TIMES:
        return unit
    if name in WHOLE:
        return "signed" if name in SIGNED else "whole"
    return "amount"
