"""The Parquet files of a directory as tables of DuckDB, while bridges write to it.

| table | a row for each | |
|---|---|---|
| ``samples`` | field of each line | all columns of the files |
| ``metrics`` | metric | lines with the field ``value``; ``unit`` is a column |
| ``events`` | event and log line | ``kind``, ``function``, ``loglevel``, ``text`` |
| ``jobs`` | job | joined from the events of its start and its stop |
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ccpipe.errors import MissingExtra, MissingInputError

try:
    import duckdb
    import pytz as _  # noqa: F401 - DuckDB needs it for timestamps without requiring it
except ImportError as missing:
    raise MissingExtra(missing.name or "duckdb", "query") from None

TRIES = 5
"""Number of attempts of a query if files are merged while it reads them."""

_SAMPLES = """
    CREATE OR REPLACE VIEW samples AS
    SELECT * REPLACE (time::TIMESTAMPTZ AS time)
    FROM read_parquet({files}, hive_partitioning = true, union_by_name = true,
                      hive_types = {{'cluster': VARCHAR}})
"""

_VIEWS = """
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

Answer = TypeVar("Answer")


def run_query(directory: Path, work: Callable[[duckdb.DuckDBPyConnection], Answer]) -> Answer:
    """Call `work` with a connection that has the tables; again if files were removed meanwhile.

    Raises MissingInputError without files.
    """
    for trial in range(TRIES):
        try:
            with tables(directory) as connection:
                return work(connection)
        except duckdb.IOException:
            if trial == TRIES - 1:
                raise
    raise AssertionError  # the last attempt returns or raises


@contextlib.contextmanager
def tables(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection that has the tables, of the files that exist now."""
    with duckdb.connect() as connection:
        _make_tables(connection, directory)
        yield connection


def _make_tables(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    files = {str(path) for path in directory.glob("cluster=*/date=*/*.parquet")}
    if not files:
        raise MissingInputError(f"{directory}: no Parquet files")
    connection.execute(_SAMPLES.format(files=_list(without_replaced(connection, files))))
    connection.execute(_VIEWS)


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
