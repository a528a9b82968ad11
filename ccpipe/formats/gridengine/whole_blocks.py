"""The kernel's twin in Python: blocks of usual lines, read by Arrow's CSV reader or by msgspec.

``whole_classic`` and ``whole_jsonl`` return None, or raise one of ``UNUSUAL``, where they are not
sure that reading line by line would give the very same: some lines are then left as odd.
"""

import bisect
import contextlib
import functools
import gc
import itertools
import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple
from pyarrow import csv

from ccpipe.formats.gridengine.category import EMPTY
from ccpipe.formats.gridengine.classic import FIELDS, LIMIT, PE_TASK, RUSAGE, SIGNED
from ccpipe.formats.gridengine.classic import TEXTS as CLASSIC_TEXTS
from ccpipe.formats.gridengine.jsonl import Line
from ccpipe.formats.gridengine.plain_lines import Odd, Plain
from ccpipe.formats.gridengine.reader import split_lines
from ccpipe.formats.gridengine.record import Variant
from ccpipe.formats.gridengine.table import EUSAGE, PLACE, SCHEMA, TIMES, WHOLE, from_records

UNUSUAL = (pa.ArrowInvalid, msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)

_FIELDS = FIELDS[Variant.CLASSIC_45]
COLONS = len(_FIELDS) - 1
"""In a usual line of the classic format."""
_CHECKED = ("qname", "job_number", "iow", "pe_taskid", "maxvmem", "arid", "ar_submission_time")
"""Fields that tell whether a line of so many fields is of this variant."""
_NONE = ["NONE", "none"]
_NOTHING = {
    "project": pa.array(_NONE),
    "granted_pe": pa.array(_NONE),
    "pe_taskid": pa.array([*_NONE, ""]),
    "deleted_by": pa.array([""]),
}
"""What stands for no text at all, and becomes null."""
_EMPTY = pa.array(sorted(EMPTY))
_NO_CATEGORY = pa.scalar("")
_NO_TEXT, _NO_TIME = pa.scalar(None, pa.string()), pa.scalar(None, pa.int64())
_ZERO, _MICROSECOND, _SECOND = pa.scalar(0), pa.scalar(1000), pa.scalar(10**9)
_CLASSIC, _JSONL = pa.scalar(str(Variant.CLASSIC_45)), pa.scalar(str(Variant.JSONL))
_LAST = 2**63 // 10**9
"""Seconds that nanoseconds can say; a larger number is a time in another unit."""


def plain_in_python(payload: bytes, columns: Sequence[str], line: int, offset: int) -> Plain:
    """Read a payload as ``plain_lines`` does; more lines than there are odd here."""
    plain = [name for name in columns if name not in PLACE]
    is_json = payload.startswith(b"{")
    if not is_json and len(plain) == len(columns):  # nobody needs to know where lines begin
        table = _at_once(payload, plain)
        if table is not None:
            return Plain(table, [], table.num_rows)
    lines = split_lines(payload)
    starts = list(itertools.accumulate((len(text) + 1 for text in lines), initial=0))
    usual: Sequence[int] = range(len(lines))
    table = _at_once(lines, plain) if is_json and payload.endswith(b"\n") else None
    if table is None:
        ended = lines if payload.endswith(b"\n") else lines[:-1]
        usual = [i for i, text in enumerate(ended) if text.count(b":") == COLONS]
        table = _at_once(b"\n".join([*(lines[i] for i in usual), b""]), plain)
        if table is None or table.num_rows != len(usual):
            table, usual = from_records([], plain), []
    places = {"line": [line + i for i in usual], "offset": [offset + starts[i] for i in usual]}
    for name in set(PLACE).intersection(columns):
        table = table.append_column(SCHEMA.field(name), pa.array(places[name], pa.int64()))
    odd = [
        Odd(bisect.bisect(usual, i), i, starts[i], starts[i] + len(lines[i]))
        for i in sorted(set(range(len(lines))).difference(usual))
    ]
    return Plain(table.select(columns), odd, len(lines))


def _at_once(block: bytes | list[bytes], columns: Sequence[str]) -> pa.Table | None:
    """Read a block in which every line is a usual one; None where one is not."""
    try:
        if isinstance(block, list):
            return whole_jsonl(block, columns)
        return whole_classic(block, columns) if block.endswith(b"\n") else None
    except UNUSUAL:
        return None


_READ = csv.ReadOptions(column_names=_FIELDS, use_threads=False, block_size=2**20)
_PARSE = csv.ParseOptions(delimiter=":", quote_char=False, ignore_empty_lines=False)


@functools.lru_cache(maxsize=32)
def _conversion(columns: tuple[str, ...]) -> csv.ConvertOptions:
    """Return what to read for some columns, and as what; made once, as it takes its time."""
    needed = [name for name in _FIELDS if name in columns or name in _CHECKED]
    return csv.ConvertOptions(
        include_columns=needed,
        column_types={
            name: pa.string() if name in CLASSIC_TEXTS else pa.float64() for name in needed
        },
        null_values=[],
        strings_can_be_null=False,
    )


def whole_classic(payload: bytes, columns: Sequence[str]) -> pa.Table | None:
    """Read lines of 45 fields, a row for each line: one that is empty is not usual.

    Fields that `columns` do not need are not checked, but for those that tell the variant.
    """
    if b"\r" in payload:  # an end of line for Arrow, not for us
        return None
    table = csv.read_csv(pa.py_buffer(payload), _READ, _PARSE, _conversion(tuple(columns)))
    if not _is_of_this_variant(table):
        return None
    arrays = [_classic_column(table, name) for name in columns]
    return _table(arrays, columns)


def _table(arrays: Sequence[Any], columns: Sequence[str]) -> pa.Table | None:
    if any(array is None for array in arrays):
        return None
    return pa.table(arrays, schema=pa.schema([SCHEMA.field(name) for name in columns]))


def _is_of_this_variant(table: pa.Table) -> bool:
    """Check what Arrow does not: the other formats' first characters, and ``pe_taskid``."""
    queues = pc.unique(table["qname"]).to_pylist()
    tasks = pc.unique(table["pe_taskid"]).to_pylist()
    return not any(queue.startswith(("#", "{")) for queue in queues) and all(
        PE_TASK.fullmatch(task) for task in tasks
    )


def _classic_column(table: pa.Table, name: str) -> Any:
    """Return one column in the schema's type and unit; None where a value is not usual."""
    if name == "variant":
        return pa.repeat(_CLASSIC, table.num_rows)
    if name not in _FIELDS:
        return pa.nulls(table.num_rows, SCHEMA.field(name).type)
    column = table[name]
    if name in CLASSIC_TEXTS:
        return _text(column, name)
    if name in WHOLE or name in TIMES:
        return _whole(column, name)
    return column if math.isfinite(pc.sum(column).as_py()) else None


def _text(column: Any, name: str) -> Any:
    if name in _NOTHING:
        return pc.if_else(pc.is_in(column, _NOTHING[name]), _NO_TEXT, column)
    if name == "category":
        return pc.if_else(pc.is_in(column, _EMPTY), _NO_CATEGORY, column)
    return column


def _whole(column: pa.ChunkedArray, name: str) -> Any:
    """Return doubles as integers, times in seconds as nanoseconds; None where one is too large."""
    minimum, maximum = (bound or 0 for bound in pc.min_max(column).as_py().values())
    is_time = name in TIMES
    if minimum < (-LIMIT if name in SIGNED else 0) or maximum >= (_LAST if is_time else LIMIT):
        return None
    whole = column.cast(pa.int64())
    return (
        pc.if_else(pc.equal(whole, _ZERO), _NO_TIME, pc.multiply(whole, _SECOND))
        if is_time
        else whole
    )


_Amount = Annotated[int, msgspec.Meta(gt=-LIMIT, lt=LIMIT)] | float
_Rusage = msgspec.defstruct(
    "_Rusage",
    [(name, _Amount | None, None) for name in RUSAGE],
    forbid_unknown_fields=True,
    gc=False,
)
_Eusage = msgspec.defstruct(
    "_Eusage",
    [(name, _Amount | None, None) for name in EUSAGE],
    forbid_unknown_fields=True,
    gc=False,
)
_Usage = msgspec.defstruct(
    "_Usage",
    [("rusage", _Rusage), ("eusage", _Eusage)],
    forbid_unknown_fields=True,
    gc=False,
)


class _Line(Line, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A line whose usage holds the two containers that all lines have, and nothing else."""

    usage: _Usage  # type: ignore[valid-type]


_LINE = msgspec.json.Decoder(_Line)
_KEYS = [field.name for field in msgspec.structs.fields(_Line)]


def whole_jsonl(lines: Sequence[bytes], columns: Sequence[str]) -> pa.Table | None:
    """Read lines of OCS 9.0.6 and later without custom usage."""
    with _no_collection():
        return _read_jsonl(lines, columns)


def _read_jsonl(lines: Sequence[bytes], columns: Sequence[str]) -> pa.Table | None:
    rows = [_LINE.decode(line) for line in lines]
    found = dict(zip(_KEYS, zip(*map(astuple, rows), strict=True), strict=True))
    usage = found["usage"]
    if not _EUSAGE.isdisjoint(columns):
        values = zip(*(astuple(each.eusage) for each in usage), strict=True)
        found |= zip(EUSAGE, values, strict=True)
    if not _RUSAGE.isdisjoint(columns):
        values = zip(*(astuple(each.rusage) for each in usage), strict=True)
        found |= zip(RUSAGE, values, strict=True)
    return _table([_json_column(found, name, len(rows)) for name in columns], columns)


_EUSAGE = frozenset(EUSAGE)
_RUSAGE = frozenset(RUSAGE)


def _json_column(found: dict[str, Any], name: str, rows: int) -> Any:
    if name == "variant":
        return pa.repeat(_JSONL, rows)
    column = _array(found["time" if name == "reported" else name], SCHEMA.field(name).type)
    if name in TIMES:
        return pc.if_else(pc.equal(column, _ZERO), _NO_TIME, pc.multiply(column, _MICROSECOND))
    return _text(column, name)


_CODES = {pa.int64(): "q", pa.float64(): "d"}


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make a column; numbers without gaps take a way that is three times as fast."""
    try:
        numbers = array(_CODES[kind], values)
    except (KeyError, TypeError):  # texts; a number is missing
        return pa.array(values, kind)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(numbers)])


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from looking through rows that are all still needed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
