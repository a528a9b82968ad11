"""Sums and further measures of finished jobs; for Grid Engine, sums equal qacct(1) exactly.

Records are added in the order of the files, like in qacct: another order changes the last digits of
a double, and occasionally a printed decimal. Measures are columns, too, and sketches of their
distribution. ``SchedulerColumns`` describes a scheduler's records.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ccpipe.errors import MissingExtra

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

OUTCOME = "outcome"
"""The column computed by ``measure`` with how a run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerColumns:
    """How tables of a scheduler's records are grouped, summed and measured."""

    keys: Mapping[str, str]
    """By name of a key to group by: its column; ``OUTCOME`` for how the run ended."""
    sums: Mapping[str, str]
    """By title of a sum: the column that is summed."""
    cpu: str
    """The title of the sum of CPU time, in seconds."""
    fields: tuple[str, ...]
    job_columns: Callable[[Any], dict[str, Any]]
    """Converts a table to the columns that ``measure`` takes."""
    good: frozenset[str]
    """Outcomes of runs that did not fail."""


MEASURES = ("wait", "wallclock", "memory")
"""Measures with percentiles: seconds waiting and running, peak memory in bytes."""

ACCURACY = 0.005
"""Largest relative error of a percentile."""

_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_ZERO_BUCKET = -(2**31)
"""The bucket of values up to 0."""


def _float(number: float) -> Any:
    return pa.scalar(number, pa.float64())


_NOTHING, _UNIT, _SECOND, _MAX = map(_float, (0.0, 1.0, 1e9, 1e300))
_NO_BUCKET = pa.scalar(_ZERO_BUCKET, pa.int64())
_UNKNOWN = pa.scalar(None, pa.float64())


def each(columns: Sequence[Any], function: Callable[..., Any], kind: pa.DataType) -> Any:
    """Apply a function to the values of each row, calling it once for equal rows."""
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


def measure(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns with the contribution of each record to each sum.

    Takes ``is_master``, ``is_run``, ``slots``, ``submission_time`` and ``start_time`` (ns),
    ``wallclock`` (s), ``memory`` and ``requested_memory`` (bytes, of all slots together),
    ``outcome``, ``ends_job``. Wait, slots and requests of a task of a parallel job are not counted,
    as they are its job's.
    """
    is_master, memory = columns["is_master"], columns["memory"]
    slots = pc.cast(columns["slots"], pa.float64())
    wait = pc.subtract(columns["start_time"], columns["submission_time"])
    wait = pc.cast(wait, pa.float64(), safe=False)  # rounded beyond 2**53
    wait = pc.divide(pc.if_else(pc.less(wait, _NOTHING), _NOTHING, wait), _SECOND)
    wait = pc.if_else(is_master, wait, _UNKNOWN)
    requested = columns["requested_memory"]
    has_request = pc.and_(is_master, pc.is_valid(requested))
    slot_seconds = pc.multiply(columns["wallclock"], slots)
    return {
        "wait": wait,
        "wallclock": columns["wallclock"],
        "memory": memory,
        "is_run": columns["is_run"],
        "slot_seconds": pc.if_else(is_master, slot_seconds, _NOTHING),
        "waited": wait,
        "started": pc.cast(pc.is_valid(wait), pa.int64()),
        "requested": pc.if_else(has_request, requested, _NOTHING),
        "used": pc.if_else(has_request, memory, _NOTHING),
        "requests": pc.cast(has_request, pa.int64()),
        "outcome": columns["outcome"],
        "ends_job": columns["ends_job"],
    }


_QUARTER = 15 * 60
"""Seconds; in every time zone, days start at a multiple of it."""
_QUARTER_NS = pa.scalar(_QUARTER * 10**9, pa.int64())


def period(times: Any, form: str) -> Any:
    """Return the day or month of times in nanoseconds, in local time; null stays null."""

    def name(quarter: int | None) -> str | None:
        if quarter is None:
            return None
        return datetime.fromtimestamp(quarter * _QUARTER).strftime(form)  # noqa: DTZ006

    return each([pc.divide(times, _QUARTER_NS)], name, pa.string())


def buckets(values: Any) -> Any:
    """Return the bucket of each value; values of one bucket are nearly equal.

    The bounds of a bucket are ``ACCURACY`` from its middle (DDSketch, VLDB 2019).
    """
    is_positive = pc.greater(values, _NOTHING)
    bounded = pc.if_else(pc.less(values, _MAX), values, _MAX)
    logarithm = pc.divide(pc.ln(pc.if_else(is_positive, bounded, _UNIT)), _LOG_GAMMA)
    return pc.if_else(is_positive, pc.cast(pc.ceil(logarithm), pa.int64()), _NO_BUCKET)


_LOG_GAMMA = _float(math.log(_GAMMA))


def percentile(counts: Counter[int], percentage: float) -> float:
    """Return the percentile of the counted values, by nearest rank."""
    wanted = percentage / 100 * counts.total()
    so_far = 0
    for bucket in sorted(counts):
        so_far += counts[bucket]
        if so_far >= wanted:
            break
    return 0.0 if bucket == _ZERO_BUCKET else 2 * _GAMMA**bucket / (_GAMMA + 1)


_BATCH = 2**16
"""Rows added at once: a compromise between time and memory."""

_PERIODS = {"day": "%Y-%m-%d", "month": "%Y-%m"}
NONE = "NONE"
"""qacct's name for "no project" and "no parallel environment"."""
_ONE, _ALL, _NONE = pa.scalar(1, pa.int64()), pa.scalar("", pa.string()), pa.scalar(NONE)
_BEYOND = ("slot_seconds", "waited", "started", "requested", "used", "requests")
"""Columns of ``measure`` that are summed."""


@dataclass(slots=True, kw_only=True)
class GroupTotal:
    """The sums of one group of records.

    A *run* is one attempt at a job or array task; PE tasks are not runs. A *job* is counted with
    its last run, so that repeated attempts count once.
    """

    key: dict[str, str | int]
    """The common values of its records, by the scheduler's names of keys."""
    sums: dict[str, float]
    cpu: float = 0.0
    records: int = 0
    runs: int = 0
    jobs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of runs by outcome: Grid Engine's ``Outcome``, Slurm's state."""
    failed: int = 0
    """Runs that neither completed nor were requeued."""
    slot_seconds: float = 0.0
    """Wall-clock time times slots, of the runs."""
    waited: float = 0.0
    """Seconds between submission and start, of all runs that started."""
    started: int = 0
    requested: float = 0.0
    """Bytes of memory requested, in the runs with a request."""
    used: float = 0.0
    """Peak bytes of the same runs."""
    requests: int = 0
    percentiles: dict[str, dict[float, float | None]] = field(default_factory=dict)
    """By measure and percentage; None if no run has the measure."""

    @property
    def efficiency(self) -> float | None:
        """CPU time over slots times wall-clock time; None if nothing ran."""
        return self.cpu / self.slot_seconds if self.slot_seconds else None

    @property
    def wait(self) -> float | None:
        return self.waited / self.started if self.started else None

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.runs if self.runs else None

    @property
    def slot_hours(self) -> float:
        return self.slot_seconds / 3600

    @property
    def mean_requested(self) -> float | None:
        """Mean bytes of memory requested, in the runs with a request."""
        return self.requested / self.requests if self.requests else None

    @property
    def mean_used(self) -> float | None:
        """Mean peak bytes of the same runs."""
        return self.used / self.requests if self.requests else None

    @property
    def memory_share(self) -> float | None:
        return self.used / self.requested if self.requested else None


class Sums:
    """Sums tables of records; memory grows only with the number of groups."""

    def __init__(
        self,
        by: Sequence[str] = (),
        *,
        scheduler: SchedulerColumns,
        only_qacct: bool = False,
        percentages: Sequence[float] = (),
    ) -> None:
        """Group by these keys of the scheduler; `only_qacct` computes only the scheduler's sums."""
        self.by = tuple(by)
        self.scheduler = scheduler
        self.percentages = tuple(percentages)
        self._is_short = only_qacct and "outcome" not in by
        self._pending: list[pa.Table] = []
        self._hosts: dict[str, str] = {}
        keys = self.by or ("all",)
        self._sums = _KeyedSums(
            keys, (*scheduler.sums, "records", *(() if self._is_short else _BEYOND))
        )
        self._ends = _KeyedSums((*dict.fromkeys((*keys, OUTCOME)), "ends_job"), ("records",))
        self._buckets = {name: _KeyedSums((*keys, "bucket"), ("records",)) for name in MEASURES}

    @property
    def columns(self) -> tuple[str, ...]:
        known = self.scheduler
        keys = (known.keys[name] for name in self.by if known.keys[name] != OUTCOME)
        fields = () if self._is_short else known.fields
        return tuple(dict.fromkeys((*keys, *known.sums.values(), *fields)))

    def add(self, table: pa.Table) -> None:
        self._pending.append(table.select(self.columns))
        if sum(part.num_rows for part in self._pending) >= _BATCH:
            self._add_pending()

    def _add_pending(self) -> None:
        table = pa.concat_tables(self._pending).combine_chunks() if self._pending else None
        self._pending = []
        if not table:
            return
        columns = {title: table[name] for title, name in self.scheduler.sums.items()}
        columns["records"] = pa.repeat(_ONE, table.num_rows)
        columns["all"] = pa.repeat(_ALL, table.num_rows)
        if not self._is_short:
            columns |= measure(self.scheduler.job_columns(table))
        for name in self.by:
            is_outcome = self.scheduler.keys[name] == OUTCOME
            columns[name] = columns[OUTCOME] if is_outcome else self._key(table, name)
        self._sums.add(columns)
        if not self._is_short:
            self._add_runs(columns)

    def _key(self, table: pa.Table, name: str) -> Any:
        """Return the column to group by, with the values to display."""
        column = table[self.scheduler.keys[name]]
        if name in _PERIODS:
            column = period(column, _PERIODS[name])
        if name == "node":  # the first spelling is displayed, like in qacct
            return each(
                [column], lambda host: self._hosts.setdefault(host.lower(), host), pa.string()
            )
        return pc.fill_null(column, _NONE) if pa.types.is_string(column.type) else column

    def _add_runs(self, columns: dict[str, Any]) -> None:
        needed = {*self._ends.keys, *self._sums.keys, "records", *MEASURES}
        runs = pa.table({name: columns[name] for name in needed}).filter(columns["is_run"])
        self._ends.add({name: runs[name] for name in runs.column_names})
        for name in MEASURES if self.percentages else ():
            valid = runs.filter(pc.is_valid(runs[name]))
            found = {key: valid[key] for key in (*self._sums.keys, "records")}
            self._buckets[name].add({**found, "bucket": buckets(valid[name])})

    def totals(self) -> list[GroupTotal]:
        """Return the groups, sorted by their keys."""
        self._add_pending()
        found: dict[tuple[Any, ...], GroupTotal] = {}
        for row in self._sums.rows():
            key = tuple(row.pop(name) for name in self._sums.keys)
            sums = {title: row.pop(title) or 0.0 for title in self.scheduler.sums}
            named = dict(zip(self.by, key, strict=False))
            numbers: dict[str, Any] = {name: value or 0 for name, value in row.items()}
            found[key] = GroupTotal(key=named, sums=sums, cpu=sums[self.scheduler.cpu], **numbers)
            for measured in MEASURES if self.percentages else ():
                found[key].percentiles[measured] = dict.fromkeys(self.percentages)
        for row in self._ends.rows():
            total = found[tuple(row[name] for name in self._sums.keys)]
            total.runs += row["records"]
            total.jobs += row["records"] * row["ends_job"]
            total.outcomes[row[OUTCOME]] += row["records"]
            total.failed += row["records"] * (row[OUTCOME] not in self.scheduler.good)
        for name, fold in self._buckets.items():
            counts: dict[tuple[Any, ...], Counter[int]] = {}
            for row in fold.rows():
                key = tuple(row[k] for k in self._sums.keys)
                counts.setdefault(key, Counter())[row["bucket"]] += row["records"]
            for key, counter in counts.items():
                values = {share: percentile(counter, share) for share in self.percentages}
                found[key].percentiles[name].update(values)
        return [found[key] for key in sorted(found)]


class _KeyedSums:
    """Sums by key, continued from one table to the next."""

    def __init__(self, keys: Sequence[str], numbers: Sequence[str]) -> None:
        self.keys = tuple(keys)
        self.numbers = tuple(numbers)
        self._state: pa.Table | None = None

    def add(self, columns: dict[str, Any]) -> None:
        names = [*self.keys, *self.numbers]
        table = pa.table({name: columns[name] for name in names})
        if self._state is not None:
            table = pa.concat_tables([self._state, table])
        summed = table.group_by(list(self.keys), use_threads=False).aggregate(
            [(name, "sum") for name in self.numbers]
        )
        chosen = [*self.keys, *(f"{name}_sum" for name in self.numbers)]
        self._state = summed.select(chosen).rename_columns(names)

    def rows(self) -> Iterator[dict[str, Any]]:
        return iter(self._state.to_pylist() if self._state is not None else ())
