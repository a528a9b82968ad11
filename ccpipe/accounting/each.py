"""Python functions on Arrow columns, called once for each combination of values."""

from collections.abc import Callable, Sequence
from typing import Any

from ccpipe.errors import MissingExtra

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None


def each(columns: Sequence[Any], function: Callable[..., Any], kind: pa.DataType) -> Any:
    """Apply a function to the values of each row; it is called once for equal rows."""
    codes: Any = None
    values_of = []
    for column in columns:
        encoded = pc.dictionary_encode(_whole(column), null_encoding="encode")
        indices = pc.cast(encoded.indices, pa.int64())
        values_of.append(encoded.dictionary.to_pylist())
        count = pa.scalar(len(values_of[-1]), pa.int64())
        codes = indices if codes is None else pc.add(pc.multiply(codes, count), indices)
    distinct = pc.dictionary_encode(codes)
    results = []
    for code in distinct.dictionary.to_pylist():
        row = []
        for values in reversed(values_of):
            code, index = divmod(code, len(values))  # noqa: PLW2901 - digit by digit
            row.append(values[index])
        results.append(function(*reversed(row)))
    return pa.array(results, kind).take(distinct.indices)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
