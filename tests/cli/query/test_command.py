"""``ccpipe query``: SQL over the files of a bridge, while it writes."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pyarrow.parquet
import pytest

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.jobs import Job, JobNode, message
from ccpipe.message import event, log
from ccpipe.sinks.parquet import ParquetSink, files
from tests.cli.command import ccpipe, command, environment, on_terminal
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
    """Times are ISO 8601 in UTC, lists and tables JSON; text is quoted only if needed."""
    sql = """
        select timestamptz '2026-01-01 01:00+01' t, [1, 2] l, {'a': null} s, true b, 'x' x, null n,
               'a "b", c' q, 1.5::decimal(3, 2) d, timestamptz 'infinity' i
    """
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "csv", TZ="Europe/Berlin")
    assert done.out == (
        "t,l,s,b,x,n,q,d,i\n"
        '2026-01-01T00:00:00Z,"[1,2]","{""a"":null}",true,x,,"a ""b"", c",1.50,infinity\n'
    )


def test_query_prints_types_unknown_to_json(parquet_files: Path) -> None:
    """Values that are not finite are null; a name that occurs twice gets a number."""
    sql = "select 'nan'::double n, 1.5::decimal(3, 2) d, [1] l, {'a': 'b'} s, 1 A, 2 a, true t"
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "json")
    assert json.loads(done.out) == {
        "n": None, "d": 1.5, "l": [1], "s": {"a": "b"}, "A": 1, "a_1": 2, "t": True,
    }  # fmt: skip


def test_query_writes_parquet(parquet_files: Path, tmp_path: Path) -> None:
    """With the types of the columns; a terminal would show binary data, and is refused."""
    sql = "select time, hostname, value, tags from metrics order by time"
    target = tmp_path / "out.parquet"
    with target.open("wb") as file:
        arguments = ("query", sql, "--dir", parquet_files, "-o", "parquet")
        subprocess.run(command(*arguments), stdout=file, check=True, env=environment())
    table = pyarrow.parquet.read_table(target)
    assert table.column("value").to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert table.schema.field("time").type == pyarrow.timestamp("us", tz="UTC")
    refused = on_terminal("query", sql, "--dir", parquet_files, "-o", "parquet")
    assert (refused.code, refused.out) == (64, "")
    assert "redirect standard output to a file" in refused.err
    sql = "select interval 1 hour as i"
    other = ccpipe("query", sql, "--dir", parquet_files, "-o", "parquet")
    assert other.code == 64
    assert "cast the column to VARCHAR" in other.err


def test_query_table_fits_terminal(parquet_files: Path) -> None:
    """Texts are cut, numbers are not; columns that do not fit are named."""
    sql = f"select '{'long ' * 40}' as text, 123456 as number, 'b' as short"
    done = on_terminal("query", sql, "--dir", parquet_files, columns=40, NO_COLOR="1")
    head, row = done.out.splitlines()
    assert head.endswith("  number  short")
    assert row.startswith("long long ")
    assert row.endswith("…  123456  b")
    assert max(len(head), len(row)) <= 40
    sql = "select * from samples limit 1"
    wide = on_terminal("query", sql, "--dir", parquet_files, columns=40, NO_COLOR="1")
    assert all(len(line) <= 40 for line in wide.out.splitlines())
    assert "not shown for lack of width: " in wide.err
    piped = ccpipe("query", f"select '{'long ' * 40}' as text", "--dir", parquet_files)
    assert "long " * 39 in piped.out


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_query_escapes_names_of_columns_for_terminals(parquet_files: Path, output: str) -> None:
    sql = 'select 1 as "a\x1b[31mb"'
    arguments = ("query", sql, "--dir", parquet_files, "-o", output)
    done = on_terminal(*arguments, NO_COLOR="1")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "[31mb" in done.out


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("copy metrics to 'evil'", "COPY is refused"),
        ("with x as (copy (select 1) to 'evil') select * from x", "COPY statement must be at"),
        ("with x as (copy (select 1) to '{file}') from x", "COPY statement must be at"),
        ("pivot (with x as (copy (select 1) to 'evil') from x) on c", "PIVOT needs the values"),
        ("with x as (copy (select 1) to 'evil') pivot metrics on name", "PIVOT needs the values"),
        ("explain analyze copy (select 1) to '{file}'", "EXPLAIN is refused"),
        ("prepare p as copy metrics to 'evil'", "PREPARE is refused"),
        ("execute p", "EXECUTE is refused"),
        ("export database 'evil'", "EXPORT is refused"),
        ("attach 'evil'", "ATTACH is refused"),
        ("install httpfs", "LOAD is refused"),
        ("load httpfs", "LOAD is refused"),
        ("update extensions", "is refused"),
        ("set enable_external_access = true", "SET is refused"),
        ("pragma threads = 1", "SET is refused"),
        ("call pragma_version()", "CALL is refused"),
        ("create table evil as select 1", "CREATE is refused"),
        ("create secret evil (type s3)", "CREATE is refused"),
        ("select * from read_csv('/etc/passwd')", "Cannot access file"),
        ("from read_text('/etc/passwd')", "Cannot access file"),
        ("from read_text('{file}/../../../../x')", "Cannot access file"),
        ("from read_parquet('{directory}/**/*.parquet')", "Cannot access file"),
        ("from sniff_csv('/etc/passwd')", "Cannot access file"),
        ("from glob('/etc/*')", "Cannot access file"),
        ("from read_json('http://localhost/')", "Cannot access file"),
        ("from '/etc/passwd'", "Table with name /etc/passwd does not exist"),
        ("from query($$copy metrics to 'evil'$$)", "Expected a single SELECT"),
        ("select getenv('HOME')", "getenv does not exist"),
        ("select 1) union all (select 2", "syntax error"),
    ],
)
def test_query_refuses_statement_that_does_more_than_read_tables(
    parquet_files: Path, monkeypatch: pytest.MonkeyPatch, sql: str, reason: str
) -> None:
    """Nothing is written, not even to the files of the tables."""
    monkeypatch.chdir(parquet_files)
    before = contents(parquet_files)
    path = next(parquet_files.glob("*/*/*.parquet"))
    done = ccpipe("query", sql.format(file=path, directory=parquet_files), "--dir", parquet_files)
    assert (done.code, done.out) == (64, ""), done.err
    assert reason in done.err
    assert contents(parquet_files) == before


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_query_runs_any_statements_if_unsafe(parquet_files: Path, tmp_path: Path) -> None:
    """The rows of the last one are printed."""
    target = tmp_path / "out.csv"
    sql = f"copy (select 7 as seven) to '{target}'; from '{target}'"  # noqa: S608
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "csv", "--unsafe")
    assert (done.code, done.out) == (0, "seven\n7\n"), done.err
    assert target.read_text() == "seven\n7\n"
    assert ccpipe("query", "", "--dir", parquet_files, "--unsafe").code == 0


def test_query_reads_statement_with_comments(parquet_files: Path) -> None:
    for sql in "select 1 as one; -- comment", "-- comment\nselect 1 as one -- ;", "(select 1 one);":
        done = ccpipe("query", sql, "--dir", parquet_files, "-o", "csv")
        assert (done.code, done.out) == (0, "one\n1\n"), done.err


def test_query_reads_other_files_if_one_is_unreadable(parquet_files: Path) -> None:
    """It is named on stderr, and the exit code is that of bad data."""
    bad = next(parquet_files.glob("*/*/*.parquet")).with_name("bad.parquet")
    bad.write_bytes(b"interrupted by a power failure")
    sql = "select count(*) as n from metrics"
    done = ccpipe("query", sql, "--dir", parquet_files, "-o", "csv")
    assert (done.code, done.out) == (65, "n\n4\n")
    assert f"{bad} is left out: " in done.err
    assert "the result lacks the rows of 1 unreadable file" in done.err


async def test_query_names_file_that_is_damaged(tmp_path: Path) -> None:
    """Damage that shows while rows are read is bad data, and not the fault of the statement."""
    async with ParquetSink(dir=str(tmp_path), compact=False) as sink:
        await sink.write(to_lines([metric(n**0.5, time=NOON + n * SECOND) for n in range(20_000)]))
    (path,) = tmp_path.glob("*/*/*.parquet")
    data = path.read_bytes()
    start, stop = len(data) // 10, len(data) * 8 // 10
    path.write_bytes(data[:start] + bytes(stop - start) + data[stop:])
    done = ccpipe("query", "from metrics", "--dir", tmp_path, "-o", "csv")
    assert done.code == 65
    assert f"{path}: damaged: " in done.err


@pytest.mark.parametrize("output", ["table", "csv", "json", "parquet"])
def test_query_streams_and_stops_at_interrupt(parquet_files: Path, output: str) -> None:
    """Rows arrive while the query runs; Ctrl-C stops it although nobody reads its output."""
    sql = "select * from metrics, range(1_000_000_000)"
    with started("query", sql, "--dir", parquet_files, "-o", output) as process:
        assert process.stdout is not None
        assert process.stdout.read(10)
        assert interrupted(process) == 130


def test_query_without_rows_yet_stops_at_interrupt(parquet_files: Path) -> None:
    sql = (
        "select count(*) from range(1_000_000_000) a, metrics b where a.range < b.value + random()"
    )
    with started("query", sql, "--dir", parquet_files) as process:
        time.sleep(2)
        assert interrupted(process) == 130
        assert process.communicate() == (b"", b"")


def started(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )


def interrupted(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code after Ctrl-C, which must not take long."""
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    code = process.wait(60)
    assert time.monotonic() - begin < 5
    return code


def test_query_stops_if_reader_exits_or_disk_is_full(parquet_files: Path) -> None:
    sql = "select * from metrics, range(1_000_000_000)"
    arguments = command("query", sql, "--dir", parquet_files, "-o", "csv")
    with started(*arguments[3:]) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) == 0
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            arguments, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert done.returncode == 74
    assert done.stderr == b"ccpipe: standard output: No space left on device\n"


def test_query_memory_is_bounded_for_many_rows(parquet_files: Path) -> None:
    """Two million rows of 1 kB take less than half of their size."""
    sql = "select repeat('x', 1000) as text, range from range(2_000_000)"
    arguments = command("query", sql, "--dir", parquet_files, "-o", "csv")
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss < 1_000_000


def test_query_shows_progress_on_terminal(parquet_files: Path) -> None:
    """If it takes longer than two seconds."""
    sql = "select * from range(1_000_000_000)"
    arguments = command("query", sql, "--dir", parquet_files, "-o", "csv")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=theirs, env=environment()
    ) as process:
        os.close(theirs)
        drawn = b""
        while drawn.count(b"query: ") < 2:
            drawn += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    os.close(ours)
    assert re.search(rb"query: [0-9 ]+ rows, [0-9]+ %, [0-9]+ s", drawn), drawn
