"""Jobs as an Arrow table."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec import inspect

from ccpipe.errors import DataError, MissingExtra
from ccpipe.jobs.job import Job

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

CHUNK = 10_000
TIMES = ("submit", "start", "end")
"""Fields that are times, of which 0 is missing."""


def to_arrow(jobs: Iterable[Job]) -> pa.Table:
    """Build a table of ``SCHEMA`` with a row for each job, in bounded memory beside the table."""
    return pa.Table.from_batches(map(_batch, _chunks(jobs)), SCHEMA)


def _chunks(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    rest = iter(jobs)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _batch(jobs: list[Job]) -> pa.RecordBatch:
    columns = []
    for field in SCHEMA:
        values = [getattr(job, field.name) for job in jobs]
        if field.name in TIMES:
            values = [value or None for value in values]
        try:
            columns.append(pa.array(map(_plain, values), field.type, size=len(values)))
        except (pa.ArrowInvalid, OverflowError, UnicodeError) as error:
            raise DataError(f"column {field.name}: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


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


def _schema() -> pa.Schema:
    kind = inspect.type_info(Job)
    assert isinstance(kind, inspect.StructType)
    types = {each.name: each.type for each in kind.fields}
    del types["start_metadata"], types["raw"]
    time = pa.timestamp("ns", tz="UTC")
    return pa.schema(
        (name, time if name in TIMES else _type_of(type_)) for name, type_ in types.items()
    )


SCHEMA = _schema()
"""The fields of ``Job`` but for its raw record; nodes and usage are nested."""
