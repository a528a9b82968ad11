"""The Parquet files of a directory as tables of DuckDB, while bridges write to it.

| table | a row for each | |
|---|---|---|
| ``samples`` | field of each line | all columns of the files |
| ``metrics`` | metric | lines with the field ``value``; ``unit`` is a column |
| ``events`` | event and log line | ``kind``, ``function``, ``loglevel``, ``text`` |
| ``jobs`` | job | joined from the events of its start and its stop |
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError, MissingExtra, MissingInputError

try:
    import duckdb
    import pytz as _  # noqa: F401 - DuckDB needs it for timestamps without requiring it
except ImportError as missing:
    raise MissingExtra(missing.name or "duckdb", "query") from None

TABLES = ("metrics", "events", "jobs", "samples")

TRIES = 5
"""Number of attempts of a query if files are merged while it reads them."""

_SAMPLES = """
    CREATE OR REPLACE VIEW samples AS
    SELECT * REPLACE (time::TIMESTAMPTZ AS time)
    FROM read_parquet({files}, hive_partitioning = true, union_by_name = true,
                      hive_types = {{'cluster': VARCHAR}})
"""

VIEWS = """
    CREATE OR REPLACE VIEW metrics AS
    SELECT time, cluster, hostname, name, type, type_id, stype, stype_id, value,
           tags['unit'] AS unit, tags, date
    FROM samples WHERE field = 'value';

    CREATE OR REPLACE VIEW events AS
    SELECT time, cluster, hostname, name, field AS kind, tags['function'] AS function,
           tags['loglevel'] AS loglevel, text, type, type_id, tags, date
    FROM samples WHERE field IN ('event', 'log');

    CREATE OR REPLACE VIEW jobs AS
    WITH said AS (
        SELECT function, TRY_CAST(text AS JSON) AS job FROM events
        WHERE name = 'job' AND kind = 'event' AND function IN ('start_job', 'stop_job')
    )
    SELECT job->>'cluster' AS cluster,
           TRY_CAST(job->>'jobId' AS BIGINT) AS job_id,
           to_timestamp(TRY_CAST(job->>'startTime' AS BIGINT)) AS start,
           to_timestamp(max(TRY_CAST(job->>'stopTime' AS BIGINT))) AS stop,
           coalesce(max(nullif(job->>'jobState', '')), 'running') AS state,
           max(job->>'user') AS "user",
           max(job->>'project') AS project,
           max(job->>'partition') AS partition,
           max(TRY_CAST(job->>'numNodes' AS INTEGER)) AS num_nodes,
           max(TRY_CAST(job->>'numHwthreads' AS INTEGER)) AS num_hwthreads,
           max(TRY_CAST(job->>'numAcc' AS INTEGER)) AS num_acc,
           max(job->>'$.resources[*].hostname') AS nodes
    FROM said WHERE job IS NOT NULL
    GROUP BY ALL;
"""

# Of files merged meanwhile, or whose writer was killed, rows may be in two files.
_REPLACED = """
    SELECT parse_path(file_name)[:-2], unnest(from_json(decode(value), '["VARCHAR"]'))
    FROM parquet_kv_metadata({joined}) WHERE decode(key) = 'ccpipe.replaces'
"""


@contextlib.contextmanager
def tables(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection that has the tables, of the files that exist now.

    Raises MissingInputError without files, and DataError if one cannot be read.
    """
    with duckdb.connect() as connection:
        _, unreadable = make_tables(connection, directory)
        for path, reason in unreadable.items():
            raise DataError(f"{path}: {reason}")
        yield connection


def make_tables(
    connection: duckdb.DuckDBPyConnection, directory: Path
) -> tuple[list[str], dict[str, str]]:
    """Create the tables; return the files that they read, and those left out with the reasons.

    A file is left out if it cannot be read. Raises MissingInputError without files, and DataError
    if all are left out.
    """
    files = {str(path) for path in directory.glob("cluster=*/date=*/*.parquet")}
    if not files:
        raise MissingInputError(f"{directory}: no Parquet files")
    unreadable: dict[str, str] = {}
    try:
        readable = _create_views(connection, files)
    except duckdb.Error:
        unreadable = _unreadable(connection, files)
        if not unreadable:
            raise
        if files == unreadable.keys():
            path, reason = min(unreadable.items())
            raise DataError(f"{path}: {reason}") from None
        readable = _create_views(connection, files - unreadable.keys())
    return readable, unreadable


def restrict(connection: duckdb.DuckDBPyConnection, files: list[str]) -> None:
    """Allow a connection to read these files and no others; its settings are final."""
    connection.execute(f"SET allowed_paths = {_list(files)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _create_views(connection: duckdb.DuckDBPyConnection, files: set[str]) -> list[str]:
    kept = without_replaced(connection, files)
    connection.execute(_SAMPLES.format(files=_list(kept)))
    connection.execute(VIEWS)
    return kept


def _unreadable(connection: duckdb.DuckDBPyConnection, files: set[str]) -> dict[str, str]:
    """Return the existing files that are no Parquet files or cannot be opened, with the reasons."""
    reasons = {}
    for path in sorted(files):
        try:
            connection.execute("SELECT * FROM read_parquet(?) LIMIT 0", [path])
        except duckdb.Error as error:
            if Path(path).exists():
                reasons[path] = str(error).strip().splitlines()[0].replace(f" '{path}'", "")
    return reasons


def without_replaced(connection: duckdb.DuckDBPyConnection, files: set[str]) -> list[str]:
    """Return files in order, without those whose rows are in another of them as well."""
    joined = sorted(path for path in files if path.endswith("-joined.parquet"))
    if not joined:
        return sorted(files)
    replaced = connection.execute(_REPLACED.format(joined=_list(joined))).fetchall()
    names = {"/".join([*parts, name]).replace("//", "/", 1) for parts, name in replaced}
    return sorted(files - names)


def _list(paths: list[str]) -> str:
    return "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in paths) + "]"
