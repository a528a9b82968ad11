"""The layouts of ``ccpipe acct``: sums and records as table, CSV and JSON lines."""

import csv
import heapq
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ccpipe.cli.acct.qacct import TITLES
from ccpipe.cli.console.output import print_table
from ccpipe.errors import UsageError
from ccpipe.formats.gridengine import Accounting
from ccpipe.terminal import note, plural, printable

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.sums import Total

Format = Literal["table", "csv", "json"]
Row = dict[str, Any]

KEYS = {
    **TITLES,
    "name": "JOB NAME",
    "job": "JOB",
    "task": "TASK",
    "outcome": "OUTCOME",
    "day": "DAY",
    "month": "MONTH",
}
"""Keys to group by, and their column titles."""

HOUR = 3600

NUMBERS: dict[str, Callable[["Total"], Any]] = {
    "RECORDS": lambda total: total.records,
    "RUNS": lambda total: total.runs,
    "JOBS": lambda total: total.jobs,
    "FAILED": lambda total: total.failed,
    "FAILED SHARE": lambda total: total.failed_share,
    "WALLCLOCK": lambda total: total.sums["WALLCLOCK"],
    "UTIME": lambda total: total.sums["UTIME"],
    "STIME": lambda total: total.sums["STIME"],
    "CPU": lambda total: total.sums["CPU"],
    "MEMORY": lambda total: total.sums["MEMORY"],
    "IO": lambda total: total.sums["IO"],
    "IOW": lambda total: total.sums["IOW"],
    "SLOT HOURS": lambda total: total.slot_seconds / HOUR,
    "EFFICIENCY": lambda total: total.efficiency,
    "WAIT": lambda total: total.wait,
    "REQUESTED": lambda total: total.requested / total.requests if total.requests else None,
    "USED": lambda total: total.used / total.requests if total.requests else None,
    "USED SHARE": lambda total: total.memory_share,
}
"""The numbers of a group by the heads of their columns: seconds, GiB·s (MEMORY), GiB (IO), bytes
(REQUESTED and USED: memory, the mean of the runs that asked for some), shares of 1."""

SHARES = {"FAILED SHARE", "EFFICIENCY", "USED SHARE"}
HIDDEN_SUMS = {"RUNS", "FAILED", "SLOT HOURS", "REQUESTED", "USED"}
"""Columns of sums that a table omits; CSV and JSON have all."""

BYTES = {"REQUESTED", "USED", "MEMORY PEAK"}

MAX_ROWS = 10_000
"""Rows of a table; only these are kept in memory."""


def sums(totals: Iterable["Total"]) -> Iterator[Row]:
    """Yield the rows of a table of sums."""
    for total in totals:
        row: Row = {KEYS[name]: value for name, value in total.key.items()}
        row |= {title: number(total) for title, number in NUMBERS.items()}
        for measure, values in total.percentiles.items():
            title = "MEMORY PEAK" if measure == "memory" else measure.upper()
            row |= {f"{title} P{percentage:g}": value for percentage, value in values.items()}
        yield row


def record(found: Accounting) -> Row:
    """Return the columns of one record, without the command line, which may hold secrets."""
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
        "OWNER": found.owner,
        "GROUP": found.group,
        "PROJECT": found.project or "NONE",
        "DEPARTMENT": found.department,
        "ACCOUNT": found.account,
        "JOB NAME": found.job_name,
        "CLUSTER QUEUE": found.qname,
        "HOST": found.hostname,
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


HIDDEN = {"GROUP", "PROJECT", "DEPARTMENT", "ACCOUNT", "PE", "AR", "SUBMITTED", "ENDED", "UTIME",
          "STIME", "MEMORY", "IO", "IOW", "FAILED", "EXIT", "MEANING", "CATEGORY", "FILE",
          "LINE"}  # fmt: skip
"""Columns of a record that a table omits; CSV and JSON have all."""


def local_time(nanoseconds: int | None) -> str | None:
    """Format a time as ISO 8601 in local time."""
    if nanoseconds is None:
        return None
    seconds, rest = divmod(nanoseconds, 10**9)
    timestamp = datetime.fromtimestamp(seconds, UTC).astimezone()
    return timestamp.replace(microsecond=rest // 1000).isoformat()


def show(
    rows: Iterable[Row],
    output: Format,
    hidden: AbstractSet[str] = frozenset(),
    cell: Callable[[str, Any], str] | None = None,
) -> int:
    """Print rows and return their number.

    A table omits the `hidden` columns, and shows of each column's title and value what `cell`
    returns.
    """
    if output == "table":
        return _show_table(rows, hidden, cell or _cell)
    count = 0
    for count, row in enumerate(rows, 1):
        if output == "json":
            sys.stdout.write(_json(row) + "\n")
        else:
            if count == 1:
                sys.stdout.write(_csv(row))
            sys.stdout.write(_csv(row.values()))
    sys.stdout.flush()
    return count


def _json(row: Row) -> str:
    return msgspec.json.encode({key: _clean(value) for key, value in row.items()}).decode()


def clean(text: str) -> str:
    """Replace bytes that are not UTF-8 by U+FFFD, for JSON and terminals."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _clean(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else value


def _csv(cells: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([_clean(cell) for cell in cells])
    return line.getvalue()


def _show_table(
    rows: Iterable[Row], hidden: AbstractSet[str], cell: Callable[[str, Any], str]
) -> int:
    shown: list[list[str]] = []
    heads: tuple[str, ...] = ()
    count = 0
    for count, row in enumerate(rows, 1):
        if count > MAX_ROWS:
            continue
        heads = tuple(head for head in row if head not in hidden)
        shown.append([cell(head, row[head]) for head in heads])
    if shown:
        print_table(_aligned(shown), heads)
    if count > MAX_ROWS:
        note(f"… and {plural(count - MAX_ROWS, 'row')} more: -o csv and -o json show all", "yellow")
    return count


def _aligned(rows: list[list[str]]) -> list[list[str]]:
    """Right-align the columns that contain only numbers."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    for column in columns:
        if all(cell == "-" or cell[0].isdigit() for cell in column if cell):
            width = max(map(len, column))
            column[:] = [f"{cell:>{width}}" for cell in column]
    return [list(row) for row in zip(*columns, strict=True)]


def _cell(head: str, value: Any) -> str:
    if value is None:
        return "-"
    plain = PERCENTILE.sub("", head)
    if plain in SHARES:
        return f"{100 * value:.1f}%"
    if plain in BYTES:
        return format_bytes(value)
    if head == "WALLCLOCK":
        return f"{value:.0f}"
    if isinstance(value, float):
        return f"{value:.3f}" if head in _EXACT else f"{value:.1f}"
    return printable(clean(value)) if isinstance(value, str) else str(value)


PERCENTILE = re.compile(r" P[0-9.]+$")
_EXACT = {"UTIME", "STIME", "CPU", "MEMORY", "IO", "IOW"}
"""Columns with as many decimals as in qacct."""


def format_bytes(value: float) -> str:
    """Format with the largest unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:  # noqa: PLR2004 - the next unit
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def best(rows: Iterable[Row], name: str, count: int | None) -> list[Row]:
    """Return the `count` rows (None: all) with the largest values in a column, largest first.

    Its `name` is that of the command line: ``slot-hours`` is the column SLOT HOURS.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return []
    titles = {title.lower().replace(" ", "-"): title for title in first}
    head = titles.get(name.lower().replace(" ", "-").replace("_", "-"))
    if head is None:
        raise UsageError(
            f"--sort {name.lower()}: there is no such column, only {', '.join(titles)}"
        )
    rows = itertools.chain([first], rows)

    def value(row: Mapping[str, Any]) -> tuple[bool, Any]:
        return row[head] is not None, row[head]

    return (
        sorted(rows, key=value, reverse=True)
        if count is None
        else heapq.nlargest(count, rows, key=value)
    )
