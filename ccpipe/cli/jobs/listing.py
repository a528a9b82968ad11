"""Lists of jobs as a table that fits the terminal, as JSON lines and as CSV."""

import csv
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ccpipe.cli.console.output import terminal_width
from ccpipe.history.job_search import METRIC_COLUMNS
from ccpipe.terminal import format_elapsed, paint, printable

Row = Mapping[str, Any]

WIDTH = 80
"""Width of a table that is not on a terminal."""
MIN_NAME = 6
HEADS = {
    "job": "JOB", "user": "USER", "partition": "PARTITION", "name": "NAME", "state": "STATE",
    "nodes": "NODES", "start": "STARTED", "duration": "ELAPSED",
}  # fmt: skip
QUEUE_HEADS = {
    "job": "JOB", "user": "USER", "partition": "PARTITION", "name": "NAME", "nodes": "NODES",
    "walltime": "LIMIT", "submit": "SUBMITTED", "reason": "REASON",
}  # fmt: skip
"""Heads of a list of pending jobs only."""
RIGHT = {"job", "nodes", "duration", "walltime"}
MAX_REASON = 14
"""Maximum length of a reason beside the starts of other jobs."""
COLOURS = {
    "running": "green", "pending": "yellow", "failed": "red", "timeout": "red",
    "out_of_memory": "red", "node_fail": "red",
}  # fmt: skip
_UNKNOWN = {*METRIC_COLUMNS, "energy", "cpu", "memory", "gpu", "findings"}
"""Columns of the index that need a report, which a list has not."""


def write_table(rows: Iterable[Row]) -> None:
    """Print a table; long names are cut so that it fits the screen."""
    jobs = list(rows)
    if not jobs:
        return
    heads = HEADS if any(row["start"] for row in jobs) else QUEUE_HEADS
    shown = [{column: _cell(column, row) for column in heads} for row in jobs]
    widths = {
        column: max(len(head), *(len(row[column]) for row in shown))
        for column, head in heads.items()
    }
    excess = sum(widths.values()) + 2 * (len(widths) - 1) - (terminal_width() or WIDTH)
    for column in [each for each in ("reason", "name", "partition", "user") if each in heads]:
        cut = max(0, min(excess, widths[column] - MIN_NAME))
        widths[column] -= cut
        excess -= cut
    print(paint(_line(heads, widths), "bold"))
    for row in shown:
        print(_coloured(_line(row, widths), row.get("state", "")))


def _line(row: Mapping[str, str], widths: Mapping[str, int]) -> str:
    cells = (
        _cut(row[column], width).rjust(width)
        if column in RIGHT
        else _cut(row[column], width).ljust(width)
        for column, width in widths.items()
    )
    return "  ".join(cells).rstrip()


def _coloured(line: str, state: str) -> str:
    colour = COLOURS.get(state)
    return line.replace(f"  {state} ", f"  {paint(state, colour)} ", 1) if colour else line


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _cell(column: str, row: Row) -> str:
    value = row[column]
    match column:
        case "start" if not value:  # pending: as squeue, why
            return f"({_cut(printable(row['reason']), MAX_REASON)})" if row["reason"] else ""
        case "start" | "submit":
            return short_time(value) if value else ""
        case "duration" | "walltime":
            return format_elapsed(value) if value else ""
        case "job" if row["tasks"]:
            return f"{value} ({row['tasks']})"
    return printable(str(value))


def short_time(seconds: float) -> str:
    """Format a local time to the minute: ``11-28 14:05``, with the year if it is another one."""
    time = datetime.fromtimestamp(seconds).astimezone()
    is_this_year = time.year == datetime.now().astimezone().year
    return time.strftime("%m-%d %H:%M" if is_this_year else "%Y-%m-%d %H:%M")


def write_json(rows: Iterable[Row]) -> None:
    for row in rows:
        sys.stdout.write(msgspec.json.encode(known(row)).decode() + "\n")


def write_csv(rows: Iterable[Row]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for number, row in enumerate(map(known, rows)):
        if number == 0:
            writer.writerow(row)
        writer.writerow(row.values())


def known(row: Row) -> Row:
    """Return the columns that do not need a report.

    The stop of a job that runs is None, as is the start of a pending one.
    """
    found = {name: value for name, value in row.items() if name not in _UNKNOWN}
    return found | {"start": row["start"] or None, "stop": row["stop"] or None}


WRITERS = {"table": write_table, "json": write_json, "csv": write_csv}
