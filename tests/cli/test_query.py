"""``ccpipe query``: SQL over the files of a bridge, while it writes."""

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.jobs import Job, JobNode, message
from ccpipe.message import event, log
from ccpipe.sinks.parquet import ParquetSink, files
from tests.cli.command import ccpipe, on_terminal
from tests.sinks.conftest import NOON, SECOND, metric


@pytest.fixture
async def parquet_files(tmp_path: Path) -> Path:
    """Files with metrics, a log line and two jobs, of which one runs."""
    nodes = (JobNode("n1"), JobNode("n2"))
    running = Job(cluster="fox", id=8, user="ann", start=NOON, nodes=nodes)
    done = msgspec.structs.replace(running, id=7, end=NOON + 60 * SECOND, state="failed")
    async with ParquetSink(dir=str(tmp_path)) as sink:
        await sink.write(
            to_lines([metric(float(n), time=NOON + n * SECOND, unit="GB") for n in range(4)])
        )
        await sink.write(
            to_lines(
                [
                    message("start_job", done),
                    message("stop_job", done),
                    message("start_job", running),
                    log("slurmd", "warn", "odd \x1b[31m text", time=NOON, tags={}),
                    event("job", "start_job", "no JSON", time=NOON, tags={}),
                ]
            )
        )
    return tmp_path


def test_query_reads_metrics(parquet_files: Path) -> None:
    """Times compare, truncate and fall into buckets as in DuckDB."""
    sql = """
        select time_bucket(interval 2 second, time) as bucket, hostname, unit, avg(value) as mean
        from metrics
        where time > timestamptz '2025-02-20 12:00:00Z' - interval 1 hour and time < now()
          and date_trunc('day', time) = timestamptz '2025-02-20 00:00:00Z'
        group by all order by bucket
    """
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert rows == [
        {"bucket": "2025-02-20T12:00:00Z", "hostname": "n1", "unit": "GB", "mean": 0.5},
        {"bucket": "2025-02-20T12:00:02Z", "hostname": "n1", "unit": "GB", "mean": 2.5},
    ]


def test_query_reads_jobs(parquet_files: Path) -> None:
    """A job is one row: its start, and its stop if it has ended."""
    sql = "select job_id, user, state, stop is null, nodes from jobs order by job_id"
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "csv")
    rows = list(csv.reader(io.StringIO(done.out)))
    assert rows[1:] == [
        ["7", "ann", "failed", "false", '["n1","n2"]'],
        ["8", "ann", "running", "true", '["n1","n2"]'],
    ]


def test_query_prints_table(parquet_files: Path) -> None:
    """Numbers are right-aligned, and control characters are escaped."""
    done = on_terminal("query", "select kind, loglevel, text from events", "--dir", parquet_files)
    assert done.code == 0
    assert "\x1b[31m" not in done.out
    assert "odd" in done.out


async def test_query_counts_rows_of_replaced_files_once(
    parquet_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a writer was killed between merging files and removing the old ones."""
    monkeypatch.setattr(files, "remove", lambda *_: None)
    async with ParquetSink(dir=str(parquet_files), compact=False) as sink:
        for number in range(files.JOINED):
            await sink.write(to_lines([metric(float(number), cluster="joined")]))
    (directory,) = parquet_files.glob("cluster=joined/*")
    assert files.join_files(parquet_files, directory, "zstd")
    sql = "select count(*) from metrics where cluster = 'joined'"
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "csv")
    assert done.out.split() == ["count_star()", str(files.JOINED)], done.err


def test_query_reports_missing_input_and_invalid_sql(tmp_path: Path, parquet_files: Path) -> None:
    """An empty directory is missing input, and invalid SQL a usage error; one line reports it."""
    empty = ccpipe("query", "select 1", "--dir", tmp_path / "nowhere")
    assert (empty.code, empty.out) == (66, "")
    assert "no Parquet files" in empty.err
    assert empty.err.count("\n") == 1
    wrong = ccpipe("query", "select nothing from metrics", "--dir", parquet_files)
    assert (wrong.code, wrong.out) == (64, "")
    assert '"nothing" not found' in wrong.err
    for sql, number in ("", 0), ("select 1; select 2", 2):
        many = ccpipe("query", sql, "--dir", parquet_files)
        assert (many.code, many.out) == (64, "")
        assert f"expected one SQL statement, not {number}" in many.err
    from_stdin = ccpipe("query", "-", "--dir", parquet_files, "-o", "csv", stdin=b"select 1 as one")
    assert from_stdin.out == "one\n1\n"


def test_query_prints_null_as_empty_cell_or_json_null(parquet_files: Path) -> None:
    done = ccpipe("query", "select null as none", "--dir", parquet_files, "-o", "json")
    assert done.out == '{"none":null}\n'


def test_query_prints_types_unknown_to_csv(parquet_files: Path) -> None:
    """Times are ISO 8601, lists and tables JSON; text is quoted only if needed."""
    sql = "select timestamptz '2026-01-01 00:00Z' t, [1, 2] l, {'a': null} s, true b, 'x' x, null n"
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(done.out))
    assert row == {
        "t": "2026-01-01T00:00:00Z",
        "l": "[1,2]",
        "s": '{"a":null}',
        "b": "true",
        "x": "x",
        "n": "",
    }
