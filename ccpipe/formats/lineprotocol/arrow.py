"""``Lines`` as Arrow columns."""

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ccpipe.errors import MissingExtra
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import CodeColumns, SeriesTable
from ccpipe.formats.lineprotocol.values import Texts, ValueType

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute  # otherwise imported by the first batch: 60 ms
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column of their own, with ``_`` for ``-``; the others share the column ``tags``."""

NAME = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("ns", tz="UTC")),
        ("name", NAME),
        ("field", NAME),
        *((tag.replace("-", "_"), NAME) for tag in TAG_COLUMNS),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("value", pa.float64()),
        ("int", pa.int64()),
        ("uint", pa.uint64()),
        ("bool", pa.bool_()),
        ("text", pa.string()),
    ]
)
"""One row for each field of each line.

``value`` has every number (booleans as 0 and 1) and is null for texts; ``int``, ``uint`` and
``bool`` have the exact value of an integer, unsigned integer or boolean.
"""

MICROSECONDS = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("ns", pa.int16()),
        *(field for field in SCHEMA if field.name != "time"),
    ]
)
"""``SCHEMA`` for stores.

``time`` has microseconds, which every reader can compare, truncate and subtract; ``ns`` the 0 to
999 nanoseconds beyond.
"""

SERIES = pa.schema(
    [(name, pa.string()) for name in ("name", *TAG_COLUMNS)] + [SCHEMA.field("tags")]
)
"""One row for each series; tags are named as in the lines."""


class Columns(CodeColumns, Protocol):
    """All columns of ``Lines``; importing it would be circular."""

    types: "array[int]"
    numbers: "array[float]"
    exact: "array[int]"
    times: "array[int]"
    texts: Texts

    @property
    def used_types(self) -> frozenset[ValueType]:
        """Types of the values."""


class SeriesOfRows(NamedTuple):
    """The series of some lines."""

    columns: pa.Table
    """A row of ``SERIES`` for each series in use."""
    rows: pa.Array
    """For each line, the index of its series in these columns."""


def _used(codes: "array[int]") -> "tuple[np.ndarray[Any, Any], pa.Array]":
    """Return the used codes, ascending, and for each row the index of its code among them.

    Codes start at 0, so marking them is much faster than hashing them.
    """
    rows = np.asarray(codes)
    place = np.zeros(rows.max(initial=-1) + 1, np.int32)
    place[rows] = 1
    used = np.flatnonzero(place)
    if len(used) == len(place):
        return used, pa.array(rows)
    place[used] = np.arange(len(used))
    return used, pa.array(place[rows])


def series_of(lines: Columns) -> SeriesOfRows:
    used, rows = _used(lines.series)
    if KERNEL is None:
        return SeriesOfRows(_series_in_python(lines.table, used.tolist()), rows)
    codes, tags = array("i", used.astype(np.int32).tobytes()), [tag.encode() for tag in TAG_COLUMNS]
    columns, ends, keys, values = KERNEL.series_texts(lines.table, codes, tags)
    others = pa.MapArray.from_arrays(pa.array(np.asarray(ends)), _texts(*keys), _texts(*values))
    arrays = [*(_texts(*column) for column in columns), others]
    return SeriesOfRows(pa.Table.from_arrays(arrays, schema=SERIES), rows)


def _texts(valid: bytes, offsets: "array[int]", text: bytes) -> pa.Array:
    buffers = [pa.py_buffer(each) for each in (valid, offsets, text)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def _series_in_python(table: SeriesTable, codes: Iterable[int]) -> pa.Table:
    series = [table.series[code] for code in codes]
    others = [[(k, v) for k, v in each.tags.items() if k not in _OWN] for each in series]
    columns = [
        [each.name for each in series],
        *([each.tags.get(tag) for each in series] for tag in TAG_COLUMNS),
        others,
    ]
    arrays = [pa.array(cells, kind) for cells, kind in zip(columns, SERIES.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SERIES)


_OWN = frozenset(TAG_COLUMNS)


def to_arrow(lines: Columns, series: SeriesOfRows | None = None) -> pa.Table:
    """Build a table of ``SCHEMA``; numeric columns share memory with `lines`.

    The dictionaries only have names in use. `series` is ``series_of(lines)``, if known.
    """
    times = np.asarray(lines.times)
    time = masked(times, times == NO_TIME).view(SCHEMA.field("time").type)
    return _table(lines, series, SCHEMA, time=time)


def to_microseconds(lines: Columns, series: SeriesOfRows | None = None) -> pa.Table:
    """Build a table of ``MICROSECONDS``, as ``to_arrow`` does."""
    times = np.asarray(lines.times)
    micros = times // 1000
    beyond = (times - micros * 1000).astype(np.int16)
    has_no_time = times == NO_TIME
    time = masked(micros, has_no_time).view(MICROSECONDS.field("time").type)
    return _table(lines, series, MICROSECONDS, time=time, ns=masked(beyond, has_no_time))


def _table(
    lines: Columns, series: SeriesOfRows | None, schema: pa.Schema, **times: pa.Array
) -> pa.Table:
    columns = {
        **times,
        "field": _fields(lines),
        **_series(series_of(lines) if series is None else series),
        **_values(lines),
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _fields(lines: Columns) -> pa.Array:
    only = lines.only_field
    if only is None:
        used, rows = _used(lines.fields)
    else:  # the common case
        used, rows = np.array([only]), pa.array(np.zeros(len(lines.fields), np.int32))
    names = [lines.table.fields[code] for code in used.tolist()]
    return pa.DictionaryArray.from_arrays(rows, pa.array(names, pa.string()))


def _series(series: SeriesOfRows) -> dict[str, pa.Array]:
    size = len(series.rows)
    tags = series.columns["tags"].combine_chunks()
    columns = {"tags": tags.take(series.rows) if len(tags.keys) else _no_tags(size)}
    for name in ("name", *TAG_COLUMNS):
        names = series.columns[name].combine_chunks().dictionary_encode()
        columns[name.replace("-", "_")] = (
            pa.DictionaryArray.from_arrays(
                names.indices.take(series.rows), names.dictionary, safe=False
            )
            if len(names.dictionary)
            else pa.nulls(size, NAME)
        )
    return columns


def _no_tags(size: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(size + 1, np.int32)), nothing, nothing)


def _values(lines: Columns) -> dict[str, pa.Array]:
    """Return the values by type, null in the columns of other types."""
    types, exact = np.asarray(lines.types), np.asarray(lines.exact)
    used, size = lines.used_types, len(types)
    by_type = {
        "int": (ValueType.INT, exact),
        "uint": (ValueType.UINT, exact.view(np.uint64)),
        "bool": (ValueType.BOOL, exact != 0),
    }
    columns = {
        name: masked(values, types != kind)
        if kind in used
        else pa.nulls(size, SCHEMA.field(name).type)
        for name, (kind, values) in by_type.items()
    }
    numbers = np.asarray(lines.numbers)
    if ValueType.TEXT not in used:
        return columns | {"text": pa.nulls(size, pa.string()), "value": pa.array(numbers)}
    is_text = types == ValueType.TEXT
    texts = pa.array([lines.texts[place] for place in exact[is_text]], pa.string())
    columns["text"] = texts.take(pa.array(np.cumsum(is_text) - 1, mask=~is_text))
    columns["value"] = masked(numbers, is_text)
    return columns


def masked(values: "np.ndarray[Any, Any]", is_null: "np.ndarray[Any, Any]") -> pa.Array:
    """Return values as an array, without a copy if there are no nulls."""
    return pa.array(values, mask=is_null if is_null.any() else None)
