"""``ccpipe acct slurm``: reports on Slurm's jobs from sacct's rows."""

import contextlib
import grp
import itertools
import os
import pwd
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo

from cyclopts import Parameter

from ccpipe.accounting.files import Files
from ccpipe.cli.acct.table import (
    NOT_FOUND,
    PERCENTILE,
    ROWS,
    Index,
    Row,
    Several,
    TableLayout,
    TableOptions,
    TimeLimits,
    local_time,
)
from ccpipe.cli.console.options import NODES, expand_patterns, refuse_options
from ccpipe.errors import DataError, UsageError
from ccpipe.formats import nodelist
from ccpipe.formats.files import open_stream
from ccpipe.terminal import Progress, format_elapsed, note, printable

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.slurm import JobRun
    from ccpipe.formats.slurm.records import SacctRow

Key = Literal[
    "cluster", "user", "group", "account", "partition", "qos", "reservation", "wckey", "nodelist",
    "nodes", "cpus", "name", "job", "array", "state", "day", "month",
]  # fmt: skip

COLUMNS = (
    "JobID,JobIDRaw,Cluster,User,Group,Account,Partition,QOS,Reservation,WCKey,JobName,State,"
    "ExitCode,Submit,Start,End,ElapsedRaw,Suspended,CPUTimeRAW,UserCPU,SystemCPU,TotalCPU,"
    "AllocCPUS,NNodes,NTasks,ReqCPUS,ReqNodes,ReqMem,MaxRSS,TRESUsageInTot,AllocTRES,"
    "ConsumedEnergyRaw,NodeList"
)
"""The columns of sacct that are read."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SlurmFilters:
    """Filters. A repeated option matches any of its values; * and ? are wildcards."""

    user: Annotated[Several, Parameter(alias="-u")] = ()
    """Only jobs of these users, by name or number."""

    group: Annotated[Several, Parameter(alias="-g")] = ()
    """Only jobs of users in these Unix groups, by name or number."""

    account: Annotated[Several, Parameter(alias="-A")] = ()
    """Only jobs of these accounts."""

    partition: Annotated[Several, Parameter(alias="-r")] = ()
    """Only jobs in these partitions."""

    qos: Annotated[Several, Parameter(alias="-q")] = ()
    """Only jobs with these qualities of service (QOS)."""

    cluster: Annotated[Several, Parameter(alias="-M")] = ()
    """Only jobs on these clusters."""

    reservation: Several = ()
    """Only jobs in these reservations."""

    wckey: Annotated[Several, Parameter(alias="-W")] = ()
    """Only jobs with these workload characterization keys."""

    state: Annotated[Several, Parameter(alias="-s")] = ()
    """Only jobs in these states, such as COMPLETED, or its code CD."""

    node: Annotated[Several, NODES, Parameter(alias="-N")] = ()
    """Only jobs with at least one of these nodes: a node list such as n[01-04], or patterns."""

    job: Annotated[Several, Parameter(alias="-j")] = ()
    """Only these jobs, by number (13, 13_1, 17+1) or name; lists them unless --by is given."""

    times: TimeLimits = TimeLimits()

    def selection(self) -> Callable[["JobRun"], bool]:
        from ccpipe.formats.slurm.values import JOB_CODES

        states = tuple(JOB_CODES.get(state.upper(), state.upper()) for state in self.state)
        names = ("account", "partition", "qos", "cluster", "reservation", "wckey")
        texts = {**{name: getattr(self, name) for name in names}, "state": states}
        checks: list[Callable[[SacctRow], bool]] = [
            _like(name, patterns) for name, patterns in texts.items() if patterns
        ]
        if self.user:
            checks.append(_is_owner("user", "uid", self.user, lambda n: pwd.getpwuid(n).pw_name))
        if self.group:
            checks.append(_is_owner("group", "gid", self.group, lambda n: grp.getgrgid(n).gr_name))
        if self.job:
            checks.append(lambda row: any(_is_job(row, wanted) for wanted in self.job))
        if self.node:
            checks.append(_has_node(expand_patterns(self.node)))
        begin, end = self.times.bounds()
        time = "end" if self.times.ended else "start"
        if begin is not None:
            checks.append(lambda row: (getattr(row, time) or 0) >= begin)
        if end is not None:
            checks.append(lambda row: (getattr(row, time) or 0) <= end)
        return lambda run: all(check(run.job) for check in checks)


def _like(name: str, patterns: tuple[str, ...]) -> Callable[["SacctRow"], bool]:
    return lambda row: any(fnmatchcase(getattr(row, name) or "NONE", p) for p in patterns)


def _is_owner(
    name: str, id_name: str, patterns: tuple[str, ...], name_of: Callable[[int], str]
) -> Callable[["SacctRow"], bool]:
    """Select by names and, as sacct does, by numbers: of the row, or of a name known here."""
    numbers = frozenset(int(pattern) for pattern in patterns if re.fullmatch("[0-9]+", pattern))
    names = list(patterns)
    for number in numbers:
        with contextlib.suppress(KeyError, OverflowError):
            names.append(name_of(number))
    is_named = _like(name, tuple(names))
    return lambda row: getattr(row, id_name) in numbers or is_named(row)


def _is_job(row: "SacctRow", wanted: str) -> bool:
    """Whether the record is of the job, which includes all array tasks and het components."""
    if re.fullmatch(r"[0-9]+", wanted):
        return int(wanted) in (row.id.job, row.id.array_job, row.id.het_job)
    if re.fullmatch(r"[0-9]+[_+][0-9]+", wanted):
        return wanted == str(row.id)
    return fnmatchcase(row.job_name or "", wanted)


def _has_node(names: Sequence[str]) -> Callable[["SacctRow"], bool]:
    answers: dict[str, bool] = {}

    def has_node(row: "SacctRow") -> bool:
        nodes = row.node_list or ""
        if nodes not in answers:
            if len(answers) > ROWS:
                answers.clear()
            found = nodelist.expand(nodes) if nodes else []
            answers[nodes] = any(fnmatchcase(node, name) for node in found for name in names)
        return answers[nodes]

    return has_node


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SlurmTable(TableOptions):
    """A table of Slurm's columns."""

    by: tuple[Key, ...] = ()
    """Group by this column; repeat the option for several columns."""


def slurm(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    filters: SlurmFilters = SlurmFilters(),
    options: SlurmTable = SlurmTable(),
    zone: str | None = None,
    index: Index = None,
) -> None:
    """Summarize or list the resource usage of Slurm jobs, from the output of sacct.

    Reads `sacct -P` with any columns and `sacct --json` of all versions. Memory
    usage is available if the rows of the steps are included. Invalid rows are
    reported on stderr and skipped; the exit code is then 65.

    Examples:
      sacct -aP -S 2026-11-01 -o ALL | ccpipe acct slurm --by account
      ccpipe acct slurm jobs.txt.gz --by user --count 10 --sort efficiency
      ccpipe acct slurm jobs.json -j 13 -o json

    Parameters
    ----------
    files
        Files (.gz, .bz2, .xz and .zst are decompressed); - or none for standard input.
    zone
        Time zone of the input, such as Europe/Oslo; default: this machine's.
    """
    refuse_options(files)
    options.check()
    if not files and not index and sys.stdin.isatty():
        raise UsageError(f"FILE is missing, or: sacct -aP -o {COLUMNS} | ccpipe acct slurm")
    is_selected = filters.selection()
    reading = Files()
    if index:
        found = _look_up(index, files, filters.job, _zone(zone), reading)
    else:
        found = _read(files or (Path("-"),), _zone(zone), reading)
    runs = filter(is_selected, found)
    is_list = options.list_ or (bool(filters.job) and not options.by)
    count = LAYOUT.show_records(map(_record, runs), options) if is_list else _sum_up(runs, options)
    reading.finish()
    if not count and is_list:
        note(f"no job {', '.join(filters.job)} found".replace("  ", " "))
    if not count and (is_list or filters.job):
        sys.exit(NOT_FOUND)


def _look_up(
    directory: Path, paths: tuple[Path, ...], jobs: Several, zone: tzinfo, reading: Files
) -> Iterator["JobRun"]:
    """Yield the runs of jobs found in an index, and of those not indexed yet."""
    from ccpipe.accounting.index.slurm import look_up
    from ccpipe.accounting.slurm import group_steps

    numbers = [int(found[1]) if (found := _NUMBER.fullmatch(job)) else None for job in jobs]
    if not numbers or None in numbers:
        raise UsageError("--index finds jobs by number: `ccpipe acct slurm -j 13 --index DIR`")
    wanted = [number for number in numbers if number is not None]

    def report(text: str) -> None:
        reading.report(f"{directory}: {printable(text)}")

    return group_steps(look_up(directory, paths, wanted, reading, zone), report)


_NUMBER = re.compile(r"([0-9]{1,10})(?:[_+][0-9]{1,10})?")


def _zone(name: str | None) -> tzinfo:
    try:
        if name := name or os.environ.get("TZ"):
            return ZoneInfo(name.removeprefix(":"))
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    except FileNotFoundError:
        return UTC
    except (ValueError, KeyError, OSError):
        raise UsageError(f"--zone {name}: no such time zone (expected e.g. Europe/Oslo)") from None


def _read(paths: Iterable[Path], zone: tzinfo, reading: Files) -> Iterator["JobRun"]:
    from ccpipe.accounting.slurm import group_steps

    progress = Progress()
    for path in paths:
        name = "stdin" if str(path) == "-" else printable(str(path))

        def report(text: str, name: str = name) -> None:
            reading.report(f"{name}: {printable(text)}")

        for number, run in enumerate(group_steps(_rows(path, zone, report), report)):
            yield run
            if not number % ROWS:
                progress.show(f"{name}: {number} jobs read")
    progress.clear()


def _rows(path: Path, zone: tzinfo, report: Callable[[str], None]) -> Iterator["SacctRow"]:
    from ccpipe.formats.slurm.text import read_sacct

    try:
        with open_stream(path) as stream:
            for part in read_sacct(stream, zone=zone):
                yield from part.records
                for bad in part.rejected:
                    report(f"line {bad.line}: {bad.reason}: {bad.excerpt}")
    except DataError as error:
        report(str(error))


def _sum_up(runs: Iterator["JobRun"], options: SlurmTable) -> int:
    from ccpipe.accounting.slurm import SLURM, to_table
    from ccpipe.accounting.sums import Sums

    sums = Sums(options.by, scheduler=SLURM, percentages=options.percentiles)
    while some := list(itertools.islice(runs, ROWS)):
        sums.add(to_table(some, sums.columns))
    totals = sums.totals()
    if not LAYOUT.show_sums(totals, options):
        note("no matching job found", "yellow")
    return len(totals)


def _record(run: "JobRun") -> Row:
    """Return the columns of one run, without the command line, which may contain secrets."""
    job = run.job
    code, signal = job.exit_code, job.exit_signal
    return {
        "JobID": str(job.id),
        "JobIDRaw": job.id.job,
        "JobName": job.job_name,
        "Cluster": job.cluster,
        "User": job.user,
        "Group": job.group,
        "Account": job.account,
        "Partition": job.partition,
        "QOS": job.qos,
        "Reservation": job.reservation,
        "WCKey": job.wckey,
        "State": job.state,
        "ExitCode": None if code is None else f"{code}:{signal or 0}",
        "Submit": local_time(job.submit),
        "Start": local_time(job.start),
        "End": local_time(job.end),
        "Wait": run.wait,
        "ElapsedRaw": job.elapsed,
        "AllocCPUS": job.alloc_cpus,
        "NNodes": job.alloc_nodes,
        "NodeList": job.node_list,
        "AllocTRES": job.alloc_tres,
        "CPUTimeRAW": job.cpu_time,
        "UserCPU": run.user_cpu,
        "SystemCPU": run.system_cpu,
        "TotalCPU": run.total_cpu,
        "Efficiency": run.efficiency,
        "ReqMem": job.requested_memory,
        "MaxRSS": run.max_rss,
        "Memory": run.memory,
        "MemoryShare": share(run.memory, job.requested_memory),
        "ConsumedEnergyRaw": run.consumed_energy,
    }


def share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _number(head: str, value: Any) -> str:
    return format_elapsed(value) if PERCENTILE.sub("", head) in _TIMES else f"{value:.15g}"


_TIMES = {"ElapsedRaw", "CPUTimeRAW", "UserCPU", "SystemCPU", "TotalCPU", "GPUTime", "Wait"}

LAYOUT = TableLayout(
    keys={
        "cluster": "Cluster", "user": "User", "group": "Group", "account": "Account",
        "partition": "Partition", "qos": "QOS", "reservation": "Reservation", "wckey": "WCKey",
        "nodelist": "NodeList", "nodes": "NNodes", "cpus": "AllocCPUS", "name": "JobName",
        "job": "JobIDRaw", "array": "ArrayJobID", "state": "State", "day": "Day", "month": "Month",
    },
    numbers={
        "Rows": "records", "Runs": "runs", "Jobs": "jobs", "Failed": "failed",
        "FailedShare": "failed_share",
        **dict.fromkeys(("ElapsedRaw", "CPUTimeRAW", "UserCPU", "SystemCPU", "TotalCPU"), ""),
        "Efficiency": "efficiency",
        **dict.fromkeys(("GPUTime", "ConsumedEnergyRaw"), ""),
        "Wait": "wait", "ReqMem": "mean_requested", "Memory": "mean_used",
        "MemoryShare": "memory_share",
    },
    measures={"wait": "Wait", "wallclock": "ElapsedRaw", "memory": "Memory"},
    hidden_sums={"Runs", "Failed", "UserCPU", "SystemCPU", "ConsumedEnergyRaw"},
    hidden={
        "JobIDRaw", "Group", "Cluster", "QOS", "Reservation", "WCKey", "Submit", "Start", "UserCPU",
        "SystemCPU", "NNodes", "NodeList", "AllocTRES", "ConsumedEnergyRaw", "MaxRSS", "CPUTimeRAW",
    },
    shares={"FailedShare", "Efficiency", "MemoryShare"},
    volumes={"ReqMem", "Memory", "MaxRSS"},
    number=_number,
    cpu="TotalCPU",
)  # fmt: skip
"""Energy is in joules; ReqMem and Memory are means of the runs whose memory was measured."""
