"""``Lines`` as tables for files: one for each cluster and day."""

from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import pyarrow as pa

from ccpipe.errors import RejectedError
from ccpipe.formats.kernel import load_kernel
from ccpipe.formats.lineprotocol import Lines
from ccpipe.sinks.parquet.schema import MAX_NAME, NAME, NULL, SCHEMA

KERNEL = load_kernel(__package__)

MAX_KNOWN = 2**18
"""Maximum number of series remembered between batches."""

Rows: TypeAlias = "array[int] | None"
"""Row indices, in ascending order; None for all."""
Texts: TypeAlias = tuple[Any, bytes]
"""Offsets of each text and of the end of the last one, and the bytes of all."""
Values: TypeAlias = tuple[Any, bytearray | None, int]
"""Data (two buffers for texts), validity bits or None, and the number of nulls."""
Names: TypeAlias = tuple[Any, bytearray | None, int, Texts]
"""The same for dictionary indices, with the dictionary's texts."""


class Buffers(NamedTuple):
    """The buffers of a table's columns, from the kernel; None for a column of nulls."""

    time: Values
    ns: Values
    fields: tuple[Any, list[str]]
    names: list[Names | None]
    """For the measurement and ``TAG_COLUMNS``."""
    tags: tuple[Any, Texts, Texts]
    value: Values
    int: Values | None
    uint: Values | None
    bool: Values | None
    text: Values | None


class DayRows(NamedTuple):
    """The rows of one cluster and day."""

    path: str
    """Of the folder's name."""
    table: pa.Table
    """A table of ``SCHEMA``."""
    rows: Rows
    """Row indices in the batch, in ascending order; None for all rows."""


class DaySplitter:
    """Splits lines by cluster and day; caches their series."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._known: Any = None  # of the kernel, for the table of the latest lines

    def parts(self, payloads: Sequence[Lines]) -> Iterator[DayRows]:
        """Return the tables for the lines of some payloads.

        Raises
        ------
        RejectedError
            for rows whose cluster's name is too long for a folder.

        """
        payloads = [lines for lines in payloads if len(lines)]
        if not payloads:
            return
        total = sum(map(len, payloads))
        columns = self._columns(payloads)
        for cluster, day, rows in columns.groups():
            path = _path(cluster, day, range(total) if rows is None else rows)
            table = columns.table(rows)
            if KERNEL is not None:
                table = _table(total if rows is None else len(rows), Buffers(*table))
            yield DayRows(path, table, rows)

    def _columns(self, payloads: Sequence[Lines]) -> Any:
        if KERNEL is None:
            # Needs pyarrow.compute: 9 MB, and 60 ms at startup, which the kernel avoids.
            from ccpipe.sinks.parquet.in_python import LineColumns

            return LineColumns(Lines.concat(payloads))
        table = payloads[-1].table
        if any(lines.table is not table for lines in payloads):
            payloads = [Lines.concat(payloads)]
            table = payloads[0].table
        if self._known is None or self._known.table is not table or len(self._known) > MAX_KNOWN:
            self._known = None  # free its memory before the next one
            self._known = KERNEL.Known(table)
        return KERNEL.Columns(payloads, self._known)


def _path(cluster: str | None, day: int | None, rows: Sequence[int]) -> str:
    folder = "cluster=" + (NULL if cluster is None else quote(cluster, safe=""))
    if len(folder) > MAX_NAME:
        raise RejectedError("the cluster's name is too long for a folder", list(rows))
    if day is None:
        return f"{folder}/date={NULL}"
    return f"{folder}/date={datetime(1970, 1, 1, tzinfo=UTC) + timedelta(day):%Y-%m-%d}"


def _table(size: int, buffers: Buffers) -> pa.Table:
    time = _values("time", size, buffers.time)
    numbers, fields = buffers.fields
    field = pa.DictionaryArray.from_buffers(
        NAME, size, [None, pa.py_buffer(numbers)], pa.array(fields, pa.string()), 0
    )
    name, *tags = [_names(size, names) for names in buffers.names]
    found = [
        time,
        _values("ns", size, buffers.ns),
        name,
        field,
        *tags,
        _tags(size, *buffers.tags),
        *(
            _values(column, size, getattr(buffers, column))
            for column in ("value", "int", "uint", "bool", "text")
        ),
    ]
    return pa.Table.from_arrays(found, schema=SCHEMA)


def _values(column: str, size: int, values: Values | None) -> pa.Array:
    type_ = SCHEMA.field(column).type
    return pa.nulls(size, type_) if values is None else _array(type_, size, *values)


def _array(
    type_: pa.DataType, size: int, values: Any, valid: bytearray | None, missing: int
) -> pa.Array:
    buffers = values if isinstance(values, tuple) else (values,)
    validity = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(type_, size, [validity, *map(pa.py_buffer, buffers)], missing)


def _texts(places: Any, text: bytes) -> pa.Array:
    return _array(pa.string(), len(places) - 1, (places, text), None, 0)


def _names(size: int, names: Names | None) -> pa.Array:
    if names is None:
        return pa.nulls(size, NAME)
    numbers, valid, missing, texts = names
    validity = None if valid is None else pa.py_buffer(valid)
    buffers = [validity, pa.py_buffer(numbers)]
    return pa.DictionaryArray.from_buffers(NAME, size, buffers, _texts(*texts), missing)


def _tags(size: int, places: Any, keys: Any, values: Any) -> pa.Array:
    type_ = SCHEMA.field("tags").type
    pairs = pa.StructArray.from_arrays(
        [_texts(*keys), _texts(*values)], fields=[type_.key_field, type_.item_field]
    )
    return pa.Array.from_buffers(type_, size, [None, pa.py_buffer(places)], 0, children=[pairs])
