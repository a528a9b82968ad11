"""History from the tables of the PostgreSQL sink, without changing anything in the database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ccpipe.config import read_secret
from ccpipe.errors import CcpipeError, MissingExtra, TimedOutError
from ccpipe.formats.clustercockpit import level_name, part_name
from ccpipe.history.grid import (
    FINE,
    MAX_CELLS,
    OWN,
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
from ccpipe.history.job_events import JoinedJobs, overlapping
from ccpipe.history.sums import (
    LEVELS,
    SLOW_SERIES,
    TOTALS,
    measured_interval,
    sum_windows,
    summed,
    summed_metrics,
)
from ccpipe.jobs import Job, RunKey

try:
    import asyncpg

    from ccpipe.sinks.postgres.store import FAILURES, explained, place_of
except ImportError:
    raise MissingExtra("asyncpg", "postgres") from None

_NO_SUCH = ("3D000", "3F000", "42P01")
"""Error states: no such database, schema or table."""


class _Group(NamedTuple):
    """Series that are added up, or one that is shown."""

    hostname: str
    metric: str
    level: str
    part: str


class PostgresHistory:
    """Reads a database over one connection, one query at a time."""

    def __init__(
        self,
        url: str,
        averaged: Callable[[], frozenset[str]],
        *,
        user: str = "",
        password_file: str = "",
    ) -> None:
        """Prepare; nothing is connected yet. Raises ConfigError for an invalid address.

        `averaged` returns the metrics that are not summed over parts; it is called in a thread.
        """
        self.place = place_of(url, "history")
        self._url, self._user, self._password_file = url, user, password_file
        self._averaged = averaged
        self._connection: Any = None
        self._one_at_a_time = asyncio.Lock()

    async def curves(self, query: MetricQuery) -> MetricCurves:
        check_query(query)
        base = base_step(query)
        async with self._transaction() as connection:
            found = await self._series(connection, query)
            if (wider := wider_query(query, found)) is not None:
                found = with_intervals(found, await self._series(connection, wider))
        curves = curves_of(query, base, found)
        is_truncated = sum(len(series.places) for series in found) >= MAX_CELLS
        return MetricCurves(curves.times, curves.step, curves.curves, is_truncated)

    async def statistics(self, query: MetricQuery) -> Sequence[MetricStatistics]:
        check_query(query, has_lines=False)
        async with self._transaction() as connection:
            groups, wanted = await self._groups(connection, query)
            rows = await connection.fetch(STATISTICS, *wanted, *_span(query))
        found = []
        for number, *numbers in rows:
            group = groups[number]
            row = MetricStatistics(group.hostname, group.metric, group.part, *numbers)
            found.append((group.level, row))
        return statistics_of(query, found)

    async def sums(self, query: SumQuery) -> SumCurves:
        names, numbers, wholes = map(list, zip(*summed_metrics(query), strict=True))
        async with self._transaction() as connection:
            given = names, list(LEVELS), query.cluster
            series = await connection.fetch(SUMMED_SERIES, *given)
            columns: list[list[int]] = list(map(list, zip(*series, strict=True))) or [[]] * 4

            async def count(names: Sequence[str], start: float, stop: float) -> dict[str, float]:
                given = *columns[:2], _time(start), _time(stop), SLOW_SERIES
                rows = await connection.fetch(SAMPLE_COUNTS, *given)
                return {places[place]: number for place, number in rows if places[place] in names}

            places = dict(enumerate(names, 1))
            windows = sum_windows(query, await measured_interval(query, count))
            rows: list[tuple[int, int, float, float]] = []
            for start, stop in windows.spans():
                span = _time(start), _time(stop), windows.begin, windows.step
                rows += await connection.fetch(SUMS, *columns, *span, numbers, wholes)
        return summed(query, windows, rows)

    async def _series(self, connection: Any, query: MetricQuery) -> list[StoredSeries]:
        groups, wanted = await self._groups(connection, query)
        step = base_step(query)
        rows = await connection.fetch(INTERVALS, *wanted, *_span(query), step, MAX_CELLS)
        return [stored_series(*groups[number], *columns) for number, *columns in rows]

    async def jobs(self, cluster: str, start: float, stop: float) -> Sequence[Job]:
        check_time(start, stop)
        events = JoinedJobs()
        async with self._transaction() as connection:
            span = max(0.0, start - LONGEST_JOB), stop + LONGEST_JOB
            await self._read_events(events, connection, cluster, *span)
        return list(overlapping(events.jobs().values(), start, stop))

    async def job(self, key: RunKey) -> Job | None:
        events = JoinedJobs()
        async with self._transaction() as connection:
            for span in events.days_of(key):
                await self._read_events(events, connection, key.cluster, *span, text=str(key.id))
        return events.jobs().get(key)

    async def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(*FAILURES):
                await self._connection.close(timeout=1)
        self._connection = None

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        """Yield a connection in a read-only transaction; it is kept open unless an error occurs."""
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(QUERY_SECONDS):
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await self._connect()
                    async with self._connection.transaction(readonly=True):
                        yield self._connection
            except FAILURES as error:
                self._drop()
                raise self._reported(error) from None
            except asyncio.CancelledError:
                self._drop()
                raise

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None

    async def _connect(self) -> Any:
        password = None
        if self._password_file:
            password = read_secret("history.password_file", self._password_file)
        return await asyncpg.connect(
            self._url,
            user=self._user or None,
            password=password,
            server_settings={
                "application_name": "ccpipe history",
                "statement_timeout": f"{QUERY_SECONDS * 1000:.0f}",
            },
        )

    def _reported(self, error: Exception) -> CcpipeError:
        if isinstance(error, TimeoutError | asyncpg.QueryCanceledError):
            return TimedOutError(
                f"{self.place} takes more than {QUERY_SECONDS:.0f} s; select a shorter time"
            )
        return explained(error, self.place, "history", _NO_SUCH)

    async def _groups(
        self, connection: Any, query: MetricQuery
    ) -> tuple[list[_Group], tuple[list[int], list[int], list[bool]]]:
        """Return the groups, and for each series of them its id, its group, and if it is averaged.

        A series whose part is shown is in two groups.
        """
        averaged = await asyncio.to_thread(self._averaged)
        names = list(query.metrics) or None
        rows = await connection.fetch(SERIES, query.cluster, list(query.nodes), names)
        restricted, owned = map(set, owned_parts(query))
        numbers: dict[_Group, int] = {}
        wanted: tuple[list[int], list[int], list[bool]] = ([], [], [])
        for row in rows:
            kind, stype, host, metric = row["type"], row["stype"], row["hostname"], row["name"]
            of_kind = f"{host}/{kind}"
            if of_kind in restricted and f"{of_kind}/{row['type_id'] or ''}" not in owned:
                continue
            level = level_name(kind, stype)
            of_row = [_Group(host, metric, level, "")]
            if query.has_parts and level != OWN and kind not in FINE:
                of_row.append(
                    _Group(
                        host,
                        metric,
                        level,
                        part_name(kind, row["type_id"] or "", stype, row["stype_id"] or ""),
                    )
                )
            for group in of_row:
                is_averaged = level == OWN or metric in averaged
                entry = row["id"], numbers.setdefault(group, len(numbers)), is_averaged
                for column, cell in zip(wanted, entry, strict=True):
                    column.append(cell)  # type: ignore[attr-defined]
        return list(numbers), wanted

    async def _read_events(
        self,
        events: JoinedJobs,
        connection: Any,
        cluster: str,
        start: float,
        stop: float,
        *,
        text: str = "",
    ) -> None:
        """Add the events from `start` until before `stop` whose payload has a text."""
        span = _time(start), _time(stop)
        async for function, payload, at in connection.cursor(EVENTS, cluster, text, *span):
            events.add(function or "", payload, cluster, int(at) * 1000)


def _span(query: MetricQuery) -> tuple[datetime, datetime, float]:
    return _time(query.start), _time(query.stop), query.start


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


SERIES = """
    SELECT id, hostname, name, CASE WHEN type = 'node' THEN '' ELSE coalesce(type, '') END AS type,
           type_id, coalesce(stype, '') AS stype, stype_id
    FROM series
    WHERE field = 'value' AND coalesce(cluster, '') = $1 AND hostname = ANY($2::text[])
        AND ($3::text[] IS NULL OR name = ANY($3::text[]))
    ORDER BY id
"""

_VALUES = """
    SELECT wanted.number, extract(epoch FROM time)::float8 - $6::float8 AS seconds,
           CASE WHEN is_averaged THEN avg(value) ELSE sum(value) END AS value
    FROM samples
    JOIN unnest($1::int[], $2::int[], $3::bool[]) AS wanted (id, number, is_averaged)
        ON wanted.id = samples.series
    WHERE time >= $4 AND time < $5 AND value IS NOT NULL
    GROUP BY wanted.number, is_averaged, time
"""

INTERVALS = f"""
    SELECT number, array_agg(bucket ORDER BY bucket), array_agg(mean ORDER BY bucket),
           array_agg(n::float8 ORDER BY bucket), array_agg(t ORDER BY bucket)
    FROM (
        SELECT number, floor(seconds / $7)::bigint AS bucket, avg(value) AS mean, count(*) AS n,
               avg(seconds) AS t
        FROM ({_VALUES}) AS node_values GROUP BY 1, 2 LIMIT $8
    ) AS intervals GROUP BY number ORDER BY number
"""  # noqa: S608 - a constant

STATISTICS = f"""
    SELECT number, count(*), min(value), avg(value), max(value)
    FROM ({_VALUES}) AS node_values GROUP BY number ORDER BY number
"""  # noqa: S608 - a constant

EVENTS = """
    SELECT tags->>'function', text, extract(epoch FROM time) * 1000000
    FROM messages
    WHERE name = 'job' AND field = 'event' AND coalesce(cluster, '') = $1
        AND strpos(text, $2) > 0 AND time >= $3 AND time < $4
"""

SUMMED_SERIES = """
    SELECT id, array_position($1::text[], name), array_position($2::text[], coalesce(type, 'node')),
           dense_rank() OVER (ORDER BY cluster, hostname)::int
    FROM series
    WHERE field = 'value' AND name = ANY($1::text[]) AND hostname IS NOT NULL
        AND coalesce(stype, '') = '' AND coalesce(type, 'node') = ANY($2::text[])
        AND ($3::text IS NULL OR coalesce(cluster, '') = $3)
"""

SAMPLE_COUNTS = """
    SELECT metric, percentile_cont($5::float8) WITHIN GROUP (ORDER BY n)
    FROM (
        SELECT metric, count(*) AS n
        FROM samples JOIN unnest($1::int[], $2::int[]) AS wanted (id, metric) ON id = series
        WHERE time >= $3 AND time < $4 AND value IS NOT NULL GROUP BY metric, series
    ) AS counts GROUP BY metric
"""

# The series come as arrays: of the table the planner expects one row, and would look for the
# samples of each series.
SUMS = TOTALS.format(
    means="""
        SELECT ($9::int[])[metric] AS number, ($10::bool[])[metric] AS is_whole,
               bucket, node, metric, level, mean, latest
        FROM (
            SELECT floor((extract(epoch FROM time) - $7::int) / $8::int)::int AS bucket,
                   node, metric, level, avg(value) AS mean,
                   extract(epoch FROM max(time))::float8 AS latest
            FROM samples JOIN unnest($1::int[], $2::int[], $3::int[], $4::int[])
                AS wanted (id, metric, level, node) ON id = series
            WHERE time >= $5 AND time < $6 AND value IS NOT NULL
            GROUP BY bucket, node, metric, level, series
        ) AS series_means
    """
)
