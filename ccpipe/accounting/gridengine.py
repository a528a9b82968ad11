"""Grid Engine's records: the filters of qacct(1), and the columns that ``sums`` uses.

>>> import pyarrow as pa
>>> table = pa.table({"owner": ["anna", "ben"], "cpu": [1.0, 2.0]})
>>> RecordSelection(texts={"owner": ("a*",)}).apply(table)["cpu"].to_pylist()
[1.0]
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ccpipe.accounting.sums import NONE, OUTCOME, SchedulerColumns, each
from ccpipe.errors import MissingExtra
from ccpipe.formats.gridengine import parse_category
from ccpipe.formats.gridengine.record import GRACE, NO_DATA, Outcome, classify, is_last_record

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

SUMS = {
    "WALLCLOCK": "ru_wallclock", "UTIME": "ru_utime", "STIME": "ru_stime", "CPU": "cpu",
    "MEMORY": "mem", "IO": "io", "IOW": "iow",
}  # fmt: skip
"""qacct's sums by title, and the field of the record. Seconds, GiB·s and GiB."""

KEYS = {
    "node": "hostname", "queue": "qname", "group": "group", "user": "owner", "project": "project",
    "department": "department", "pe": "granted_pe", "slots": "slots", "ar": "arid",
    "account": "account", "name": "job_name", "job": "job_number", "task": "task_number",
    "outcome": OUTCOME, "day": "end_time", "month": "end_time",
}  # fmt: skip
"""Keys to group by, in qacct's order, and the field; day and month are of the job's end."""

FIELDS = (
    "slots", "failed", "exit_status", "submission_time", "start_time", "pe_taskid", "category",
    "deleted_by", "maxvmem", "maxrss", "ru_maxrss", "ru_wallclock",
)  # fmt: skip
"""The columns of records that ``job_columns`` needs."""

_ZERO, _KIB, _NO_DATA = (pa.scalar(n, pa.float64()) for n in (0.0, 1024.0, NO_DATA))
_GRACE = pa.scalar(GRACE, pa.float64())
_INTERMEDIATE, _FALSE = pa.scalar(-1, pa.int64()), pa.scalar(False, pa.bool_())
# Arrow infers the type of a Python number in each call, and tries to import dateutil for it.


def job_columns(table: pa.Table) -> dict[str, Any]:
    is_master = pc.is_null(table["pe_taskid"])
    wallclock = pc.fill_null(table["ru_wallclock"], _ZERO)
    return {
        "is_master": is_master,
        "is_run": pc.and_(is_master, pc.not_equal(table["exit_status"], _INTERMEDIATE)),
        "slots": table["slots"],
        "submission_time": table["submission_time"],
        "start_time": table["start_time"],
        "wallclock": wallclock,
        "memory": _memory(table),
        "requested_memory": pc.multiply(
            each([table["category"]], _requested_memory, pa.float64()),
            pc.cast(table["slots"], pa.float64()),
        ),
        **_outcomes(table, wallclock),
    }


def _memory(table: pa.Table) -> Any:
    """Return peak memory in bytes: virtual, or resident if that was not measured."""
    vmem, rss, kib = (pc.fill_null(table[n], _ZERO) for n in ("maxvmem", "maxrss", "ru_maxrss"))
    is_known = pc.and_(pc.greater(rss, _ZERO), pc.less(rss, _NO_DATA))
    rss = pc.if_else(is_known, rss, pc.multiply(kib, _KIB))
    return pc.if_else(pc.greater(vmem, _ZERO), vmem, rss)


def _requested_memory(category: str) -> float | None:
    requested = parse_category(category).h_vmem
    return None if requested is None else float(requested)


def _outcomes(table: pa.Table, wallclock: Any) -> dict[str, Any]:
    """Return the outcome, and whether the job ends with the record."""
    status = [table["failed"], table["exit_status"], pc.is_valid(table["start_time"])]

    def outcome(
        failed: int, exit_status: int, started: bool, who: str | None = None, is_late: bool = False
    ) -> str:
        return classify(
            failed=failed,
            exit_status=exit_status,
            started=started,
            deleted_by=who or "",
            limit=0.0 if is_late else None,
        )

    def ends_job(failed: int, exit_status: int, started: bool) -> bool:
        return exit_status != -1 and is_last_record(failed, started=started)

    deleter = table["deleted_by"]
    if deleter.null_count == table.num_rows:  # as in all classic records
        outcomes = each(status, outcome, pa.string())
    else:
        limit = each([table["category"]], lambda text: parse_category(text).h_rt, pa.float64())
        late = pc.greater_equal(wallclock, pc.subtract(limit, _GRACE))
        outcomes = each([*status, deleter, pc.fill_null(late, _FALSE)], outcome, pa.string())
    return {"outcome": outcomes, "ends_job": each(status, ends_job, pa.bool_())}


GRID_ENGINE = SchedulerColumns(
    keys=KEYS,
    sums=SUMS,
    cpu="CPU",
    fields=FIELDS,
    job_columns=job_columns,
    good=frozenset({Outcome.COMPLETED, Outcome.REQUEUED}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSelection:
    """The filters for records; several values of one filter are alternatives.

    Patterns are shell patterns (fnmatch(3)).
    """

    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Patterns for texts, by column."""
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Patterns for the host, case-insensitive; one without a dot matches the short name."""
    queues: tuple[str, ...] = ()
    """Patterns for ``queue@host``; a queue alone means all its hosts."""
    jobs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    """Patterns for the job's name; a record is selected by its number or its name."""
    tasks: tuple[range, ...] = ()
    begin: int | None = None
    """The earliest start in nanoseconds; a job that never started has the time 0, as in qacct."""
    end: int | None = None
    by_end: bool = False
    """Whether `begin` and `end` apply to the end of the job."""
    masters: bool = False
    """Whether tasks of parallel jobs are excluded."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for names, _ in self._rules() for name in names))

    def apply(self, table: pa.Table) -> pa.Table:
        masks = [rule(*(table[name] for name in names)) for names, rule in self._rules()]
        return table.filter(functools.reduce(pc.and_, masks)) if masks else table

    def _rules(self) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
        """Yield each rule's columns and the rule: columns to a mask."""
        for name, patterns in self.texts.items():
            yield (name,), functools.partial(_like, patterns)
        for name, numbers in self.numbers.items():
            yield (name,), functools.partial(_among, numbers)
        if self.hosts:
            yield ("hostname",), functools.partial(_like_host, self.hosts)
        if self.queues:
            yield ("qname", "hostname"), functools.partial(_like_queue, self.queues)
        if self.jobs or self.names:
            yield ("job_number", "job_name"), self._is_job
        if self.tasks:
            yield ("task_number",), functools.partial(_in_ranges, self.tasks)
        when = "end_time" if self.by_end else "start_time"
        if self.begin is not None:
            yield (when,), lambda times: pc.greater_equal(pc.fill_null(times, 0), self.begin)
        if self.end is not None:
            yield (when,), lambda times: pc.less_equal(pc.fill_null(times, 0), self.end)
        if self.masters:
            yield ("pe_taskid",), pc.is_null

    def _is_job(self, numbers: Any, names: Any) -> Any:
        by_number = _among(self.jobs, numbers)
        return pc.or_(by_number, _like(self.names, names)) if self.names else by_number


def _matching(column: Any, is_wanted: Callable[[str], bool]) -> Any:
    """Test each distinct text once."""
    column = pc.fill_null(column, NONE)
    wanted = [text for text in pc.unique(column).to_pylist() if is_wanted(text)]
    return pc.is_in(column, pa.array(wanted, pa.string()))


def _like(patterns: tuple[str, ...], column: Any) -> Any:
    return _matching(column, lambda text: any(fnmatchcase(text, p) for p in patterns))


def _like_host(patterns: tuple[str, ...], column: Any) -> Any:
    wanted = [pattern.lower() for pattern in patterns]

    def is_wanted(host: str) -> bool:
        host = host.lower()
        short = host.partition(".")[0]
        return any(fnmatchcase(host if "." in p else short, p) for p in wanted)

    return _matching(column, is_wanted)


def _like_queue(patterns: tuple[str, ...], queues: Any, hosts: Any) -> Any:
    whole = tuple(p + "@*" if "@" not in p else p + "*" * p.endswith("@") for p in patterns)
    return _like(whole, pc.binary_join_element_wise(queues, hosts, "@"))


def _among(numbers: tuple[int, ...], column: Any) -> Any:
    return pc.is_in(column, pa.array(numbers, pa.int64()))


def _in_ranges(ranges: tuple[range, ...], column: Any) -> Any:
    def is_in(wanted: range) -> Any:
        after = pc.subtract(column, wanted.start)
        steps = pc.divide(after, wanted.step)
        on_step = pc.equal(pc.multiply(steps, wanted.step), after)
        within = pc.and_(pc.greater_equal(after, 0), pc.less(column, wanted.stop))
        return pc.and_(within, on_step)

    return functools.reduce(pc.or_, map(is_in, ranges))
