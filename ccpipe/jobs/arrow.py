"""Jobs as an Arrow table."""

import functools
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct, inspect

from ccpipe.errors import DataError, MissingExtra

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

CHUNK = 10_000
TIMES = ("submit", "start", "end")
NEVER_ZERO = (*TIMES, "hwthreads", "requested_hwthreads", "memory", "walltime")
"""Fields of which 0 means unknown, or none: null in a table."""


def to_arrow(jobs: Iterable[Struct], kind: type[Struct]) -> pa.Table:
    """Build a table with a row for each job, in bounded memory besides the table's own.

    Its columns are the fields of `kind`, which is ``Job``, but for its raw record; nodes and usage
    are nested.
    """
    schema = schema_of(kind)
    return pa.Table.from_batches((_batch(chunk, schema) for chunk in _chunks(jobs)), schema)


def _chunks(jobs: Iterable[Struct]) -> Iterator[list[Struct]]:
    rest = iter(jobs)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _batch(jobs: list[Struct], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        values = [getattr(job, field.name) for job in jobs]
        if field.name in NEVER_ZERO:
            values = [value or None for value in values]
        try:
            columns.append(pa.array(map(_plain, values), field.type, size=len(values)))
        except (pa.ArrowInvalid, OverflowError, UnicodeError) as error:
            raise DataError(f"column {field.name}: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {key: _plain(each) for key, each in msgspec.structs.asdict(value).items()}
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def _type_of(kind: inspect.Type) -> pa.DataType:
    match kind:
        case inspect.UnionType(types=types):
            several = [_type_of(each) for each in types if not isinstance(each, inspect.NoneType)]
            return pa.float64() if pa.float64() in several else several[0]
        case inspect.VarTupleType(item_type=item):
            return pa.list_(_type_of(item))
        case inspect.DictType():
            return pa.map_(pa.string(), pa.string())
        case inspect.StructType(fields=fields):
            return pa.struct([(each.name, _type_of(each.type)) for each in fields])
    return _PLAIN[type(kind)]


_PLAIN: dict[Any, pa.DataType] = {
    inspect.StrType: pa.string(),
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.BoolType: pa.bool_(),
}


@functools.cache
def schema_of(kind: type[Struct]) -> pa.Schema:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    types = {each.name: each.type for each in info.fields}
    del types["start_metadata"], types["raw"]
    time = pa.timestamp("ns", tz="UTC")
    return pa.schema(
        (name, time if name in TIMES else _type_of(type_)) for name, type_ in types.items()
    )
