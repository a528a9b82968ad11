"""``Lines`` as tables, one for each cluster and day, and as complete files."""

import inspect
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, arrow
from ccpipe.formats.lineprotocol.arrow import SeriesOfRows, masked, series_of, to_arrow
from ccpipe.formats.lineprotocol.precision import NO_TIME

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("ns", pa.int16()),
        *(field for field in arrow.SCHEMA if field.name not in ("time", "cluster")),
    ]
)
"""One row for each field of each line.

``time`` has microseconds, which every reader can compare, truncate and subtract; ``ns`` the 0 to
999 nanoseconds beyond.
"""

PATH_COLUMNS = pa.schema([("cluster", pa.string()), ("date", pa.date32())])
"""Columns from the path: the cluster and the day in UTC."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Stands in a path for a missing tag ``cluster`` or timestamp."""

MAX_NAME = 255
"""Maximum length of a folder's name on Linux, in bytes."""

DAY = 86_400 * 10**9

GROUP_ROWS = 150_000
GROUP_BYTES = 16 * 2**20
"""Maximum rows and bytes of a row group: the memory that a reader or writer needs."""

_PAGE_ROWS = 20 * 1024

_OPTIONS: dict[str, Any] = {
    # A dictionary of doubles would be built, grow too large, and be discarded.
    "use_dictionary": [
        field.name for field in SCHEMA if pa.types.is_dictionary(field.type) or field.name == "ns"
    ],
    # Readers skip row groups by these columns; all nodes and metrics are in each.
    "write_statistics": ["time"],
    # 20 000 doubles, which zstd compresses best; the other columns need few bytes per row.
    "data_page_size": 8 * _PAGE_ROWS,
    "write_batch_size": _PAGE_ROWS,
}
if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters:
    # Newer versions end a page after 20 000 rows, and each page costs a compressor.
    _OPTIONS["max_rows_per_page"] = GROUP_ROWS

DAYS = 2**18
"""More days than 64-bit times have, from ``NO_DAY`` on."""
NO_DAY = -(2**17)
"""In place of the day of a line without a time."""


class DayRows(NamedTuple):
    """The rows of one cluster and day."""

    path: str
    table: pa.Table
    rows: "array[int] | None"
    """Row indices in the batch, in ascending order; None for all rows."""


def by_day(lines: Lines) -> Iterator[DayRows]:
    """Split lines into tables by cluster and day."""
    if not len(lines):
        return
    series = series_of(lines)
    times = np.asarray(lines.times)
    clusters = series.columns["cluster"].combine_chunks().fill_null("").dictionary_encode()
    first, last = _days(np.array([times.min(), times.max()])).tolist()
    if len(clusters.dictionary) == 1 and first == last:
        path = _path(clusters.dictionary[0].as_py(), first, range(len(lines)))
        yield DayRows(path, _table(lines, series), None)
        return
    days = _days(times)
    numbers = clusters.indices.to_numpy()[series.rows].astype(np.int64)
    groups = pa.array(numbers * DAYS + (days - NO_DAY)).dictionary_encode()
    for group, key in enumerate(groups.dictionary.to_pylist()):
        number, day = divmod(key, DAYS)
        rows = np.flatnonzero(groups.indices.to_numpy() == group)
        path = _path(clusters.dictionary[number].as_py(), day + NO_DAY, rows)
        part = lines.take((groups.indices.to_numpy() == group).tobytes())
        yield DayRows(path, _table(part, series_of(part)), array("q", rows.tobytes()))


def _days(times: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return np.where(times == NO_TIME, NO_DAY, times // DAY)


def _path(cluster: str, day: int, rows: Iterable[int]) -> str:
    folder = "cluster=" + (quote(cluster, safe="") or NULL)
    if len(folder) > MAX_NAME:
        raise RejectedError("the cluster's name is too long for a folder", list(map(int, rows)))
    if day == NO_DAY:
        return f"{folder}/date={NULL}"
    return f"{folder}/date={datetime(1970, 1, 1, tzinfo=UTC) + timedelta(day):%Y-%m-%d}"


def _table(lines: Lines, series: SeriesOfRows) -> pa.Table:
    columns = to_arrow(lines, series)
    times = np.asarray(lines.times)
    micros = times // 1000
    beyond = (times - micros * 1000).astype(np.int16)
    has_no_time = times == NO_TIME
    time = masked(micros, has_no_time).view(SCHEMA.field("time").type)
    same = [columns[name] for name in SCHEMA.names[2:]]
    return pa.table([time, masked(beyond, has_no_time), *same], schema=SCHEMA)


def write_file(
    path: Path, table: pa.Table, compression: str, metadata: Mapping[bytes, bytes]
) -> None:
    write_groups(path, _groups(table), compression, metadata)


def write_groups(
    path: Path, tables: Iterable[pa.Table], compression: str, metadata: Mapping[bytes, bytes]
) -> None:
    """Write a new file of a row group for each table, and sync it to the disk."""
    schema = SCHEMA.with_metadata(metadata)
    with path.open("xb") as file:
        with pq.ParquetWriter(file, schema, compression=compression, **_OPTIONS) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=max(1, len(table)))
        file.flush()
        os.fsync(file.fileno())


def _groups(table: pa.Table) -> Iterable[pa.Table]:
    rows = min(GROUP_ROWS, max(1, len(table) * GROUP_BYTES // max(1, table.nbytes)))
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)
