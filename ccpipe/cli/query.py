"""``ccpipe query``: query the Parquet files with SQL."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from ccpipe.config import state_directory
from ccpipe.errors import MissingInputError, UsageError
from ccpipe.terminal import paint, plural, printable

Output = Literal["table", "json", "csv"]


def query(
    sql: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    dir_: Annotated[Path | None, Parameter(name="--dir")] = None,
    output: Annotated[Output, Parameter(name=["--output", "-o"])] = "table",
) -> None:
    """Query the Parquet files with SQL.

    Works while bridges write the files. The SQL dialect is DuckDB's. Tables:
    metrics (time, cluster, hostname, name, type, type_id, value, unit, tags),
    events (kind, function, loglevel, text), jobs (cluster, job_id, start, stop,
    state, user, nodes) and samples, which has all columns of every line.

    Examples:
      ccpipe query 'select name, avg(value) from metrics group by name'
      ccpipe query "select * from events where name = 'job'" -o json
      ccpipe query 'select * from jobs' --dir /data/parquet -o csv

    Parameters
    ----------
    sql
        One statement; - reads it from standard input.
    dir_
        Directory of the Parquet files; default: where `ccpipe up` writes them.
    output
        table for people; json (one object per line) or csv for programs.
    """
    import duckdb

    from ccpipe.sources.stored.parquet_tables import run_query

    text = sys.stdin.read() if sql == "-" else sql
    directory = (dir_ or state_directory() / "up" / "parquet").absolute()

    def answer(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], list[tuple[Any, ...]]]:
        statements = connection.extract_statements(text)
        if len(statements) != 1:
            raise UsageError(f"expected one SQL statement, not {len(statements)}")
        cursor = connection.execute(statements[0])
        names = [column[0] for column in cursor.description or ()]
        return names, cursor.fetchall()

    try:
        names, rows = run_query(directory, answer)
    except MissingInputError as error:
        if dir_ is None:
            hint = "`ccpipe up` writes one every minute; --dir selects another directory"
            raise MissingInputError(f"{error} yet: {hint}") from None
        raise
    except duckdb.Error as error:
        raise UsageError(str(error).strip()) from None
    _WRITERS[output](names, rows)


def _write_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    cells = [[_text(cell) for cell in row] for row in rows]
    numbers = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(names))]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        columns = zip(row, widths, numbers, strict=True)
        aligned = (c.rjust(width) if right else c.ljust(width) for c, width, right in columns)
        return "  ".join(aligned).rstrip()

    print(paint(line(names), "bold", sys.stdout))
    for row in cells:
        print(line(row))
    print(plural(len(rows), "row"), file=sys.stderr)


def _write_json(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    for row in rows:
        line = msgspec.json.encode(dict(zip(names, row, strict=True)), enc_hook=str)
        sys.stdout.write(line.decode() + "\n")


def _write_csv(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(map(_csv_cell, row) for row in rows)


def _csv_cell(cell: Any) -> Any:
    """Write times as ISO 8601, and what CSV has no type for as JSON."""
    plain = msgspec.to_builtins(cell, enc_hook=str)
    return msgspec.json.encode(plain).decode() if isinstance(plain, bool | list | dict) else plain


_WRITERS = {"table": _write_table, "json": _write_json, "csv": _write_csv}


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    if isinstance(cell, list):
        return ",".join(map(_text, cell))
    if isinstance(cell, dict):
        return ",".join(f"{key}={_text(value)}" for key, value in cell.items())
    return printable(str(cell))
