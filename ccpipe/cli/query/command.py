"""``ccpipe query``: query the Parquet files with SQL."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ccpipe.config import state_directory
from ccpipe.errors import DataError, MissingInputError, UsageError
from ccpipe.terminal import plural

Output = Literal["table", "json", "csv", "parquet"]


def query(
    sql: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    dir_: Annotated[str | None, Parameter(name="--dir", metavar="DIR")] = None,
    unsafe: bool = False,
    output: Annotated[Output, Parameter(name=["--output", "-o"])] = "table",
) -> None:
    """Query Parquet files or a Delta table with SQL.

    Works while bridges write them. The SQL dialect is DuckDB's. Tables:
    metrics (time, cluster, hostname, name, type, type_id, value, unit, tags),
    events (kind, function, loglevel, text), jobs (cluster, job_id, start, stop,
    state, user, nodes) and samples, which has all columns of every line.
    Statements that write, or that read anything but these tables, are refused.

    Examples:
      ccpipe query 'select name, avg(value) from metrics group by name'
      ccpipe query "select * from events where name = 'job'" -o json
      ccpipe query 'select * from jobs' --dir s3://mon/site -o parquet > j.parquet

    Parameters
    ----------
    sql
        One statement; - reads it from standard input.
    dir_
        Directory of the Parquet files or of the Delta table, or s3://bucket/prefix of
        a table, with keys from the environment, as AWS' own programs find them;
        default: where `ccpipe up` writes Parquet files.
    unsafe
        Allow several statements of any kind, and access to other files and hosts.
    output
        table for people; json (one object per line), csv or parquet for programs.
    """
    if output == "parquet" and sys.stdout.isatty():
        raise UsageError("-o parquet writes binary data: redirect standard output to a file")
    from ccpipe.cli.query.run import QueryRun
    from ccpipe.cli.query.writers import WRITERS

    text = sys.stdin.read() if sql == "-" else sql
    where = dir_ or str(state_directory() / "up" / "parquet")
    if "://" not in where:
        where = str(Path(where).absolute())
    run = QueryRun(where, text, WRITERS[output](), is_unsafe=unsafe)
    try:
        unreadable = run.run()
    except MissingInputError as error:
        if dir_ is None:
            hint = "`ccpipe up` writes one every minute; --dir selects another directory"
            raise MissingInputError(f"{error} yet: {hint}") from None
        raise
    if unreadable:
        raise DataError(
            f"the result lacks the rows of {plural(len(unreadable), 'unreadable file')}"
        )
