"""``Lines`` as tables for files: one for each cluster and day."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from ccpipe.errors import RejectedError
from ccpipe.formats.kernel import load_kernel
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.sinks.parquet.schema import MAX_NAME, NAME, NULL, SCHEMA, TAG_COLUMNS

KERNEL: ModuleType | None = load_kernel("ccpipe.sinks.parquet._kernel")


class Part(NamedTuple):
    """The rows of one cluster and day."""

    path: str
    """Of their folder."""
    table: pa.Table
    """Of ``SCHEMA``."""
    rows: Sequence[int] | None
    """Their places among all rows, in ascending order; None for all of them."""


def parts(lines: Lines) -> Iterator[Part]:
    """Split lines by cluster and day.

    Raises
    ------
    RejectedError
        naming the rows whose cluster's name is too long for a folder.

    """
    if not len(lines):
        return
    if KERNEL is not None:
        columns = KERNEL.Columns(lines)
    else:
        # It needs pyarrow.compute: 9 MB, and 60 ms at the start, that the kernel saves.
        from ccpipe.sinks.parquet.in_python import Columns

        columns = Columns(lines)
    for cluster, day, rows in columns.groups():
        path = _path(cluster, day, range(len(lines)) if rows is None else rows)
        if KERNEL is not None:
            yield Part(path, _table(lines, columns, rows), rows)
        else:
            yield Part(path, columns.table(rows), rows)


def _path(cluster: str | None, day: int | None, rows: Sequence[int]) -> str:
    folder = "cluster=" + (NULL if cluster is None else quote(cluster, safe=""))
    if len(folder) > MAX_NAME:
        raise RejectedError("the cluster's name is too long for a folder", list(rows))
    if day is None:
        return f"{folder}/date={NULL}"
    return f"{folder}/date={datetime(1970, 1, 1, tzinfo=UTC) + timedelta(day):%Y-%m-%d}"


def _table(lines: Lines, columns: Any, rows: Sequence[int] | None) -> pa.Table:
    """Build a table from the kernel's buffers; doubles of all rows are the lines' own."""
    size = len(lines) if rows is None else len(rows)
    kinds = set(lines.types.tobytes())
    micros, beyond, *has_time = columns.moments(rows)
    field_numbers, fields = columns.fields_of(rows)

    def of(kind: ValueType, name: str, read: Any, *arguments: Any) -> pa.Array:
        """Return the values of one type, null elsewhere."""
        type_ = SCHEMA.field(name).type
        return (
            _array(type_, size, *read(*arguments, rows)) if kind in kinds else pa.nulls(size, type_)
        )

    found = [
        _array(SCHEMA.field("time").type, size, micros, *has_time),
        _array(pa.int16(), size, beyond, *has_time),
        _names(size, *columns.names(0, rows)),
        pa.DictionaryArray.from_buffers(
            NAME, size, [None, pa.py_buffer(field_numbers)], pa.array(fields, pa.string()), 0
        ),
        *(_names(size, *columns.names(1 + place, rows)) for place in range(len(TAG_COLUMNS))),
        _tags(size, *columns.tags(rows)),
        _array(pa.float64(), size, *columns.values(rows)),
        of(ValueType.INT, "int", columns.exact_of, ValueType.INT),
        of(ValueType.UINT, "uint", columns.exact_of, ValueType.UINT),
        of(ValueType.BOOL, "bool", columns.booleans),
        of(ValueType.TEXT, "text", columns.texts),
    ]
    return pa.Table.from_arrays(found, schema=SCHEMA)


def _array(
    type_: pa.DataType, size: int, values: Any, valid: bytearray | None, missing: int
) -> pa.Array:
    """Build an array; `values` are one buffer, or two where they are texts."""
    buffers = values if isinstance(values, tuple) else (values,)
    validity = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(type_, size, [validity, *map(pa.py_buffer, buffers)], missing)


def _texts(places: Any, text: bytes) -> pa.Array:
    return _array(pa.string(), len(places) - 1, (places, text), None, 0)


def _names(size: int, numbers: Any, valid: bytearray | None, missing: int, names: Any) -> pa.Array:
    validity = None if valid is None else pa.py_buffer(valid)
    buffers = [validity, pa.py_buffer(numbers)]
    return pa.DictionaryArray.from_buffers(NAME, size, buffers, _texts(*names), missing)


def _tags(size: int, places: Any, keys: Any, values: Any) -> pa.Array:
    type_ = SCHEMA.field("tags").type
    pairs = pa.StructArray.from_arrays(
        [_texts(*keys), _texts(*values)], fields=[type_.key_field, type_.item_field]
    )
    return pa.Array.from_buffers(type_, size, [None, pa.py_buffer(places)], 0, children=[pairs])
