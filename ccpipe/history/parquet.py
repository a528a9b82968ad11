"""History from the Parquet files of a bridge, read with DuckDB.

Files are chosen by the directory of their day and by the time in their name, and within them row
groups by the statistics of the column ``time``: nothing else of a year of files is opened.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from ccpipe.errors import MissingExtra, UnavailableError, UsageError
from ccpipe.history.grid import (
    FINE,
    MAX_CELLS,
    QUERY_SECONDS,
    StoredSeries,
    base_step,
    check_query,
    check_time,
    curves_of,
    owned_parts,
    statistics_of,
    stored_series,
    wider_query,
    with_intervals,
)
from ccpipe.history.interfaces import (
    LONGEST_JOB,
    MetricCurves,
    MetricQuery,
    MetricStatistics,
    SumCurves,
    SumQuery,
)
from ccpipe.history.job_events import DAY, JoinedJobs, overlapping
from ccpipe.history.sums import (
    COUNTED_SECONDS,
    LEVELS,
    SLOW_SERIES,
    TOTALS,
    SumWindows,
    measured_interval,
    sum_windows,
    summed,
    summed_metrics,
)
from ccpipe.jobs import Job, RunKey
from ccpipe.process.background import background, end_tasks
from ccpipe.sources.stored import is_delta_table

try:
    import duckdb

    from ccpipe.sources.stored.parquet_tables import TRIES, without_replaced
except ImportError:
    raise MissingExtra("duckdb", "dashboard") from None

MAX_FILES = 20_000
MEMORY = "256MB"
INTERRUPT_SECONDS = 0.01
LATE_SECONDS = 600
"""Tolerated lag of the writer's clock in a file's name, relative to its newest row."""
SPANS_AT_ONCE = 8
"""Short times that are read with one query: for each alone, planning takes half of the time."""

Answer = TypeVar("Answer")
Connection = duckdb.DuckDBPyConnection


class StoredRows(NamedTuple):
    """What a statement reads: the text after FROM, and its parameters."""

    table: str
    parameters: Mapping[str, Any]


class SelectedRows(Protocol):
    """The rows of a cluster and of a time, which several statements read."""

    def within(
        self, connection: Connection, spans: Sequence[tuple[float, float]]
    ) -> StoredRows | None:
        """Return what may have rows of some times, or None if nothing has."""


class SelectedFiles:
    """Parquet files."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = files

    def within(
        self,
        connection: Connection,  # noqa: ARG002
        spans: Sequence[tuple[float, float]],
    ) -> StoredRows | None:
        """Choose files by directory and name."""
        files = sorted({path for span in spans for path in _of_time(self.files, *span)})
        return StoredRows(_FILES, {"files": files}) if files else None


_FILES = "read_parquet($files, hive_partitioning = true, hive_types = {'cluster': VARCHAR})"


class ParquetHistory:
    """Reads the Parquet files in a directory, one query at a time."""

    def __init__(self, directory: Path, averaged: Callable[[], frozenset[str]]) -> None:
        """Use `directory`, which may be created later.

        `averaged` returns the metrics that are not summed over parts; it is called in a thread.
        Raises UsageError for a file.
        """
        if directory.exists() and not directory.is_dir():
            raise UsageError(f"history: {directory} is not a directory")
        self.directory = directory
        self._averaged = averaged
        self._one_at_a_time = asyncio.Lock()

    async def curves(self, query: MetricQuery) -> MetricCurves:
        check_query(query)
        return await self._run(partial(self._curves, query))

    async def statistics(self, query: MetricQuery) -> Sequence[MetricStatistics]:
        check_query(query, has_lines=False)
        return await self._run(partial(self._statistics, query))

    async def sums(self, query: SumQuery) -> SumCurves:
        summed_metrics(query)
        selected = await self._run(partial(self._summed, query))

        async def count(names: Sequence[str], start: float, stop: float) -> dict[str, float]:
            given = {"names": names, "start": start, "stop": stop}
            return await self._run(partial(_sample_counts, selected, given))

        windows = sum_windows(query, await measured_interval(query, count))
        rows = await self._run(partial(_totals, selected, query, windows))
        return summed(query, windows, rows)

    async def jobs(self, cluster: str, start: float, stop: float) -> Sequence[Job]:
        check_time(start, stop)
        span = max(0.0, start - LONGEST_JOB), stop + LONGEST_JOB

        def read(connection: Connection) -> list[Job]:
            events = JoinedJobs()
            self._read_events(events, connection, cluster, *span)
            return list(overlapping(events.jobs().values(), start, stop))

        return await self._run(read)

    async def job(self, key: RunKey) -> Job | None:
        return await self._run(partial(self._job, key))

    async def close(self) -> None:
        """Nothing stays open between queries."""

    async def _run(self, work: Callable[[Connection], Answer]) -> Answer:
        """Call `work` in a thread, with a connection; raises UnavailableError if not in time."""
        async with self._one_at_a_time:
            config: dict[str, Any] = {
                "memory_limit": MEMORY, "threads": 1, "autoinstall_known_extensions": False,
            }  # fmt: skip
            connection = duckdb.connect(config=config)
            is_late = threading.Event()

            interrupting = background(_interrupt(connection, is_late), "ccpipe-interrupt")
            try:
                return await asyncio.to_thread(_retried, work, connection, is_late)
            except duckdb.InterruptException:
                raise UnavailableError(
                    f"reading {self.directory} takes more than {QUERY_SECONDS:.0f} s; "
                    "select a shorter time"
                ) from None
            except (duckdb.Error, OSError) as error:
                raise UnavailableError(f"{self.directory}: {str(error)[:300]}") from None
            finally:
                await end_tasks([interrupting])
                connection.close()

    def _curves(self, query: MetricQuery, connection: Connection) -> MetricCurves:
        found = self._series(query, connection)
        if (wider := wider_query(query, found)) is not None:
            found = with_intervals(found, self._series(wider, connection))
        base = base_step(query)
        curves = curves_of(query, base, found)
        is_truncated = sum(len(series.places) for series in found) >= MAX_CELLS
        return MetricCurves(curves.times, curves.step, curves.curves, is_truncated)

    def _series(self, query: MetricQuery, connection: Connection) -> list[StoredSeries]:
        more = {"step": base_step(query), "limit": MAX_CELLS}
        return [
            stored_series(*row)
            for rows in self._values(connection, query, INTERVALS, more)
            for row in rows
        ]

    def _statistics(self, query: MetricQuery, connection: Connection) -> list[MetricStatistics]:
        found = [
            (level, MetricStatistics(*row))
            for rows in self._values(connection, query, STATISTICS, {})
            for level, *row in rows
        ]
        return statistics_of(query, found)

    def _values(
        self, connection: Connection, query: MetricQuery, sql: str, more: Mapping[str, Any]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query on ``{values}``: of whole nodes, then of parts if asked for."""
        selected = self.select(connection, query.cluster, query.start, query.stop)
        if (rows := selected.within(connection, [(query.start, query.stop)])) is None:
            return
        restricted, owned = owned_parts(query)
        averaged = self._averaged()
        parameters = {
            "nodes": list(query.nodes), "start": query.start, "stop": query.stop,
            "restricted": restricted, "owned": owned, **rows.parameters, **more,
        }  # fmt: skip
        if query.metrics:
            parameters["metrics"] = list(query.metrics)
            averaged &= set(query.metrics)
        samples = SAMPLES.format(
            rows=rows.table,
            metrics="AND name IN (SELECT unnest($metrics))" if query.metrics else "",
            owned=OWNED if owned else "",
        )
        if not owned:
            del parameters["restricted"], parameters["owned"]
        values = NODE_VALUES.format(samples=samples)
        given = parameters | {"averaged": sorted(averaged)}
        yield connection.execute(sql.format(values=values), given).fetchall()
        if query.has_parts:
            values = PART_VALUES.format(samples=samples)
            given = parameters | {"fine": list(FINE)}
            yield connection.execute(sql.format(values=values), given).fetchall()

    def _read_events(
        self,
        events: JoinedJobs,
        connection: Connection,
        cluster: str,
        start: float,
        stop: float,
        *,
        text: str = "",
    ) -> None:
        """Add the events from `start` until before `stop` whose payload has a text."""
        selected = self.select(connection, cluster, start, stop)
        if (stored := selected.within(connection, [(start, stop)])) is None:
            return
        given = {**stored.parameters, "start": start, "stop": stop, "text": text}
        answer = connection.execute(EVENTS.format(rows=stored.table), given)
        while rows := answer.fetchmany(1000):
            for function, payload, at in rows:
                events.add(function, payload, cluster, at * 1000)

    def _job(self, key: RunKey, connection: Connection) -> Job | None:
        events = JoinedJobs()
        for span in events.days_of(key):
            self._read_events(events, connection, key.cluster, *span, text=str(key.id))
        return events.jobs().get(key)

    def select(
        self, connection: Connection, cluster: str | None, start: float, stop: float
    ) -> "SelectedRows":
        """Select the rows of a cluster, or of all, and of a time."""
        if is_delta_table(self.directory):
            raise UnavailableError(f"{self.directory} has become a Delta table: open it again")
        files = without_replaced(connection, set(self.files(cluster, start, stop)))
        return SelectedFiles(files)

    def _summed(self, query: SumQuery, connection: Connection) -> "SelectedRows":
        start = query.start - max(COUNTED_SECONDS)
        return self.select(connection, query.cluster, max(0.0, start), query.stop)

    def files(self, cluster: str | None, start: float, stop: float) -> Iterator[str]:
        """Yield the files that may have rows of a time, by directory and name.

        They are of all clusters if `cluster` is None.
        """
        day = datetime.fromtimestamp(start, UTC).date()
        last = datetime.fromtimestamp(max(start, min(stop, time.time() + DAY)), UTC).date()
        count = 0
        while day <= last:
            paths = [str(path) for path in sorted(self._of_day(cluster, day))]
            for path in _of_time(paths, start, stop):
                count += 1
                if count > MAX_FILES:
                    raise UsageError(f"more than {MAX_FILES} files; select a shorter time")
                yield path
            day += timedelta(days=1)

    def _of_day(self, cluster: str | None, day: date) -> list[Path]:
        if cluster is None:
            return list(self.directory.glob(f"cluster=*/date={day}/*.parquet"))
        name = quote(cluster, safe="") or "__HIVE_DEFAULT_PARTITION__"
        if name in (".", ".."):
            return []
        directory = self.directory / f"cluster={name}" / f"date={day}"
        return list(directory.glob("*.parquet"))


def _of_time(files: Sequence[str], start: float, stop: float) -> list[str]:
    """Return the files that may have rows of a time."""
    days = [datetime.fromtimestamp(max(0.0, at), UTC).date() for at in (start, stop)]
    oldest = datetime.fromtimestamp(max(0.0, start - LATE_SECONDS), UTC)
    earliest = oldest.strftime("%Y%m%dT%H%M%S")
    found = []
    for path in files:
        *_, day, name = path.split("/")
        written = re.match(r"[0-9]{8}T[0-9]{6}", name)
        is_early = written is not None and written[0] < earliest
        if not is_early and str(days[0]) <= day.removeprefix("date=") <= str(days[1]):
            found.append(path)
    return found


def _sample_counts(
    selected: SelectedRows, given: Mapping[str, Any], connection: Connection
) -> dict[str, float]:
    """Return how many samples nearly all series of each metric have in a time."""
    if (rows := selected.within(connection, [(given["start"], given["stop"])])) is None:
        return {}
    parameters = {**rows.parameters, "share": SLOW_SERIES, **given}
    text = SAMPLE_COUNTS.format(rows=rows.table)
    return dict(connection.execute(text, parameters).fetchall())


def _totals(
    selected: SelectedRows, query: SumQuery, windows: SumWindows, connection: Connection
) -> list[tuple[int, int, float, float]]:
    connection.execute("SET parquet_metadata_cache = true")  # a file is opened for many windows
    names, numbers, wholes = map(list, zip(*summed_metrics(query), strict=True))
    given = {
        "names": names, "numbers": numbers, "wholes": wholes, "levels": list(LEVELS),
        "begin": windows.begin * 10**6, "step": windows.step * 10**6,
        "width": windows.width * 10**6,
    }  # fmt: skip
    found = []
    spans = list(windows.spans())
    size = 1 if windows.is_whole else SPANS_AT_ONCE
    for place in range(0, len(spans), size):
        some = spans[place : place + size]
        if (rows := selected.within(connection, some)) is not None:
            within = " OR ".join(
                f"(time >= to_timestamp({start}) AND time < to_timestamp({stop}))"
                for start, stop in some
            )
            text = SUMS.replace("$within", f"({within})").replace("$rows", rows.table)
            found += connection.execute(text, {**rows.parameters, **given}).fetchall()
    return found


async def _interrupt(connection: Connection, is_late: threading.Event) -> None:
    """Interrupt a query that takes too long: again, as between two statements there is nothing."""
    await asyncio.sleep(QUERY_SECONDS)
    is_late.set()
    while True:
        connection.interrupt()
        await asyncio.sleep(INTERRUPT_SECONDS)


def _retried(
    work: Callable[[Connection], Answer], connection: Connection, is_late: threading.Event
) -> Answer:
    """Call `work`; again if files were merged and removed meanwhile."""
    for _ in range(TRIES - 1):
        try:
            return work(connection)
        except duckdb.IOException:
            if is_late.is_set():
                break
    return work(connection)


# `time` is compared as it is stored, so that row groups are skipped by their statistics.
SAMPLES = """
    SELECT hostname, name AS metric, value, time, type, type_id, stype, stype_id,
           trim(CASE WHEN coalesce(type, 'node') = 'node' THEN '' ELSE type END || ' ' ||
                coalesce(stype, '')) AS level
    FROM {rows}
    WHERE time >= to_timestamp($start) AND time < to_timestamp($stop)
        AND hostname IN (SELECT unnest($nodes)) AND field = 'value' {metrics} {owned}
"""

OWNED = """
    AND (coalesce(type, '') NOT IN ('hwthread', 'accelerator')
         OR hostname || '/' || type NOT IN (SELECT unnest($restricted))
         OR hostname || '/' || type || '/' || coalesce(type_id, '') IN (SELECT unnest($owned)))
"""

NODE_VALUES = """
    SELECT hostname, metric, level, '' AS part, epoch_us(time) / 1e6 - $start AS seconds, value,
           level <> '' AND metric NOT IN (SELECT unnest($averaged)) AS is_summed
    FROM ({samples})
"""

PART_VALUES = """
    SELECT hostname, metric, level, epoch_us(time) / 1e6 - $start AS seconds, value,
           false AS is_summed,
           trim(CASE WHEN coalesce(type, 'node') = 'node' THEN ''
                     ELSE type || ' ' || coalesce(type_id, '') END || ' ' ||
                CASE WHEN stype IS NULL THEN '' ELSE stype || ' ' || coalesce(stype_id, '') END)
               AS part
    FROM ({samples}) WHERE level <> '' AND coalesce(type, '') NOT IN (SELECT unnest($fine))
"""

# The mean of a node's sums is the sum of all values by the number of times: values are not grouped
# by time first, which would take the memory of all of them.
INTERVALS = """
    SELECT hostname, metric, level, part, list(bucket), list(mean), list(n), list(t)
    FROM (
        SELECT hostname, metric, level, part, CAST(floor(seconds / $step) AS BIGINT) AS bucket,
               count(DISTINCT CASE WHEN level <> '' THEN seconds END) AS times,
               CASE WHEN bool_or(is_summed) THEN sum(value) / times ELSE avg(value) END AS mean,
               CASE WHEN level = '' THEN count(*) ELSE times END AS n, avg(seconds) AS t
        FROM ({values}) GROUP BY hostname, metric, level, part, bucket LIMIT $limit
    ) GROUP BY ALL ORDER BY hostname, metric, level, part
"""

STATISTICS = """
    SELECT level, hostname, metric, part, count(*), min(v), avg(v), max(v)
    FROM (
        SELECT hostname, metric, level, part,
               CASE WHEN bool_or(is_summed) THEN sum(value) ELSE avg(value) END AS v
        FROM ({values}) GROUP BY hostname, metric, level, part, seconds
    ) GROUP BY ALL ORDER BY ALL
"""

EVENTS = """
    SELECT tags['function'], text, epoch_us(time)
    FROM {rows}
    WHERE time >= to_timestamp($start) AND time < to_timestamp($stop)
        AND field = 'event' AND name = 'job' AND contains(text, $text)
"""

SAMPLE_COUNTS = """
    SELECT name, quantile_cont(n, $share)
    FROM (
        SELECT name, count(*) AS n FROM {rows}
        WHERE time >= to_timestamp($start) AND time < to_timestamp($stop)
            AND list_contains($names, name) AND field = 'value'
        GROUP BY name, cluster, hostname, type, type_id, stype, stype_id
    ) GROUP BY name
"""

SUMS = TOTALS.format(
    means="""
        SELECT $numbers[metric] AS number, bucket, node, metric, $wholes[metric] AS is_whole,
               level, mean, latest
        FROM (
            SELECT (epoch_us(time) - $begin) // $step AS bucket, cluster || '/' || hostname AS node,
                   list_position($names, name) AS metric,
                   list_position($levels, coalesce(type, 'node')) AS level, type_id,
                   avg(value) AS mean, epoch_us(max(time)) / 1e6 AS latest
            FROM $rows
            WHERE $within AND (epoch_us(time) - $begin) % $step < $width
                AND list_contains($names, name) AND field = 'value' AND hostname IS NOT NULL
                AND stype IS NULL AND list_contains($levels, coalesce(type, 'node'))
            GROUP BY ALL
        )
    """
)
