"""``Lines`` as an Arrow table."""

from array import array
from typing import Any, Protocol

from ccpipe.errors import MissingExtra
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import SeriesTable
from ccpipe.formats.lineprotocol.texts import Texts
from ccpipe.formats.lineprotocol.values import ValueType

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column of their own, with ``_`` for ``-``; the others share the column ``tags``."""

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("ns", tz="UTC")),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("field", pa.dictionary(pa.int32(), pa.string())),
        *((tag.replace("-", "_"), pa.dictionary(pa.int32(), pa.string())) for tag in TAG_COLUMNS),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("value", pa.float64()),
        ("int", pa.int64()),
        ("uint", pa.uint64()),
        ("bool", pa.bool_()),
        ("text", pa.string()),
    ]
)
"""One row for each field of each line.

``value`` holds every number (booleans as 0 and 1) and is null for texts; ``int``, ``uint`` and
``bool`` hold the exact value of an integer, unsigned integer or boolean.
"""


class _Columns(Protocol):
    """The columns of ``Lines``, which has ``to_arrow`` and thus cannot be imported here."""

    series: "array[int]"
    fields: "array[int]"
    types: "array[int]"
    numbers: "array[float]"
    exact: "array[int]"
    times: "array[int]"
    table: SeriesTable
    texts: Texts


def to_arrow(lines: _Columns) -> pa.Table:
    """Build a table of ``SCHEMA``; numeric columns share memory with `lines`."""
    size = len(lines.series)
    types = _column(lines.types, pa.uint8(), size)
    exact = _column(lines.exact, pa.int64(), size)
    times = _column(lines.times, pa.int64(), size)
    columns = {
        "time": _where(pc.not_equal(times, NO_TIME), times).cast(pa.timestamp("ns", tz="UTC")),
        "field": _fields(lines),
        **_series_columns(lines),
        "value": _where(
            pc.not_equal(types, ValueType.TEXT), _column(lines.numbers, pa.float64(), size)
        ),
        "int": _where(pc.equal(types, ValueType.INT), exact),
        "uint": _where(pc.equal(types, ValueType.UINT), _column(lines.exact, pa.uint64(), size)),
        "bool": _where(pc.equal(types, ValueType.BOOL), exact).cast(pa.bool_()),
        "text": pa.array(list(lines.texts), pa.string()).take(
            _where(pc.equal(types, ValueType.TEXT), exact)
        ),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _fields(lines: _Columns) -> pa.Array:
    codes = _column(lines.fields, pa.int32(), len(lines.fields)).dictionary_encode()
    used = [lines.table.fields[code] for code in codes.dictionary.to_pylist()]
    return _take(used, codes.indices)


def _series_columns(lines: _Columns) -> "dict[str, pa.Array]":
    """Return name and tags of the rows; each series is looked up once."""
    codes = _column(lines.series, pa.int32(), len(lines.series)).dictionary_encode()
    used = [lines.table.series[code] for code in codes.dictionary.to_pylist()]
    tags = [series.tags for series in used]
    rest = [[(k, v) for k, v in each.items() if k not in _OWN] for each in tags]
    return {
        "name": _take([series.name for series in used], codes.indices),
        **{
            tag.replace("-", "_"): _take([each.get(tag) for each in tags], codes.indices)
            for tag in TAG_COLUMNS
        },
        "tags": pa.array(rest, SCHEMA.field("tags").type).take(codes.indices),
    }


_OWN = frozenset(TAG_COLUMNS)


def _take(values: "list[str] | list[str | None]", indices: pa.Array) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode().take(indices)


def _column(values: "array[Any]", kind: pa.DataType, size: int) -> pa.Array:
    return pa.Array.from_buffers(kind, size, [None, pa.py_buffer(values)])


def _where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))
