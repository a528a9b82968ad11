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
async def lake(tmp_path: Path) -> Path:
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


def test_metrics(lake: Path) -> None:
    """Times compare, truncate and fall into buckets as DuckDB has them."""
    sql = """
        select time_bucket(interval 2 second, time) as bucket, hostname, unit, avg(value) as mean
        from metrics
        where time > timestamptz '2025-02-20 12:00:00Z' - interval 1 hour and time < now()
          and date_trunc('day', time) = timestamptz '2025-02-20 00:00:00Z'
        group by all order by bucket
    """
    done = ccpipe("query", sql, "--dir", lake, "-o", "json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert rows == [
        {"bucket": "2025-02-20T12:00:00Z", "hostname": "n1", "unit": "GB", "mean": 0.5},
        {"bucket": "2025-02-20T12:00:02Z", "hostname": "n1", "unit": "GB", "mean": 2.5},
    ]


def test_jobs(lake: Path) -> None:
    """A job is one row: its start, and its stop where it has ended."""
    sql = "select job_id, user, state, stop is null, nodes from jobs order by job_id"
    done = ccpipe("query", sql, "--dir", lake, "-o", "csv")
    rows = list(csv.reader(io.StringIO(done.out)))
    assert rows[1:] == [
        ["7", "ann", "failed", "false", '["n1","n2"]'],
        ["8", "ann", "running", "true", '["n1","n2"]'],
    ]


def test_a_table_for_people(lake: Path) -> None:
    """Numbers stand on the right, and no text reaches the terminal that would change it."""
    done = on_terminal("query", "select kind, loglevel, text from events", "--dir", lake)
    assert done.code == 0
    assert "\x1b[31m" not in done.out
    assert "odd" in done.out


async def test_files_that_were_replaced(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted once where a writer was killed between joining and removing."""
    monkeypatch.setattr(files, "remove", lambda *_: None)
    async with ParquetSink(dir=str(lake), compact=False) as sink:
        for number in range(files.JOINED):
            await sink.write(to_lines([metric(float(number), cluster="joined")]))
    (directory,) = lake.glob("cluster=joined/*")
    assert files.join_files(lake, directory, "zstd")
    sql = "select count(*) from metrics where cluster = 'joined'"
    done = ccpipe("query", sql, "--dir", lake, "-o", "csv")
    assert done.out.split() == ["count_star()", str(files.JOINED)], done.err


def test_what_is_missing_or_wrong(tmp_path: Path, lake: Path) -> None:
    """An empty directory is missing input, and invalid SQL a usage error; one line reports it."""
    empty = ccpipe("query", "select 1", "--dir", tmp_path / "nowhere")
    assert (empty.code, empty.out) == (66, "")
    assert "no Parquet files" in empty.err
    assert empty.err.count("\n") == 1
    wrong = ccpipe("query", "select nothing from metrics", "--dir", lake)
    assert (wrong.code, wrong.out) == (64, "")
    assert '"nothing" not found' in wrong.err
    for sql, number in ("", 0), ("select 1; select 2", 2):
        many = ccpipe("query", sql, "--dir", lake)
        assert (many.code, many.out) == (64, "")
        assert f"expected one SQL statement, not {number}" in many.err
    from_stdin = ccpipe("query", "-", "--dir", lake, "-o", "csv", stdin=b"select 1 as one")
    assert from_stdin.out == "one\n1\n"


def test_no_value(lake: Path) -> None:
    """What is null is empty in a table, and null in JSON."""
    done = ccpipe("query", "select null as none", "--dir", lake, "-o", "json")
    assert done.out == '{"none":null}\n'


def test_types_that_csv_has_not(lake: Path) -> None:
    """Times are ISO 8601, lists and tables JSON; a text is not quoted without need."""
    sql = "select timestamptz '2026-01-01 00:00Z' t, [1, 2] l, {'a': null} s, true b, 'x' x, null n"
    done = ccpipe("query", sql, "--dir", lake, "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(done.out))
    assert row == {
        "t": "2026-01-01T00:00:00Z",
        "l": "[1,2]",
        "s": '{"a":null}',
        "b": "true",
        "x": "x",
        "n": "",
    }
