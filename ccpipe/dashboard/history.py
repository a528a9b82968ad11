"""History from the Parquet files of a bridge, read with DuckDB."""

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from ccpipe.errors import MissingExtra, UnavailableError, UsageError

MAX_POINTS = 400
"""Points per series: the requested time is divided into so many intervals."""
MAX_ROWS = 400_000
MAX_NODES = 64
MAX_FILES = 20_000
MAX_DAYS = 366
QUERY_SECONDS = 30.0
MEMORY = "256MB"
LATE_SECONDS = 600
"""Tolerated lag of the writer's clock in a file's name, relative to its newest row."""

FINE = ("hwthread", "core")
"""Values of the tag ``type`` that are averaged or summed by the reader rather than shown."""


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A time range, and the nodes and metrics to read; times are seconds since the epoch."""

    cluster: str
    nodes: list[str]
    start: float
    stop: float
    metrics: list[str] | None = None
    """All if missing."""


class SeriesHistory(msgspec.Struct):
    """Series with times and values of equal length; times are starts of intervals."""

    step: float
    """Seconds from one interval to the next."""
    series: list[tuple[str, str, str, list[float], list[float]]]
    """Hostname, metric, part (empty for the node), times, means."""
    cut: bool = False
    """Whether there were more than `MAX_ROWS`."""


class ParquetHistory:
    """Reads the Parquet files in a directory."""

    def __init__(self, directory: Path) -> None:
        """Use `directory`, which may be created later."""
        try:
            import duckdb
        except ImportError:
            raise MissingExtra("duckdb", "dashboard") from None
        if directory.exists() and not directory.is_dir():
            raise UsageError(f"--parquet-dir: {directory} is not a directory")
        self._duckdb = duckdb
        self.directory = directory
        self._one_at_a_time = asyncio.Lock()

    async def read(self, query: HistoryQuery) -> SeriesHistory:
        """Return the means of intervals; raises UsageError, or UnavailableError if not in time."""
        if not 0 < query.stop - query.start <= MAX_DAYS * 86400 or query.start < 0:
            raise UsageError(f"a time range is more than 0 s and at most {MAX_DAYS} days")
        if not 0 < len(query.nodes) <= MAX_NODES:
            raise UsageError(f"from 1 to {MAX_NODES} nodes at once")
        async with self._one_at_a_time:
            connection = self._duckdb.connect(
                config={"memory_limit": MEMORY, "threads": 1, "autoinstall_known_extensions": False}
            )
            timer = asyncio.get_running_loop().call_later(QUERY_SECONDS, connection.interrupt)
            try:
                return await asyncio.to_thread(self._query, connection, query)
            except self._duckdb.InterruptException:
                raise UnavailableError(
                    f"reading {self.directory} takes more than {QUERY_SECONDS:.0f} s; "
                    "select a shorter time"
                ) from None
            except (self._duckdb.Error, OSError) as error:
                raise UnavailableError(f"{self.directory}: {str(error)[:300]}") from None
            finally:
                timer.cancel()
                connection.close()

    def _query(self, connection: Any, query: HistoryQuery) -> SeriesHistory:
        step = max(1.0, round((query.stop - query.start) / MAX_POINTS))
        files = list(self.files(query))
        if not files:
            return SeriesHistory(step, [])
        chosen = "AND name IN (SELECT unnest($metrics))" if query.metrics else ""
        parameters: dict[str, Any] = {
            "files": files,
            "nodes": query.nodes,
            "fine": list(FINE),
            "start": int(query.start * 1e6),
            "stop": int(query.stop * 1e6),
            "step": int(step * 1e6),
            "limit": MAX_ROWS + 1,
        }
        if query.metrics:
            parameters["metrics"] = query.metrics
        rows = connection.execute(QUERY.format(chosen=chosen), parameters).fetchall()
        return SeriesHistory(step, list(_series(rows[:MAX_ROWS])), cut=len(rows) > MAX_ROWS)

    def files(self, query: HistoryQuery) -> Iterator[str]:
        """Yield the files that may contain rows of a query, by directory and name."""
        day = datetime.fromtimestamp(query.start, UTC).date()
        last = datetime.fromtimestamp(min(query.stop, time.time() + 86400), UTC).date()
        oldest = datetime.fromtimestamp(max(0.0, query.start - LATE_SECONDS), UTC)
        earliest = oldest.strftime("%Y%m%dT%H%M%S")
        count = 0
        while day <= last:
            for path in sorted(self._of_day(query.cluster, day)):
                written = re.match(r"[0-9]{8}T[0-9]{6}", path.name)
                if written and written[0] < earliest:
                    continue
                count += 1
                if count > MAX_FILES:
                    return
                yield str(path)
            day += timedelta(days=1)

    def _of_day(self, cluster: str, day: date) -> list[Path]:
        name = quote(cluster, safe="") or "__HIVE_DEFAULT_PARTITION__"
        if name in (".", ".."):
            return []
        directory = self.directory / f"cluster={name}" / f"date={day}"
        return [path for path in directory.glob("*.parquet") if path.is_file()]


QUERY = """
SELECT hostname, name, part, bucket, avg(value) FROM (
    SELECT hostname, name, value,
        CASE WHEN coalesce(type, 'node') = 'node' THEN '' ELSE type || ' ' ||
            coalesce(type_id, '') END AS device,
        CASE WHEN stype IS NULL THEN '' ELSE stype || ' ' || coalesce(stype_id, '') END AS below,
        trim(device || ' ' || below) AS part,
        (epoch_us(CAST(time AS TIMESTAMPTZ)) - $start) // $step AS bucket
    FROM read_parquet($files, union_by_name = true)
    WHERE field = 'value' AND hostname IN (SELECT unnest($nodes))
        AND coalesce(type, 'node') NOT IN (SELECT unnest($fine)) {chosen}
        AND epoch_us(CAST(time AS TIMESTAMPTZ)) BETWEEN $start AND $stop
)
GROUP BY ALL ORDER BY hostname, name, part, bucket LIMIT $limit
"""


def _series(
    rows: Sequence[tuple[str, str, str, int, float]],
) -> Iterator[tuple[str, str, str, list[float], list[float]]]:
    """Yield the series of sorted rows; times are numbers of intervals."""
    for (hostname, name, part), found in groupby(rows, itemgetter(0, 1, 2)):
        points = list(found)
        yield hostname, name, part, [each[3] for each in points], [each[4] for each in points]
