"""``Lines`` as tables for files: one for each cluster and day."""

from array import array
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.lineprotocol.arrow import SeriesOfRows, masked, series_of, to_arrow
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.sinks.parquet.schema import DAY, MAX_NAME, NULL, SCHEMA

DAYS = 2**18
"""More days than 64-bit times have, from ``NO_DAY`` on."""
NO_DAY = -(2**17)
"""In place of the day of a line without a time."""


class DayRows(NamedTuple):
    """The rows of one cluster and day."""

    path: str
    """Of the folder's name."""
    table: pa.Table
    """A table of ``SCHEMA``."""
    rows: "array[int] | None"
    """Row indices in the batch, in ascending order; None for all rows."""


def by_day(lines: Lines) -> Iterator[DayRows]:
    """Split lines into tables by cluster and day."""
    if not len(lines):
        return
    series = series_of(lines)
    times = np.asarray(lines.times)
    days = np.where(times == NO_TIME, NO_DAY, times // DAY)
    clusters = series.columns["cluster"].combine_chunks().fill_null("").dictionary_encode()
    if len(clusters.dictionary) == 1 and days.min() == days.max():
        path = _path(clusters.dictionary[0].as_py(), int(days[0]), range(len(lines)))
        yield DayRows(path, _table(lines, series), None)
        return
    numbers = clusters.indices.to_numpy()[series.rows].astype(np.int64)
    groups = pa.array(numbers * DAYS + (days - NO_DAY)).dictionary_encode()
    for group, key in enumerate(groups.dictionary.to_pylist()):
        number, day = divmod(key, DAYS)
        rows = np.flatnonzero(groups.indices.to_numpy() == group)
        path = _path(clusters.dictionary[number].as_py(), day + NO_DAY, rows)
        part = lines.take((groups.indices.to_numpy() == group).tobytes())
        yield DayRows(path, _table(part, series_of(part)), array("q", rows.tobytes()))


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
