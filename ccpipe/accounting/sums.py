"""Sums of accounting records: for Grid Engine those of qacct(1) to the last digit, and more.

Records are added one by one in the order of the files, as qacct does: another order changes the
last digits of a double, and with it now and then a printed decimal.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccpipe.accounting import measures
from ccpipe.accounting.gridengine import GRID_ENGINE
from ccpipe.accounting.selection import NONE
from ccpipe.errors import MissingExtra

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

_BATCH = 2**16
"""Rows added at once; fewer cost time, more cost memory."""

_PERIODS = {"day": "%Y-%m-%d", "month": "%Y-%m"}
_ONE, _ALL, _NONE = pa.scalar(1, pa.int64()), pa.scalar("", pa.string()), pa.scalar(NONE)
_BEYOND = ("slot_seconds", "waited", "started", "requested", "used", "requests")
"""Columns of ``measure`` that are summed."""


@dataclass(slots=True, kw_only=True)
class GroupTotal:
    """The sums of one group of records.

    A *run* is one attempt at a job or array task; PE tasks are not runs. A *job* is counted where
    its last run ended, so that repeated attempts count once.
    """

    key: dict[str, str | int]
    """The values that its records share, by the names of the scheduler's keys."""
    sums: dict[str, float]
    cpu: float = 0.0
    records: int = 0
    runs: int = 0
    jobs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of runs by outcome: Grid Engine's ``Outcome``, Slurm's state."""
    failed: int = 0
    """Runs that neither completed nor were queued again."""
    slot_seconds: float = 0.0
    """Wall-clock time times slots, of the runs."""
    waited: float = 0.0
    """Seconds between submission and start, of all runs that started."""
    started: int = 0
    requested: float = 0.0
    """Bytes of memory requested, of the runs that requested any."""
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
        """Bytes of memory requested: the mean of the runs that requested any."""
        return self.requested / self.requests if self.requests else None

    @property
    def mean_used(self) -> float | None:
        """Peak bytes: the mean of the same runs."""
        return self.used / self.requests if self.requests else None

    @property
    def memory_share(self) -> float | None:
        return self.used / self.requested if self.requested else None


class Sums:
    """Sums up tables of records; memory grows with the number of groups only."""

    def __init__(
        self,
        by: Sequence[str] = (),
        *,
        scheduler: measures.SchedulerColumns = GRID_ENGINE,
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
        self._sums = _Fold(keys, (*scheduler.sums, "records", *(() if self._is_short else _BEYOND)))
        self._ends = _Fold((*dict.fromkeys((*keys, measures.OUTCOME)), "ends_job"), ("records",))
        self._buckets = {name: _Fold((*keys, "bucket"), ("records",)) for name in measures.MEASURES}

    @property
    def columns(self) -> tuple[str, ...]:
        known = self.scheduler
        keys = (known.keys[name] for name in self.by if known.keys[name] != measures.OUTCOME)
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
            columns |= measures.measure(self.scheduler.job_columns(table))
        for name in self.by:
            is_outcome = self.scheduler.keys[name] == measures.OUTCOME
            columns[name] = columns[measures.OUTCOME] if is_outcome else self._key(table, name)
        self._sums.add(columns)
        if not self._is_short:
            self._add_runs(columns)

    def _key(self, table: pa.Table, name: str) -> Any:
        """Return the column to group by, with the values that are shown."""
        column = table[self.scheduler.keys[name]]
        if name in _PERIODS:
            column = measures.period(column, _PERIODS[name])
        if name == "host":  # the first spelling is shown, as in qacct
            return measures.each(
                [column], lambda host: self._hosts.setdefault(host.lower(), host), pa.string()
            )
        return pc.fill_null(column, _NONE) if pa.types.is_string(column.type) else column

    def _add_runs(self, columns: dict[str, Any]) -> None:
        needed = {*self._ends.keys, *self._sums.keys, "records", *measures.MEASURES}
        runs = pa.table({name: columns[name] for name in needed}).filter(columns["is_run"])
        self._ends.add({name: runs[name] for name in runs.column_names})
        for name in measures.MEASURES if self.percentages else ():
            valid = runs.filter(pc.is_valid(runs[name]))
            found = {key: valid[key] for key in (*self._sums.keys, "records")}
            self._buckets[name].add({**found, "bucket": measures.buckets(valid[name])})

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
            for measured in measures.MEASURES if self.percentages else ():
                found[key].percentiles[measured] = dict.fromkeys(self.percentages)
        for row in self._ends.rows():
            total = found[tuple(row[name] for name in self._sums.keys)]
            total.runs += row["records"]
            total.jobs += row["records"] * row["ends_job"]
            total.outcomes[row[measures.OUTCOME]] += row["records"]
            total.failed += row["records"] * (row[measures.OUTCOME] not in self.scheduler.good)
        for name, fold in self._buckets.items():
            counts: dict[tuple[Any, ...], Counter[int]] = {}
            for row in fold.rows():
                key = tuple(row[k] for k in self._sums.keys)
                counts.setdefault(key, Counter())[row["bucket"]] += row["records"]
            for key, counter in counts.items():
                values = {share: measures.percentile(counter, share) for share in self.percentages}
                found[key].percentiles[name].update(values)
        return [found[key] for key in sorted(found)]


class _Fold:
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
