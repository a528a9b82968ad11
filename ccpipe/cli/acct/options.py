"""The filter options of ``ccpipe acct``."""

import grp
import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ccpipe.errors import UsageError

if TYPE_CHECKING:  # it needs pyarrow, and `ccpipe acct --help` must not
    from ccpipe.accounting.gridengine import RecordSelection

SECOND = 10**9
DAY = 86400 * SECOND

Several = tuple[str, ...]
Index = Annotated[
    Path | None,
    Parameter(help="Index folder written by `ccpipe acct index`, to look up jobs by number."),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """Filters by time, which reports of all schedulers have."""

    begin: Annotated[str | None, Parameter(alias=("-b", "-S"))] = None
    """Earliest start time, local: [[CC]YY]MMDDhhmm[.SS] or 2026-11-20T10:00."""

    end: Annotated[str | None, Parameter(alias="-e")] = None
    """Latest start time, in the same formats."""

    days: Annotated[int | None, Parameter(alias="-d")] = None
    """Number of days after --begin, or before --end or now."""

    by_end: Annotated[bool, Parameter(alias="-E")] = False
    """Apply --begin, --end and --days to end times instead of start times."""

    def bounds(self) -> tuple[int | None, int | None]:
        """Return the earliest and the latest time, in nanoseconds; raises UsageError."""
        first = parse_time(self.begin, "--begin") if self.begin else None
        last = parse_time(self.end, "--end") if self.end else None
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

    owner: Annotated[Several, Parameter(alias="-u")] = ()
    """Only jobs of these owners."""

    group: Annotated[Several, Parameter(alias="-g")] = ()
    """Only jobs of owners in these Unix groups, by name or number."""

    project: Annotated[Several, Parameter(alias="-P")] = ()
    """Only jobs of these projects; NONE selects jobs without one."""

    department: Annotated[Several, Parameter(alias="-D")] = ()
    """Only jobs of these departments."""

    account: Annotated[Several, Parameter(alias="-A")] = ()
    """Only jobs with these account strings (`qsub -A`)."""

    queue: Annotated[Several, Parameter(alias="-q")] = ()
    """Only jobs in these cluster queues or queue instances (queue@host)."""

    host: Several = ()
    """Only jobs on these execution hosts, with or without domain."""

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

    times: TimeLimits = TimeLimits()

    masters: Annotated[bool, Parameter(alias="-m")] = False
    """Exclude the tasks of parallel jobs."""

    def selection(self) -> "RecordSelection":
        from ccpipe.accounting.gridengine import RecordSelection

        begin, end = self.times.bounds()
        texts = {
            "owner": self.owner,
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
                column: tuple(_number(str(n), "--" + column) for n in wanted)
                for column, wanted in numbers.items()
                if wanted
            },
            hosts=self.host,
            queues=self.queue,
            jobs=tuple(_number(job, "--job") for job in self.job if _is_number(job)),
            names=tuple(job for job in self.job if not _is_number(job)),
            tasks=tuple(tasks for text in self.task for tasks in task_ranges(text)),
            begin=begin,
            end=end,
            by_end=self.times.by_end,
            masters=self.masters,
        )


LIMIT = 2**63
"""Bound of 64-bit integers."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(text: str, flag: str) -> int:
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


_QACCT_TIME = re.compile(r"((?:\d\d)?\d\d)?(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d\d))?")


def parse_time(text: str, flag: str) -> int:
    """Parse a local time in qacct's format or ISO 8601; returns nanoseconds."""
    try:
        if found := _QACCT_TIME.fullmatch(text):
            year, month, day, hour, minute, second = (int(n or 0) for n in found.groups())
            if not found[1]:
                year = datetime.now().year  # noqa: DTZ005 - local time is meant
            elif len(found[1]) == 2:  # noqa: PLR2004 - YY
                year += 2000 if year < 70 else 1900  # noqa: PLR2004 - as the manual says
            timestamp = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001
        else:
            timestamp = datetime.fromisoformat(text)
        return int(timestamp.timestamp()) * SECOND
    except (ValueError, OverflowError, OSError) as error:
        form = "[[CC]YY]MMDDhhmm[.SS] or 2026-11-20T10:00"
        raise UsageError(f"{flag} {text}: not a time such as {form}: {error}") from None


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
