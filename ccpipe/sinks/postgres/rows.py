"""Rows of ``samples`` in PostgreSQL's binary COPY format."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.formats.lineprotocol.precision import INT64_MIN, NO_TIME

COLUMNS = ("time", "value", "series", "ns", "int", "uint", "bool", "text")
"""Columns of ``samples``, in row order."""

Array: TypeAlias = "np.ndarray[Any, Any]"
Rows: TypeAlias = "slice | Array"

DAY = 86_400 * 10**9

_YEAR_2000 = 946_684_800 * 10**6
"""PostgreSQL's epoch, in microseconds since the Unix epoch."""

_CELLS = {"time": ">i8", "series": ">i4", "ns": ">i2"}
_CELLS_OF: dict[ValueType, dict[str, Any]] = {
    ValueType.FLOAT: {"value": ">f8"},
    ValueType.INT: {"value": ">f8", "int": ">i8"},
    ValueType.UINT: {"value": ">f8", "uint": (">u2", 9)},  # numeric: 4 of its head, 5 digits
    ValueType.BOOL: {"value": ">f8", "bool": "u1"},
    ValueType.TEXT: {},
}


def days(lines: Lines) -> set[int]:
    """Return the days of some lines, counted from the epoch; lines without a time have none."""
    times = np.asarray(lines.times)
    found = times[times != NO_TIME] // DAY
    return set(found[np.diff(found, prepend=-(2**62)) != 0].tolist())  # the first of each run


def rows_by_field(lines: Lines) -> Iterator[tuple[int, Rows]]:
    if (only := lines.only_field) is not None:
        yield only, slice(None)
        return
    fields = np.asarray(lines.fields)
    for field in np.unique(fields).tolist():
        yield field, np.flatnonzero(fields == field)


def rows(lines: Lines, ids: Mapping[int, Array]) -> bytearray:
    """Encode lines as rows of ``COLUMNS``; `ids` has the id of each series, by field and code."""
    series = np.empty(len(lines), np.int32)
    for field, chosen in rows_by_field(lines):
        series[chosen] = ids[field][np.asarray(lines.series)[chosen]]
    types, parts = np.asarray(lines.types), [b"PGCOPY\n\xff\r\n\0", bytes(8)]
    for kind in sorted(lines.used_types):
        of_kind = slice(None) if len(lines.used_types) == 1 else np.flatnonzero(types == kind)
        parts += _of_type(kind, lines, of_kind, series[of_kind])
    return bytearray().join([*parts, b"\xff\xff"])


def _of_type(kind: ValueType, lines: Lines, chosen: Rows, series: Array) -> Iterator[bytes]:
    times, exact = np.asarray(lines.times)[chosen], np.asarray(lines.exact)[chosen]
    rows = np.repeat(_TEMPLATES[kind], len(series))
    micros = times // 1000
    has_no_time = times == NO_TIME
    rows["time"] = np.where(has_no_time, INT64_MIN, micros - _YEAR_2000)  # or -infinity
    rows["ns"] = np.where(has_no_time, 0, times - micros * 1000)
    rows["series"] = series
    if kind != ValueType.TEXT:
        rows["value"] = np.asarray(lines.numbers)[chosen]
    match kind:
        case ValueType.INT:
            rows["int"] = exact
        case ValueType.UINT:
            rows["uint"][:, :4] = 5, 4, 0, 0  # digits, weight of the first, sign, decimals
            powers = np.array([10**16, 10**12, 10**8, 10**4, 1], np.uint64)
            rows["uint"][:, 4:] = exact.view(np.uint64)[:, None] // powers % np.uint64(10_000)
        case ValueType.BOOL:
            rows["bool"] = exact
        case ValueType.TEXT:
            texts = [lines.texts[place].encode() for place in exact]
            rows["text size"] = list(map(len, texts))
            for row, text in zip(rows, texts, strict=True):
                yield row.tobytes() + text
            return
    yield rows.tobytes()


def _template(cells: Mapping[str, Any]) -> Array:
    """Return a row with the sizes of its cells, which are -1 for null."""
    cells = {**_CELLS, **cells}
    parts: list[tuple[str, Any]] = [("cells", ">i2")]
    for name in COLUMNS:
        parts.append((f"{name} size", ">i4"))
        if name in cells:
            parts.append((name, cells[name]))
    row = np.zeros(1, np.dtype(parts))
    row["cells"] = len(COLUMNS)
    for name in COLUMNS:
        row[f"{name} size"] = row.dtype[name].itemsize if name in cells else -1
    return row


_TEMPLATES = {kind: _template(cells) for kind, cells in _CELLS_OF.items()}
