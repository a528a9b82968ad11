"""``ccpipe acct gridengine``: reports on Grid Engine's jobs from the accounting files."""

import grp
import itertools
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_args

from cyclopts import Parameter

from ccpipe.accounting.files import FileBlock, Files, default_files, read_records
from ccpipe.cli.acct import qacct
from ccpipe.cli.acct.table import (
    NOT_FOUND,
    PERCENTILE,
    ROWS,
    SECOND,
    Index,
    Row,
    Several,
    TableLayout,
    TableOptions,
    TimeLimits,
    clean,
    local_time,
)
from ccpipe.cli.console.options import NODES, Since, Until, expand_patterns, refuse_options
from ccpipe.errors import UsageError
from ccpipe.formats.gridengine import Accounting
from ccpipe.terminal import format_elapsed, note, printable

if TYPE_CHECKING:  # it needs pyarrow, and `ccpipe acct --help` must not
    from ccpipe.accounting.gridengine import RecordSelection

Key = Literal[
    "node", "queue", "group", "user", "project", "department", "pe", "slots", "ar", "account",
    "name", "job", "task", "outcome", "day", "month",
]  # fmt: skip


LIMIT = 2**63
"""Bound of 64-bit integers."""

DAY = 86400 * SECOND


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridEngineTimes(TimeLimits):
    """Filters by time, with the short names of qacct."""

    since: Annotated[Since, Parameter(alias="-b")] = None
    """Earliest start time: [[CC]YY]MMDDhhmm[.SS], 2026-11-20T10:00, or 7d for the last seven
    days."""

    until: Annotated[Until, Parameter(alias="-e")] = None
    """Latest start time."""

    days: Annotated[int | None, Parameter(alias="-d")] = None
    """Number of days after --since, or before --until or now."""

    def bounds(self) -> tuple[int | None, int | None]:
        first, last = super().bounds()
        if self.days is not None and self.days < 0:
            raise UsageError(f"--days {self.days}: must not be negative")
        if self.days is not None and (first is None or last is None):
            if first is not None:
                last = first + self.days * DAY
            else:
                first = (int(time.time()) * SECOND if last is None else last) - self.days * DAY
        limits = [None if t is None else max(-LIMIT, min(t, LIMIT - 1)) for t in (first, last)]
        return limits[0], limits[1]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters. A repeated option matches any of its values; * and ? are wildcards."""

    user: Annotated[Several, Parameter(alias="-u")] = ()
    """Only jobs of these users."""

    group: Annotated[Several, Parameter(alias="-g")] = ()
    """Only jobs of users in these Unix groups, by name or number."""

    project: Annotated[Several, Parameter(alias="-P")] = ()
    """Only jobs of these projects; NONE selects jobs without one."""

    department: Annotated[Several, Parameter(alias="-D")] = ()
    """Only jobs of these departments."""

    account: Annotated[Several, Parameter(alias="-A")] = ()
    """Only jobs with these account strings (`qsub -A`)."""

    queue: Annotated[Several, Parameter(alias="-q")] = ()
    """Only jobs in these cluster queues or queue instances (queue@host)."""

    node: Annotated[Several, NODES, Parameter(alias="-N")] = ()
    """Only jobs on these nodes, with or without domain: a list such as n[01-04], or patterns."""

    pe: Several = ()
    """Only jobs in these parallel environments; NONE selects jobs without one."""

    slots: tuple[int, ...] = ()
    """Only jobs with one of these numbers of slots."""

    ar: tuple[int, ...] = ()
    """Only jobs in these advance reservations, by number."""

    job: Annotated[Several, Parameter(alias="-j")] = ()
    """Only these jobs, by number or name; lists their records unless --by is given."""

    task: Annotated[Several, Parameter(alias="-t")] = ()
    """Only these array tasks: n[-m[:s]]."""

    times: GridEngineTimes = GridEngineTimes()

    masters: Annotated[bool, Parameter(alias="-m")] = False
    """Exclude the tasks of parallel jobs."""

    def selection(self) -> "RecordSelection":
        from ccpipe.accounting.gridengine import RecordSelection

        begin, end = self.times.bounds()
        texts = {
            "owner": self.user,
            "group": tuple(map(group_name, self.group)),
            "project": self.project,
            "department": self.department,
            "account": self.account,
            "granted_pe": self.pe,
        }
        if bad := [queue for queue in self.queue if "@@" in queue]:
            raise UsageError(f"--queue {bad[0]}: host groups are known only to qmaster")
        numbers = {"slots": self.slots, "arid": self.ar}
        return RecordSelection(
            texts={column: patterns for column, patterns in texts.items() if patterns},
            numbers={
                column: tuple(_whole(str(n), "--" + column) for n in wanted)
                for column, wanted in numbers.items()
                if wanted
            },
            hosts=tuple(expand_patterns(self.node)),
            queues=self.queue,
            jobs=tuple(_whole(job, "--job") for job in self.job if _is_number(job)),
            names=tuple(job for job in self.job if not _is_number(job)),
            tasks=tuple(tasks for text in self.task for tasks in task_ranges(text)),
            begin=begin,
            end=end,
            by_end=self.times.ended,
            masters=self.masters,
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _whole(text: str, flag: str) -> int:
    if not -LIMIT <= int(text) < LIMIT:
        raise UsageError(f"{flag} {text}: beyond 64 bits")
    return int(text)


def group_name(text: str) -> str:
    if not _is_number(text):
        return text
    try:
        return grp.getgrgid(int(text)).gr_name
    except (KeyError, OverflowError):
        return text


_TASKS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")


def task_ranges(text: str) -> list[range]:
    """Parse ``n[-m[:s]]`` (``qsub -t``), several separated by commas; raises UsageError."""
    found = []
    for part in text.split(","):
        match = _TASKS.fullmatch(part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"--task {text}: tasks are given as n[-m[:s]], such as 1-10:2")
        found.append(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1))
    return found


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridEngineTable(TableOptions):
    """A table of Grid Engine's columns."""

    by: tuple[Key, ...] = ()
    """Group by this column; repeat the option for several columns."""

    qacct: bool = False
    """Print exactly the output of qacct 8.1.9."""

    def check(self) -> None:
        super().check()
        own_layout = self.output != "table" or self.count is not None or self.sort
        if self.qacct and (own_layout or self.percentiles):
            raise UsageError("--qacct excludes -o, --count, --sort and --percentiles")
        if self.qacct and (unknown := [name for name in self.by if name not in qacct.TITLES]):
            raise UsageError(f"--by {unknown[0]}: qacct has no such column; omit --qacct")


def gridengine(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    file: Annotated[tuple[Path, ...], Parameter(alias="-f", allow_leading_hyphen=True)] = (),
    filters: Filters = Filters(),
    show: GridEngineTable = GridEngineTable(),
    index: Index = None,
) -> None:
    """Summarize or list the resource usage of Grid Engine jobs.

    Reads any number of accounting files in all variants, classic or JSON lines,
    compressed or not. Invalid lines are reported on stderr and skipped; the exit
    code is then 65. docs/gridengine/acct.md maps the flags of qacct to the options of
    this command.

    Examples:
      ccpipe acct gridengine accounting* --by user --count 10
      ccpipe acct gridengine -f accounting -j 4711 -o json | jq .CPU
      ccpipe acct gridengine accounting --qacct --by user -q 'all.q@n0*'

    Parameters
    ----------
    files
        Accounting files (.gz, .bz2, .xz and .zst are decompressed), - for standard input; default:
        the files in $SGE_ROOT/$SGE_CELL/common.
    file
        The same as FILES, as in qacct.
    """
    paths = (*files, *file)
    refuse_options(paths)
    show.check()
    for path in paths if show.percentiles else ():
        if path.name.isdecimal() and not path.exists():
            several = "--percentiles 50 --percentiles 95"
            raise UsageError(f"no file {path}; several percentiles are written {several}")
    selection = filters.selection()
    is_list = show.list_ or (filters.job and not show.by)
    if index and not is_list:
        raise UsageError(
            "--index finds jobs by number: `ccpipe acct gridengine -j NUMBER --index DIR`"
        )
    reading = Files()
    if index:
        from ccpipe.accounting.index.gridengine import look_up

        count = _list(look_up(index, paths, selection, reading), filters, show)
    elif is_list:
        count = _list(read_records(paths or default_files(), selection, reading), filters, show)
    else:
        count = _sum_up(paths or default_files(), selection, filters, show, reading)
    reading.finish()
    if not count and (filters.job or (is_list and not show.qacct)):
        _not_found(filters, is_qacct=show.qacct)


def _sum_up(
    paths: Sequence[Path],
    selection: "RecordSelection",
    filters: Filters,
    show: GridEngineTable,
    reading: Files,
) -> int:
    from ccpipe.accounting.gridengine import GRID_ENGINE
    from ccpipe.accounting.sums import Sums
    from ccpipe.formats.gridengine.columns import ParsedTable, read_columns

    by = _columns_of_qacct(filters, show.by) if show.qacct else show.by
    sums = Sums(by, scheduler=GRID_ENGINE, only_qacct=show.qacct, percentages=show.percentiles)
    columns = tuple(dict.fromkeys((*selection.columns, *sums.columns)))

    def read(block: FileBlock) -> ParsedTable:
        part = read_columns(block.payload, columns, offset=block.offset)
        part.table = selection.apply(part.table)
        return part

    for _, part in reading.each_block(paths, read):
        sums.add(part.table)
    totals = sums.totals()
    if show.qacct:
        _print(qacct.sums(totals, by, _single_values(filters)))
    elif not LAYOUT.show_sums(totals, show):
        note("no matching record found", "yellow")
    return len(totals)


def _list(found: Iterable[Accounting], filters: Filters, show: GridEngineTable) -> int:
    if show.qacct:
        return _print_blocks(found, filters, _columns_of_qacct(filters, show.by))
    return LAYOUT.show_records(map(_record, found), show)


def _print_blocks(found: Iterable[Accounting], filters: Filters, by: Sequence[Key]) -> int:
    """Print records like ``qacct -j``; without a job also their sums."""
    from ccpipe.accounting.gridengine import GRID_ENGINE
    from ccpipe.accounting.sums import Sums
    from ccpipe.formats.gridengine.columns import from_records

    sums = Sums(by, scheduler=GRID_ENGINE, only_qacct=True)
    count = 0
    records = iter(found)
    while some := list(itertools.islice(records, ROWS)):
        count += len(some)
        for one in some:
            _print(qacct.block(one))
        sums.add(from_records(some, sums.columns))
    if not filters.job:
        _print(qacct.sums(sums.totals(), by, _single_values(filters)))
    return count


def _print(lines: Iterable[str]) -> None:
    """Print lines; control characters and bytes that are not text are escaped."""
    print("\n".join(printable(clean(line)) for line in lines))


def _not_found(filters: Filters, *, is_qacct: bool) -> NoReturn:
    start = "error" if is_qacct else "ccpipe"
    filtered = ", ".join(filters.job)
    if filters.task and filtered:
        note(f"{start}: job-array tasks {filtered}.{','.join(filters.task)} not found")
    else:
        note(f"{start}: job {filtered} not found" if filtered else "no matching record found")
    sys.exit(NOT_FOUND)


def _columns_of_qacct(filters: Filters, by: Sequence[Key]) -> tuple[Key, ...]:
    """Return what qacct groups by: a queue filter adds HOST and CLUSTER QUEUE."""
    wanted: set[str] = {*by, *_filter_values(filters)} - (_single_values(filters).keys() - set(by))
    if filters.queue:
        wanted |= {"node", "queue"}
    keys: tuple[Key, ...] = get_args(Key)
    return tuple(name for name in keys if name in wanted)


def _single_values(filters: Filters) -> dict[str, str | int]:
    filtered = _filter_values(filters)
    return {
        name: values[0]
        for name, values in filtered.items()
        if len(values) == 1 and not set(str(values[0])) & set("*?[")
    }


def _filter_values(filters: Filters) -> dict[str, tuple[str, ...] | tuple[int, ...]]:
    filtered: dict[str, tuple[str, ...] | tuple[int, ...]] = {
        "node": filters.node,
        "group": tuple(map(group_name, filters.group)),
        "user": filters.user,
        "project": filters.project,
        "department": filters.department,
        "pe": filters.pe,
        "slots": filters.slots,
        "ar": filters.ar,
        "account": filters.account,
    }
    return {name: values for name, values in filtered.items() if values}


def _record(found: Accounting) -> Row:
    """Return the columns of one record, without the command line, which may contain secrets."""
    wait = None
    if found.submission_time is not None and found.start_time is not None:
        wait = max(0, found.start_time - found.submission_time) / 10**9
    slot_seconds = found.slots * found.wallclock
    usage = {
        name: value
        for container in ("rusage", "eusage")
        for name, value in found.usage.get(container, {}).items()
    }
    return {
        "JOB": found.job_number,
        "TASK": found.task_number,
        "PE TASK": found.pe_taskid,
        "USER": found.owner,
        "GROUP": found.group,
        "PROJECT": found.project or "NONE",
        "DEPARTMENT": found.department,
        "ACCOUNT": found.account,
        "JOB NAME": found.job_name,
        "CLUSTER QUEUE": found.qname,
        "NODE": found.hostname,
        "PE": found.granted_pe or "NONE",
        "SLOTS": found.slots,
        "AR": found.arid,
        "SUBMITTED": local_time(found.submission_time),
        "STARTED": local_time(found.start_time),
        "ENDED": local_time(found.end_time),
        "WAIT": wait,
        "WALLCLOCK": found.wallclock,
        "UTIME": usage.get("ru_utime", 0),
        "STIME": usage.get("ru_stime", 0),
        "CPU": found.cpu,
        "MEMORY": usage.get("mem", 0),
        "IO": usage.get("io", 0),
        "IOW": usage.get("iow", 0),
        "EFFICIENCY": None if found.pe_taskid or not slot_seconds else found.cpu / slot_seconds,
        "MEMORY PEAK": found.maxvmem or found.maxrss,
        "OUTCOME": str(found.outcome),
        "FAILED": found.failed,
        "EXIT": found.exit_status,
        "MEANING": found.failure,
        "CATEGORY": found.category,
        "FILE": found.origin.file,
        "LINE": found.origin.line,
    }


_TIMES = {"WALLCLOCK", "WAIT", "UTIME", "STIME", "CPU", "IOW"}


def _number(head: str, value: Any) -> str:
    if PERCENTILE.sub("", head) in _TIMES:
        return format_elapsed(value)
    return f"{value:.1f}" if isinstance(value, float) else str(value)


LAYOUT = TableLayout(
    keys={
        **qacct.TITLES, "node": "NODE", "user": "USER", "name": "JOB NAME", "job": "JOB",
        "task": "TASK", "outcome": "OUTCOME", "day": "DAY", "month": "MONTH",
    },
    numbers={
        "RECORDS": "records", "RUNS": "runs", "JOBS": "jobs", "FAILED": "failed",
        "FAILED SHARE": "failed_share",
        **dict.fromkeys(("WALLCLOCK", "UTIME", "STIME", "CPU", "MEMORY", "IO", "IOW"), ""),
        "SLOT HOURS": "slot_hours", "EFFICIENCY": "efficiency", "WAIT": "wait",
        "REQUESTED": "mean_requested", "USED": "mean_used", "USED SHARE": "memory_share",
    },
    measures={"wait": "WAIT", "wallclock": "WALLCLOCK", "memory": "MEMORY PEAK"},
    hidden_sums={"RUNS", "FAILED", "SLOT HOURS", "REQUESTED", "USED"},
    hidden={
        "GROUP", "PROJECT", "DEPARTMENT", "ACCOUNT", "PE", "AR", "SUBMITTED", "ENDED", "UTIME",
        "STIME", "MEMORY", "IO", "IOW", "FAILED", "EXIT", "MEANING", "CATEGORY", "FILE", "LINE",
    },
    shares={"FAILED SHARE", "EFFICIENCY", "USED SHARE"},
    volumes={"REQUESTED", "USED", "MEMORY PEAK"},
    number=_number,
    cpu="CPU",
)  # fmt: skip
"""MEMORY is in GiB·s, IO in GiB; REQUESTED and USED are means of the runs that requested memory."""
