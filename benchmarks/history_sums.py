"""A week of 1000 nodes in Parquet files: how long the sums of the dashboard's first page take.

``python -m benchmarks.history_sums DIR`` makes the files first if DIR is missing: 20 metrics of
each node, once a minute, in files as large as a bridge merges them to; 450 MB in two minutes.
"""

import asyncio
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.history_year import FIRST, METRICS, MINUTE, tables
from ccpipe.history.interfaces import NodeSum, SumQuery
from ccpipe.history.parquet import ParquetHistory
from ccpipe.sinks.parquet.files import write_groups

DAYS = 7
ROW_GROUPS = (146, *[5] * 12)
"""Of the files of a day; each has seven minutes."""
SPANS = {"1 hour": 3600, "6 hours": 21600, "1 day": 86400, "1 week": 7 * 86400}


def make(directory: Path) -> None:
    for number in range(DAYS):
        day = FIRST + timedelta(days=number)
        path = directory / "cluster=fox" / f"date={day:%Y-%m-%d}"
        path.mkdir(parents=True)
        groups = list(tables(day, MINUTE))
        found = iter(groups)
        for size in ROW_GROUPS:
            of_file = list(islice(found, size))
            written = datetime.fromtimestamp(of_file[-1][0] + 5, UTC)
            name = f"{written:%Y%m%dT%H%M%S.%f}-{size:08x}.parquet"
            write_groups(path / name, (table for _, table in of_file), "zstd", {})


async def measure(directory: Path) -> None:
    history = ParquetHistory(directory, averaged=frozenset)
    stop = (FIRST + timedelta(days=DAYS)).timestamp()
    sums = [NodeSum(METRICS[:4], whole="platform_power"), NodeSum(METRICS[4:5])]
    for name, seconds in SPANS.items():
        began, used = time.perf_counter(), time.process_time()
        query = SumQuery(cluster="fox", start=stop - seconds, stop=stop, sums=sums)
        found = await history.sums(query)
        for values, count in zip(found.values, (4, 1), strict=True):
            known = values[~np.isnan(values)]
            assert len(known) >= len(values) - 1
            assert abs(known - 200_000 * count).max() < 2000 * count
        passed, computed = time.perf_counter() - began, time.process_time() - used
        print(
            f"{name}: {len(found.times)} times, {passed:.2f} s, with {computed:.2f} s of "
            "processor time"
        )
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not place.is_dir():
        make(place)
    asyncio.run(measure(place))
