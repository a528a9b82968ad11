"""Accounting as Arrow tables, from records or whole blocks, for sums and searches.

>>> read_columns(b"# nothing but a comment\\n", ["job_number", "cpu"]).table.num_rows
0

The compiled kernel reads plain lines, as defined in ``scan.hpp``; unusual lines are left to Python.
The kernel has no field names: a ``KernelLayout`` lists the fields in order, with type and column.
"""

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ccpipe.errors import DataError, MissingExtra
from ccpipe.formats.gridengine.jsonl import KEYS
from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.reader import (
    FIELDS,
    RUSAGE,
    SIGNED,
    RejectedAccountingLine,
    parse,
    parse_last,
    read,
)
from ccpipe.formats.gridengine.record import Accounting, Amount, Variant, clean

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

WHOLE = ("job_number", "task_number", "slots", "arid", "priority", "failed", "exit_status")
TIMES = ("submission_time", "start_time", "end_time", "ar_submission_time", "reported")
TEXTS = (
    "owner", "group", "account", "qname", "hostname", "project", "department", "granted_pe",
    "job_name", "category", "pe_taskid", "submit_cmd_line", "deleted_by", "variant",
)  # fmt: skip
EUSAGE = ("wallclock", "cpu", "mem", "io", "ioops", "iow", "maxvmem", "maxrss", "maxpss")
JSON = ("usage_json", "extra_json")
PLACE = ("line", "offset")

SCHEMA = pa.schema(
    [(name, pa.int64()) for name in (*WHOLE, *TIMES)]
    + [(name, pa.string()) for name in (*TEXTS, *JSON)]
    + [(name, pa.float64()) for name in (*RUSAGE, *EUSAGE)]
    + [(name, pa.int64()) for name in PLACE]
)
"""All columns, with names, units and nulls like in ``Accounting``.

``wallclock`` is from ``eusage``; ``Accounting.wallclock``, which qacct sums, is ``ru_wallclock``.
Usage missing in a variant is null. ``usage_json`` and ``extra_json`` are JSON objects of values
without a column (custom usage, unknown keys), or null. Bytes that are not UTF-8 become U+FFFD, in
the JSON columns the escapes ``\\udc80`` to ``\\udcff``.
"""

COLUMNS = tuple(name for name in SCHEMA.names if name not in PLACE)
"""The default columns."""


def from_records(records: Sequence[Accounting], columns: Sequence[str] = COLUMNS) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    arrays = [
        pa.array([get(record) for record in records], SCHEMA.field(name).type)
        for name, get in ((name, _getter(name)) for name in columns)
    ]
    return pa.table(arrays, schema=schema)


def _getter(name: str) -> Callable[[Accounting], Any]:
    if name in _JSON:
        return _JSON[name]
    if name in PLACE or name == "variant":
        return lambda record: getattr(record.origin, name)
    if name in RUSAGE or name in EUSAGE:
        container = "rusage" if name in RUSAGE else "eusage"
        return lambda record: _number(record, container, name)
    if name in TEXTS:
        return lambda record: _text(getattr(record, name))
    return lambda record: getattr(record, name)


def _number(record: Accounting, container: str, name: str) -> float | None:
    value = record.usage.get(container, {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def _custom(usage: dict[str, dict[str, Amount]]) -> dict[str, dict[str, Amount]]:
    custom = {}
    for container, values in usage.items():
        known = _COLUMNS_OF.get(container, frozenset())
        if rest := {n: v for n, v in values.items() if n not in known or isinstance(v, str)}:
            custom[container] = rest
    return custom


_COLUMNS_OF = {"rusage": frozenset(RUSAGE), "eusage": frozenset(EUSAGE)}


def _json(tree: dict[str, Any]) -> str | None:
    return json.dumps(tree, separators=(",", ":")) if tree else None


_JSON: dict[str, Callable[[Accounting], str | None]] = {
    "usage_json": lambda record: _json(_custom(record.usage)),
    "extra_json": lambda record: _json(record.extra),
}


def _text(text: str | None) -> str | None:
    """Replace bytes that are not UTF-8, as Arrow's strings require, by U+FFFD."""
    return None if text is None else clean(text)


@dataclass(slots=True)
class ParsedTable:
    """The records of a part of a file."""

    table: pa.Table
    rejected: list[RejectedAccountingLine] = field(default_factory=list)
    size: int = 0
    """Bytes of the part."""
    lines: int = 0
    """Lines of the part, comments and empty ones included."""


def read_columns(
    payload: bytes, columns: Sequence[str] = COLUMNS, *, offset: int = 0, line: int = 1
) -> ParsedTable:
    """Read the lines of a payload like ``read``, into a table of these columns.

    Lines are validated as a whole, whatever the columns. `offset` and `line` are the payload's
    position in its file; the columns of these names (``PLACE``) are read on request.

    Raises KeyError for an unknown column.
    """
    for name in columns:
        SCHEMA.field(name)
    if KERNEL is None or len(payload) > MAX_PAYLOAD:
        return read_in_python(payload, columns, line, offset)
    return read_compiled(payload, columns, line, offset)


def read_in_python(payload: bytes, columns: Sequence[str], line: int, offset: int) -> ParsedTable:
    """Read line by line; the reference implementation for the compiled kernel."""
    reading = read(payload, offset=offset, line=line)
    table = from_records(reading.records, columns)
    return ParsedTable(table, reading.rejected, reading.size, reading.lines)


def read_compiled(payload: bytes, columns: Sequence[str], line: int, offset: int) -> ParsedTable:
    """Read plain lines with the kernel and unusual ones in Python, in the order of the file."""
    plain = plain_lines(payload, columns, line, offset)
    result = ParsedTable(plain.table, [], len(payload), plain.lines)
    records, rows = [], []
    for unusual in plain.unusual:
        text = payload[unusual.start : unusual.end]
        start, number = offset + unusual.start, line + unusual.line
        reads = parse if unusual.end < len(payload) else parse_last
        try:
            record = reads(text, "", start, number)
        except DataError as error:
            result.rejected.append(RejectedAccountingLine(number, start, str(error), text))
        else:
            if record is not None:
                records.append(record)
                rows.append(unusual.row)
    if records:
        tables = pa.concat_tables([plain.table, from_records(records, columns)])
        result.table = tables.take(_order(plain.table.num_rows, rows))
    return result


def _order(count: int, rows: Sequence[int]) -> list[int]:
    """Return the order of `count` rows and the rows after them, each inserted at its row."""
    order: list[int] = []
    for number, (after, before) in enumerate(itertools.pairwise([0, *rows])):
        order += (*range(after, before), count + number)
    return [*order, *range(rows[-1], count)]


MAX_PAYLOAD = 2**31 - 1
"""Bytes of a payload; the offsets of Arrow's strings are 32-bit integers."""


class UnusualLine(NamedTuple):
    """A line that is not plain, for the reader in Python."""

    row: int
    """Plain rows before it."""
    line: int
    """Lines before it in the payload."""
    start: int
    end: int


class PlainLines(NamedTuple):
    """The plain lines of a payload."""

    table: pa.Table
    unusual: list[UnusualLine]
    lines: int
    """All lines, including unusual ones."""


class KernelLayout(NamedTuple):
    """The fields and columns, in the kernel's types."""

    columns: list[tuple[str, bool]]
    """The type of each, and whether a missing value is null."""
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
"""Texts with special values such as ``NONE``."""
_NULL = {*_KINDS, "submit_cmd_line", *JSON, *TIMES, *RUSAGE, *EUSAGE} - {"category"}
"""Columns that are null if the field is missing; others are 0 or empty."""
_TYPES = {pa.int64(): "integers", pa.float64(): "doubles", pa.string(): "texts"}
_VARIANTS = (Variant.CLASSIC_45, Variant.CLASSIC_43, Variant.JSONL)


def plain_lines(payload: bytes, columns: Sequence[str], line: int, offset: int) -> PlainLines:
    assert KERNEL is not None
    names = tuple(dict.fromkeys(columns))
    rows, lines, memory, unusual = KERNEL.scan(payload, _layout(names), line, offset)
    schema = pa.schema([SCHEMA.field(name) for name in names])
    arrays = []
    for kind, (nulls, parts) in zip(schema.types, memory, strict=True):
        buffers = [None if part is None else pa.py_buffer(part) for part in parts]
        arrays.append(pa.Array.from_buffers(kind, rows, buffers, nulls))
    table = pa.table(arrays, schema=schema).select(columns)
    return PlainLines(table, [UnusualLine(*each) for each in unusual], lines)


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
    """Return the type of a field, with times in this unit."""
    if name in _KINDS:
        return _KINDS[name]
    if name in TEXTS:
        return "text"
    if name in TIMES:
        return unit
    if name in WHOLE:
        return "signed" if name in SIGNED else "whole"
    return "amount"
