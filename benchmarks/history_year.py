"""A year of 1000 nodes in Parquet files: how long opening one job takes.

``python -m benchmarks.history_year DIR`` makes the files first if DIR is missing: 20 metrics of
each node, once an hour for a year and once a minute on the day of the job; 500 MB in two minutes.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.history.interfaces import MetricQuery
from ccpipe.history.parquet import ParquetHistory
from ccpipe.jobs import Job, JobNode, RunKey, message
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sinks.parquet.files import GROUP_ROWS, SCHEMA, write_file

NODES = [f"n{number:04}" for number in range(1000)]
METRICS = [f"metric_{number:02}" for number in range(20)]
DAYS, HOUR, MINUTE, SECOND = 365, 3600, 60, 10**9
FIRST = datetime(2025, 1, 1, tzinfo=UTC)
JOB_DAY = 180
START = int((FIRST + timedelta(days=JOB_DAY, hours=6)).timestamp())
JOB = Job(
    cluster="fox", id=77, user="anna", start=START * SECOND, state="completed",
    end=(START + 8 * HOUR) * SECOND, nodes=tuple(JobNode(node) for node in NODES[100:116]),
)  # fmt: skip


def tables(day: datetime, interval: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a day as a bridge receives them, each with the time of the last row."""
    series = len(NODES) * len(METRICS)
    times_of_table = max(1, GROUP_ROWS // series)
    random = np.random.default_rng(day.toordinal())
    nodes = np.repeat(np.arange(len(NODES), dtype=np.int32), len(METRICS))
    metrics = np.tile(np.arange(len(METRICS), dtype=np.int32), len(NODES))
    begin = int(day.timestamp())
    all_times = range(begin, begin + 86400, interval)
    for place in range(0, len(all_times), times_of_table):
        times = np.array(all_times[place : place + times_of_table], np.int64)
        rows = len(times) * series
        columns: dict[str, Any] = {
            "time": pa.array(np.repeat(times * 10**6, series), pa.timestamp("us", tz="UTC")),
            "ns": pa.array(np.zeros(rows, np.int16)),
            "name": _texts(np.tile(metrics, len(times)), METRICS),
            "field": _texts(np.zeros(rows, np.int32), ["value"]),
            "hostname": _texts(np.tile(nodes, len(times)), NODES),
            "type": _texts(np.zeros(rows, np.int32), ["node"]),
            "value": pa.array(np.round(random.normal(200, 20, rows), 1)),
        }
        missing = [pa.nulls(rows, field.type) for field in SCHEMA]
        arrays = [columns.get(f.name, m) for f, m in zip(SCHEMA, missing, strict=True)]
        yield int(times[-1]), pa.table(arrays, schema=SCHEMA)


def _texts(indices: "np.ndarray[Any, Any]", texts: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(texts))


async def make(directory: Path) -> None:
    for number in range(DAYS):
        day = FIRST + timedelta(days=number)
        path = directory / "cluster=fox" / f"date={day:%Y-%m-%d}"
        path.mkdir(parents=True)
        interval = MINUTE if number == JOB_DAY else HOUR
        for last, table in tables(day, interval):
            written = datetime.fromtimestamp(last + 5, UTC)
            name = f"{written:%Y%m%dT%H%M%S.%f}-{last:08x}.parquet"
            write_file(path / name, table, "zstd", {})
    async with ParquetSink(dir=str(directory)) as sink:
        await sink.write(to_lines([message("start_job", JOB), message("stop_job", JOB)]))


async def measure(directory: Path) -> None:
    history = ParquetHistory(directory, averaged=frozenset)
    began, used = time.perf_counter(), time.process_time()
    job = await history.job(RunKey("fox", 77, JOB.start))
    assert job is not None
    found = time.perf_counter()
    query = MetricQuery(
        cluster="fox", nodes=[node.hostname for node in job.nodes], metrics=METRICS[:18],
        start=job.start / SECOND, stop=job.end / SECOND, over_nodes=True,
    )  # fmt: skip
    curves = await history.curves(query)
    drawn = time.perf_counter()
    statistics = await history.statistics(query)
    ended = time.perf_counter()
    assert len(curves.curves) == len(METRICS[:18])
    assert len(statistics) == len(METRICS[:18]) * len(job.nodes)
    print(f"the job's events {found - began:.2f} s")
    print(f"curves of {len(curves.curves)} metrics {drawn - found:.2f} s")
    print(f"statistics {ended - drawn:.2f} s")
    seconds = time.process_time() - used
    print(f"all {ended - began:.2f} s, with {seconds:.2f} s of processor time")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not place.is_dir():
        asyncio.run(make(place))
    asyncio.run(measure(place))
