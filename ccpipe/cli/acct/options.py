"""The filter options of ``ccpipe acct``."""

import grp
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ccpipe.errors import UsageError

if TYPE_CHECKING:  # it needs pyarrow, and `ccpipe acct --help` must not
    from ccpipe.accounting.selection import RecordSelection

SECOND = 10**9
DAY = 86400 * SECOND

Several = tuple[str, ...]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters. Values of a repeated option are alternatives; * and ? match any text."""

    owner: Annotated[Several, Parameter(alias="-u")] = ()
    """Owners of the jobs."""

    group: Annotated[Several, Parameter(alias="-g")] = ()
    """Unix groups of the owner, by name or number."""

    project: Annotated[Several, Parameter(alias="-P")] = ()
    """Projects; NONE for jobs without one."""

    department: Annotated[Several, Parameter(alias="-D")] = ()
    """Departments."""

    account: Annotated[Several, Parameter(alias="-A")] = ()
    """Account strings (`qsub -A`)."""

    queue: Annotated[Several, Parameter(alias="-q")] = ()
    """Cluster queues, or queue@host."""

    host: Several = ()
    """Execution hosts, with or without their domain."""

    pe: Several = ()
    """Parallel environments; NONE for jobs without one."""

    slots: tuple[int, ...] = ()
    """Numbers of slots."""

    ar: tuple[int, ...] = ()
    """Advance reservations, by number."""

    job: Annotated[Several, Parameter(alias="-j")] = ()
    """Jobs by number or name; their records are listed unless --by is given."""

    task: Annotated[Several, Parameter(alias="-t")] = ()
    """Array tasks: n[-m[:s]]."""

    begin: Annotated[str | None, Parameter(alias="-b")] = None
    """Earliest start: [[CC]YY]MMDDhhmm[.SS] or 2026-11-20T10:00, local time."""

    end: Annotated[str | None, Parameter(alias="-e")] = None
    """Latest start."""

    days: Annotated[int | None, Parameter(alias="-d")] = None
    """Number of days from --begin, or up to --end or now."""

    by_end: Annotated[bool, Parameter(alias="-E")] = False
    """Apply --begin, --end and --days to the end of the job, not its start."""

    masters: Annotated[bool, Parameter(alias="-m")] = False
    """Leave out tasks of parallel jobs."""

    def selection(self) -> "RecordSelection":
        """Return the selection; raises UsageError."""
        from ccpipe.accounting.selection import RecordSelection

        begin, end = time_limits(self.begin, self.end, self.days)
        texts = {
            "owner": self.owner,
            "group": tuple(map(group_name, self.group)),
            "project": self.project,
            "department": self.department,
            "account": self.account,
            "granted_pe": self.pe,
        }
        if bad := [queue for queue in self.queue if "@@" in queue]:
            raise UsageError(f"--queue {bad[0]}: host groups are known to the master only")
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
            by_end=self.by_end,
            masters=self.masters,
        )


def time_limits(
    begin: str | None, end: str | None, days: int | None
) -> tuple[int | None, int | None]:
    """Return the earliest and the latest time, in nanoseconds; raises UsageError."""
    first = parse_time(begin, "--begin") if begin else None
    last = parse_time(end, "--end") if end else None
    if days is not None and days < 0:
        raise UsageError(f"--days {days}: must not be negative")
    if days is not None and (first is None or last is None):
        if first is not None:
            last = first + days * DAY
        else:
            first = (int(time.time()) * SECOND if last is None else last) - days * DAY
    limits = [None if t is None else max(-LIMIT, min(t, LIMIT - 1)) for t in (first, last)]
    return limits[0], limits[1]


LIMIT = 2**63
"""Bound of 64-bit integers."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(text: str, flag: str) -> int:
    if not -LIMIT <= int(text) < LIMIT:
        raise UsageError(f"{flag} {text}: beyond 64 bits")
    return int(text)


def group_name(text: str) -> str:
    """Return the name of a group given by number, if this machine knows it."""
    if not _is_number(text):
        return text
    try:
        return grp.getgrgid(int(text)).gr_name
    except (KeyError, OverflowError):
        return text


_QACCT_TIME = re.compile(r"((?:\d\d)?\d\d)?(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d\d))?")


def parse_time(text: str, flag: str) -> int:
    """Parse a local time in qacct's format or ISO 8601; returns nanoseconds.

    Raises
    ------
    UsageError
        naming the `flag`.

    """
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
