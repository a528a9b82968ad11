"""The Parquet files of a directory as tables of DuckDB."""

import re
from pathlib import Path
from unittest.mock import ANY

import duckdb
import pytest

from ccpipe.errors import DataError, MissingInputError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, event, metric
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sources.stored.parquet_tables import make_tables, restrict, tables

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
    with pytest.raises(MissingInputError, match="no Parquet files"), tables(tmp_path):
        pass


async def test_unreadable_file_is_left_out_and_named(tmp_path: Path) -> None:
    """Its reason is returned; ``tables``, which must be complete, raises DataError with it."""
    await lake(tmp_path, metric("m", 1.0, time=NOON, tags=TAGS))
    (good,) = tmp_path.glob("*/*/*.parquet")
    bad = good.with_name("bad.parquet")
    bad.write_bytes(b"no Parquet file")
    with duckdb.connect() as connection:
        assert make_tables(connection, tmp_path) == ([str(good)], {str(bad): ANY})
        assert connection.execute("SELECT count(*) FROM metrics").fetchall() == [(1,)]
    with pytest.raises(DataError, match=re.escape(str(bad))), tables(tmp_path):
        pass
    good.unlink()
    with duckdb.connect() as connection, pytest.raises(DataError, match=re.escape(str(bad))):
        make_tables(connection, tmp_path)


async def test_restricted_connection_reads_its_files_only(tmp_path: Path) -> None:
    """Nor can it write other files, or lift the restriction."""
    await lake(tmp_path, metric("m", 1.0, time=NOON, tags=TAGS))
    with duckdb.connect() as connection:
        files, _ = make_tables(connection, tmp_path)
        restrict(connection, files)
        assert connection.execute("SELECT count(*) FROM metrics").fetchall() == [(1,)]
        for statement in (
            "FROM read_text('/etc/passwd')",
            f"FROM read_text('{files[0]}/../../../../x')",
            f"COPY metrics TO '{tmp_path}/x.csv'",
            "ATTACH 'x.db'",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error, match=r"disabled by configuration|locked|while"):
                connection.execute(statement)


async def test_path_with_quotes_is_read(tmp_path: Path) -> None:
    directory = await lake(tmp_path / "it's", metric("m", 1.0, time=NOON, tags=TAGS))
    with tables(directory) as connection:
        assert connection.execute("FROM samples").fetchall()
