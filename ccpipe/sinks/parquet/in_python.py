"""Conversion of ``Lines`` to tables with Arrow: the twin of the compiled kernel of ``table``."""

from array import array
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.series import Series
from ccpipe.sinks.parquet.schema import DAY, SCHEMA, TAG_COLUMNS

Group = tuple[str | None, int | None, "array[int] | None"]
"""Cluster, day since the epoch and rows; None for all rows."""


class LineColumns:
    """The columns of some lines."""

    def __init__(self, lines: Lines) -> None:
        """Process each series once."""
        size = len(lines)
        encoded = _column(lines.series, pa.int32(), size).dictionary_encode()
        self.lines = lines
        self.used = [lines.table.series[code] for code in encoded.dictionary.to_pylist()]
        self.codes = encoded.indices
        """Index of each row in ``used``."""
        self.times = _column(lines.times, pa.int64(), size)

    def groups(self) -> Iterator[Group]:
        """Yield each cluster and day."""
        days = _where(pc.not_equal(self.times, NO_TIME), _floor(self.times, DAY))
        clusters = pa.array([each.tags.get("cluster") for each in self.used], pa.string())
        keys = pa.table(
            {
                "cluster": clusters.take(self.codes),
                "day": days,
                "row": pa.array(range(len(days)), pa.int64()),
            }
        )
        groups = keys.group_by(["cluster", "day"]).aggregate([("row", "list")])
        for group in range(len(groups)):
            rows = array("q", groups["row_list"][group].values.to_pylist())
            yield (
                groups["cluster"][group].as_py(),
                groups["day"][group].as_py(),
                rows if len(groups) > 1 else None,
            )

    def table(self, rows: Sequence[int] | None) -> pa.Table:
        """Build a table of ``SCHEMA`` from some rows."""
        whole = _table(self.lines, self.used, self.codes, self.times)
        return whole if rows is None else _own_dictionaries(whole.take(pa.array(rows, pa.int64())))


def _table(lines: Lines, used: Sequence[Series], codes: pa.Array, times: pa.Array) -> pa.Table:
    size = len(lines)
    kinds = set(lines.types.tobytes())
    types = _column(lines.types, pa.uint8(), size)
    exact = _column(lines.exact, pa.int64(), size)

    def of(kind: ValueType, values: pa.Array) -> pa.Array:
        """Return the values of one type, null for other rows."""
        if kind not in kinds:
            return pa.nulls(size, values.type)
        return values if len(kinds) == 1 else _where(pc.equal(types, kind), values)

    numbers = _column(lines.numbers, pa.float64(), size)
    if ValueType.TEXT in kinds:
        numbers = _where(pc.not_equal(types, ValueType.TEXT), numbers)
    is_bool = of(ValueType.BOOL, exact)
    columns = {
        **_times(times),
        "field": _fields(lines),
        **_series_columns(used, codes),
        "value": numbers,
        "int": of(ValueType.INT, exact),
        "uint": of(ValueType.UINT, _column(lines.exact, pa.uint64(), size)),
        "bool": is_bool.cast(pa.bool_()),
        "text": pa.array(list(lines.texts), pa.string()).take(of(ValueType.TEXT, exact)),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _times(times: pa.Array) -> dict[str, pa.Array]:
    has_time = pc.not_equal(times, NO_TIME)
    whole = _floor(times, 1000)
    beyond = pc.subtract(times, pc.multiply(whole, 1000))
    return {
        "time": _where(has_time, whole).cast(pa.timestamp("us", tz="UTC")),
        "ns": _where(has_time, beyond).cast(pa.int16()),
    }


def _floor(numbers: pa.Array, by: int) -> pa.Array:
    """Divide rounding down, as required for times before the epoch."""
    whole = pc.divide(numbers, by)  # rounds towards zero
    too_large = pc.less(pc.subtract(numbers, pc.multiply(whole, by)), 0)
    return pc.subtract(whole, too_large.cast(pa.int64()))


def _fields(lines: Lines) -> pa.Array:
    codes = _column(lines.fields, pa.int32(), len(lines)).dictionary_encode()
    used = [lines.table.fields[code] for code in codes.dictionary.to_pylist()]
    return _names(used, codes.indices)


def _series_columns(used: Sequence[Series], codes: pa.Array) -> dict[str, pa.Array]:
    own = {"cluster", *TAG_COLUMNS}
    rest = [[(key, each.tags[key]) for key in sorted(each.tags.keys() - own)] for each in used]
    return {
        "name": _names([each.name for each in used], codes),
        **{
            tag.replace("-", "_"): _names([each.tags.get(tag) for each in used], codes)
            for tag in TAG_COLUMNS
        },
        "tags": pa.array(rest, SCHEMA.field("tags").type).take(codes),
    }


def _names(values: "Sequence[str | None]", codes: pa.Array) -> pa.Array:
    """Return a dictionary column of names; `codes` are the rows' indices into `values`."""
    names = pa.array(values, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.take(codes), names.dictionary)


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
