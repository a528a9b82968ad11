"""The Parquet files of a directory as tables of DuckDB."""

from pathlib import Path

import duckdb
import pytest

from ccpipe.errors import MissingInputError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, event, metric
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sources.stored.parquet_tables import TRIES, run_query, tables

NOON = 1_740_052_800 * 10**9
TAGS = {"cluster": "fox", "hostname": "n1"}


async def lake(directory: Path, *records: Message) -> Path:
    async with ParquetSink(dir=str(directory)) as sink:
        await sink.write(to_lines(list(records)))
    return directory


async def test_metrics_events_and_jobs_are_tables(tmp_path: Path) -> None:
    """A job is one row, of its start and its stop; invalid JSON makes no row."""
    start = '{"jobId":7,"cluster":"fox","startTime":1740052800,"user":"ann"}'
    stop = start[:-1] + ',"stopTime":1740052860,"jobState":"completed"}'
    await lake(
        tmp_path,
        metric("m", 1.5, time=NOON, tags=TAGS | {"unit": "W"}),
        event("job", "start_job", start, time=NOON, tags=TAGS),
        event("job", "stop_job", stop, time=NOON + 1, tags=TAGS),
        event("job", "start_job", "{broken", time=NOON, tags=TAGS),
    )
    with tables(tmp_path) as connection:
        ask = connection.execute
        assert ask("SELECT name, value, unit, cluster FROM metrics").fetchall() == [
            ("m", 1.5, "W", "fox")
        ]
        assert ask("SELECT count(*) FROM events").fetchall() == [(3,)]
        assert ask('SELECT job_id, state, "user" FROM jobs').fetchall() == [(7, "completed", "ann")]


def test_directory_without_files_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no Parquet files"):
        run_query(tmp_path, lambda _: None)


async def test_query_is_repeated_if_files_were_removed(tmp_path: Path) -> None:
    """A bridge may merge files at any time; a query that fails each time is an error in the end."""
    await lake(tmp_path, metric("m", 1.0, time=NOON, tags=TAGS))
    tried = 0

    def work(connection: duckdb.DuckDBPyConnection) -> int:
        nonlocal tried
        tried += 1
        if tried < TRIES:
            raise duckdb.IOException("No such file")
        return len(connection.execute("FROM samples").fetchall())

    assert run_query(tmp_path, work) == 1
    tried = -TRIES
    with pytest.raises(duckdb.IOException):
        run_query(tmp_path, work)


async def test_path_with_quotes_is_read(tmp_path: Path) -> None:
    directory = await lake(tmp_path / "it's", metric("m", 1.0, time=NOON, tags=TAGS))
    assert run_query(directory, lambda connection: connection.execute("FROM samples").fetchall())
