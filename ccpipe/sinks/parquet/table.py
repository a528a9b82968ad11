"""``Lines`` as tables for files: one for each cluster and day."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import Series

TAG_COLUMNS = ("hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column each, named with ``_`` for ``-``; the others share the column ``tags``."""

_NAME = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("ns", pa.int16()),
        ("name", _NAME),
        ("field", _NAME),
        *((tag.replace("-", "_"), _NAME) for tag in TAG_COLUMNS),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("value", pa.float64()),
        ("int", pa.int64()),
        ("uint", pa.uint64()),
        ("bool", pa.bool_()),
        ("text", pa.string()),
    ]
)
"""One row for each field of each line.

``time`` has microseconds, which every reader can compare, truncate and subtract; ``ns`` the 0 to
999 nanoseconds beyond. ``value`` holds every number (booleans as 0 and 1) and is null for texts;
``int``, ``uint`` and ``bool`` hold the exact value of an integer, unsigned integer or boolean.
"""

PATH_COLUMNS = pa.schema([("cluster", pa.string()), ("date", pa.date32())])
"""What the path says: the cluster and the day in UTC."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""In a path, what a row does not have: a tag ``cluster`` or a time."""

MAX_NAME = 255
"""Bytes that Linux's file systems allow for the name of a folder."""

DAY = 86_400 * 10**9
"""Nanoseconds."""


class Part(NamedTuple):
    """The rows of one cluster and day."""

    path: str
    """Of their folder."""
    table: pa.Table
    """Of ``SCHEMA``."""
    rows: "list[int] | None"
    """Their places among all rows, in ascending order; None for all of them."""


class _Series(NamedTuple):
    """Which series the rows are of: each is looked up once."""

    used: list[Series]
    codes: pa.Array
    """Of each row its place in ``used``."""


def parts(lines: Lines) -> Iterator[Part]:
    """Split lines by cluster and day.

    Raises
    ------
    RejectedError
        naming the rows whose cluster's name is too long for a folder.

    """
    size = len(lines)
    if not size:
        return
    encoded = _column(lines.series, pa.int32(), size).dictionary_encode()
    series = _Series(
        [lines.table.series[code] for code in encoded.dictionary.to_pylist()], encoded.indices
    )
    times = _column(lines.times, pa.int64(), size)
    bounds = pc.min_max(times).as_py()
    clusters = {each.tags.get("cluster") for each in series.used}
    first, last = bounds["min"], bounds["max"]
    if len(clusters) == 1 and first // DAY == last // DAY and first != NO_TIME:
        path = _path(clusters.pop(), first // DAY, range(size))
        yield Part(path, _table(lines, series, times, first), None)
        return
    whole = _table(lines, series, times, first)
    for cluster, day, rows in _groups(series, times):
        found = rows.to_pylist()
        yield Part(_path(cluster, day, found), _own_dictionaries(whole.take(rows)), found)


def _groups(series: _Series, times: pa.Array) -> Iterator[tuple[str | None, int | None, pa.Array]]:
    """Yield cluster, day since the epoch and rows."""
    has_time = pc.not_equal(times, NO_TIME)
    days = _where(has_time, _floor(times, DAY))
    clusters = pa.array([each.tags.get("cluster") for each in series.used], pa.string())
    keys = pa.table(
        {
            "cluster": clusters.take(series.codes),
            "day": days,
            "row": pa.array(range(len(times)), pa.int64()),
        }
    )
    groups = keys.group_by(["cluster", "day"]).aggregate([("row", "list")])
    for group in range(len(groups)):
        rows = groups["row_list"][group].values
        yield groups["cluster"][group].as_py(), groups["day"][group].as_py(), rows


def _path(cluster: str | None, day: int | None, rows: Sequence[int]) -> str:
    folder = "cluster=" + (NULL if cluster is None else quote(cluster, safe=""))
    if len(folder) > MAX_NAME:
        raise RejectedError("the cluster's name is too long for a folder", list(rows))
    if day is None:
        return f"{folder}/date={NULL}"
    return f"{folder}/date={datetime(1970, 1, 1, tzinfo=UTC) + timedelta(day):%Y-%m-%d}"


def _table(lines: Lines, series: _Series, times: pa.Array, first: int) -> pa.Table:
    """Build a table of ``SCHEMA``; numeric columns share memory with `lines`."""
    size = len(lines)
    kinds = set(lines.types.tobytes())
    types = _column(lines.types, pa.uint8(), size)
    exact = _column(lines.exact, pa.int64(), size)

    def of(kind: ValueType, values: pa.Array) -> pa.Array:
        """Return the values of one type, null elsewhere."""
        if kind not in kinds:
            return pa.nulls(size, values.type)
        return values if len(kinds) == 1 else _where(pc.equal(types, kind), values)

    numbers = _column(lines.numbers, pa.float64(), size)
    if ValueType.TEXT in kinds:
        numbers = _where(pc.not_equal(types, ValueType.TEXT), numbers)
    is_bool = of(ValueType.BOOL, exact)
    columns = {
        **_times(lines, times, first),
        "field": _fields(lines),
        **_series_columns(series),
        "value": numbers,
        "int": of(ValueType.INT, exact),
        "uint": of(ValueType.UINT, _column(lines.exact, pa.uint64(), size)),
        "bool": is_bool.cast(pa.bool_()),
        "text": pa.array(list(lines.texts), pa.string()).take(of(ValueType.TEXT, exact)),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _times(lines: Lines, times: pa.Array, first: int) -> dict[str, pa.Array]:
    whole = _floor(times, 1000) if first < 0 else pc.divide(times, 1000)
    if lines.precision in ("s", "ms", "us"):
        beyond = pa.repeat(pa.scalar(0, pa.int16()), len(times))
    else:
        beyond = pc.subtract(times, pc.multiply(whole, 1000)).cast(pa.int16())
    if first == NO_TIME:
        has_time = pc.not_equal(times, NO_TIME)
        whole, beyond = _where(has_time, whole), _where(has_time, beyond)
    return {"time": whole.cast(pa.timestamp("us", tz="UTC")), "ns": beyond}


def _floor(numbers: pa.Array, by: int) -> pa.Array:
    """Divide towards minus infinity, as times before the epoch need it."""
    whole = pc.divide(numbers, by)  # towards zero
    too_large = pc.less(pc.subtract(numbers, pc.multiply(whole, by)), 0)
    return pc.subtract(whole, too_large.cast(pa.int64()))


def _fields(lines: Lines) -> pa.Array:
    names = lines.table.fields
    if len(names) == 1 or lines.fields.count(lines.fields[0]) == len(lines):
        return _repeated(names[lines.fields[0]], len(lines))
    codes = _column(lines.fields, pa.int32(), len(lines)).dictionary_encode()
    used = [names[code] for code in codes.dictionary.to_pylist()]
    return _names(used, codes.indices)


def _series_columns(series: _Series) -> dict[str, pa.Array]:
    used, codes = series
    own = {"cluster", *TAG_COLUMNS}
    rest = [[(key, each.tags[key]) for key in sorted(each.tags.keys() - own)] for each in used]
    tags = pa.array(rest, SCHEMA.field("tags").type)
    return {
        "name": _names([each.name for each in used], codes),
        **{
            tag.replace("-", "_"): _names([each.tags.get(tag) for each in used], codes)
            for tag in TAG_COLUMNS
        },
        "tags": tags.take(codes),
    }


def _names(values: "Sequence[str | None]", codes: pa.Array) -> pa.Array:
    """Return a column of names; `codes` are the places of the rows' names among `values`."""
    first = values[0]
    if all(value == first for value in values):
        return _repeated(first, len(codes))
    names = pa.array(values, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.take(codes), names.dictionary)


def _repeated(name: str | None, count: int) -> pa.Array:
    if name is None:
        return pa.DictionaryArray.from_arrays(
            pa.nulls(count, pa.int32()), pa.array([], pa.string())
        )
    codes = pa.repeat(pa.scalar(0, pa.int32()), count)
    return pa.DictionaryArray.from_arrays(codes, pa.array([name]))


def _own_dictionaries(table: pa.Table) -> pa.Table:
    """Drop unused values from the dictionaries, such as names of other clusters' nodes."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            texts = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field, texts.dictionary_encode())
    return table


def _column(values: object, kind: pa.DataType, size: int) -> pa.Array:
    return pa.Array.from_buffers(kind, size, [None, pa.py_buffer(values)])


def _where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))
