"""Reports of any scheduler: shared options; sums and records as table, CSV and JSON lines."""

import csv
import heapq
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from ccpipe.cli.console.options import Count, Since, Until, point_in_time
from ccpipe.cli.console.output import is_number, print_fitting
from ccpipe.errors import UsageError
from ccpipe.terminal import in_bytes, note, plural, printable

if TYPE_CHECKING:  # it needs pyarrow
    from ccpipe.accounting.sums import GroupTotal

SECOND = 10**9

Several = tuple[str, ...]
Index = Annotated[
    Path | None,
    Parameter(help="Index directory written by `ccpipe acct index`, to look up jobs by number."),
]
Format = Literal["table", "json", "csv"]
Row = dict[str, Any]

NOT_FOUND = 1
"""Exit code if no record is found, as in qacct and grep."""

ROWS = 4096

MAX_ROWS = 10_000
"""Maximum rows of a table, which are kept in memory."""

PERCENTILE = re.compile(r" P[0-9.]+$")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """Filters by time, which reports of all schedulers have."""

    since: Annotated[Since, Parameter(alias="-S")] = None
    """Earliest start time, such as 2026-11-20T10:00, or 7d for the last seven days."""

    until: Annotated[Until, Parameter(alias="-E")] = None
    """Latest start time."""

    ended: bool = False
    """Apply the limits to end times instead of start times."""

    def bounds(self) -> tuple[int | None, int | None]:
        """Return the earliest and the latest time, in nanoseconds; raises UsageError."""
        first = parse_time(self.since, "--since") if self.since else None
        last = parse_time(self.until, "--until") if self.until else None
        return first, last


_QACCT_TIME = re.compile(r"((?:\d\d)?\d\d)?(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d\d))?")


def parse_time(text: str, flag: str) -> int:
    """Parse a time of ``point_in_time``, or a local one in qacct's format."""
    found = _QACCT_TIME.fullmatch(text)
    if not found:
        return point_in_time(text, flag)
    year, month, day, hour, minute, second = (int(n or 0) for n in found.groups())
    if not found[1]:
        year = datetime.now().year  # noqa: DTZ005 - local time is meant
    elif len(found[1]) == 2:  # noqa: PLR2004 - YY
        year += 2000 if year < 70 else 1900  # noqa: PLR2004 - as in the manual
    return point_in_time(f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}", flag)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Content and format of a report; each scheduler has its own columns to group by."""

    by: tuple[str, ...] = ()
    """Group by this column; repeat the option for several columns."""

    list_: Annotated[bool, Parameter(name="--list")] = False
    """List jobs instead of summarizing them."""

    count: Count = None
    """Show only this many rows, those with the highest values in --sort."""

    sort: str | None = None
    """Column to sort by, highest values first; the default with --count is the CPU time."""

    percentiles: tuple[float, ...] = ()
    """Add percentiles, such as 50 and 95, of wait time, elapsed time and memory."""

    output: Annotated[Format, Parameter(alias="-o")] = "table"
    """Output format; csv and json (one object per line) have all digits."""

    def check(self) -> None:
        """Raise UsageError for options that are out of range."""
        if self.count is not None and self.count < 1:
            raise UsageError(f"--count {self.count}: must be at least 1")
        if bad := [p for p in self.percentiles if not 0 <= p <= 100]:  # noqa: PLR2004
            raise UsageError(f"--percentiles {bad[0]:g}: must be between 0 and 100")


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """Column titles of a scheduler, and their formatting in a table."""

    keys: Mapping[str, str]
    """Titles of the keys to group by."""
    numbers: Mapping[str, str]
    """Attribute of ``GroupTotal`` by title of a column; "" for the sum of this title.

    Units are seconds, bytes of memory, and fractions.
    """
    measures: Mapping[str, str]
    hidden_sums: AbstractSet[str]
    """Columns of sums that a table omits; CSV and JSON have all."""
    hidden: AbstractSet[str]
    """The same for a record."""
    shares: AbstractSet[str]
    """Columns that a table shows in percent."""
    volumes: AbstractSet[str]
    number: Callable[[str, Any], str]
    cpu: str
    """The column of CPU time, by which rows are sorted if no other one is given."""

    def sums(self, totals: Iterable["GroupTotal"]) -> Iterator[Row]:
        for total in totals:
            row: Row = {self.keys[name]: value for name, value in total.key.items()}
            for title, name in self.numbers.items():
                row[title] = getattr(total, name) if name else total.sums[title]
            for measure, values in total.percentiles.items():
                title = self.measures[measure]
                row |= {f"{title} P{share:g}": value for share, value in values.items()}
            yield row

    def cell(self, head: str, value: Any) -> str:
        plain = PERCENTILE.sub("", head)
        if value is None:
            return "-"
        if plain in self.shares:
            return f"{100 * value:.1f}%"
        if plain in self.volumes:
            return in_bytes(value)
        if isinstance(value, str):
            return printable(clean(value))
        return self.number(head, value)

    def show_sums(self, totals: Iterable["GroupTotal"], options: TableOptions) -> int:
        return self._show(self.sums(totals), options, self.hidden_sums)

    def show_records(self, rows: Iterable[Row], options: TableOptions) -> int:
        return self._show(rows, options, self.hidden)

    def _show(self, rows: Iterable[Row], options: TableOptions, hidden: AbstractSet[str]) -> int:
        if options.count is not None or options.sort is not None:
            rows = best(rows, options.sort or self.cpu, options.count)
        if options.output == "table":
            return _show_table(rows, hidden, self.cell)
        count = 0
        for count, row in enumerate(rows, 1):
            if options.output == "json":
                sys.stdout.write(_json(row) + "\n")
            else:
                if count == 1:
                    sys.stdout.write(_csv(row))
                sys.stdout.write(_csv(row.values()))
        sys.stdout.flush()
        return count


def local_time(nanoseconds: int | None) -> str | None:
    if nanoseconds is None:
        return None
    seconds, rest = divmod(nanoseconds, 10**9)
    timestamp = datetime.fromtimestamp(seconds, UTC).astimezone()
    return timestamp.replace(microsecond=rest // 1000).isoformat()


def _json(row: Row) -> str:
    return msgspec.json.encode({key: _clean(value) for key, value in row.items()}).decode()


def clean(text: str) -> str:
    """Replace invalid UTF-8 with U+FFFD, for JSON and terminals."""
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
        print_fitting(_aligned(shown), heads)
    if count > MAX_ROWS:
        note(f"… and {plural(count - MAX_ROWS, 'row')} more: -o csv and -o json show all", "yellow")
    return count


def _aligned(rows: list[list[str]]) -> list[list[str]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    for column in columns:
        if all(map(is_number, column)):
            width = max(map(len, column))
            column[:] = [f"{cell:>{width}}" for cell in column]
    return [list(row) for row in zip(*columns, strict=True)]


def best(rows: Iterable[Row], name: str, count: int | None) -> list[Row]:
    """Return the `count` rows (None: all) with the largest values in a column, largest first.

    Its `name` is the one on the command line: ``slot-hours`` is the column SLOT HOURS.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return []
    titles = {title.lower().replace(" ", "-"): title for title in first}
    head = titles.get(name.lower().replace(" ", "-").replace("_", "-"))
    if head is None:
        raise UsageError(
            f"--sort {name.lower()}: no such column; choose one of {', '.join(titles)}"
        )
    rows = itertools.chain([first], rows)

    def value(row: Mapping[str, Any]) -> tuple[bool, Any]:
        return row[head] is not None, row[head]

    return (
        sorted(rows, key=value, reverse=True)
        if count is None
        else heapq.nlargest(count, rows, key=value)
    )
