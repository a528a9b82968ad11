"""``ccpipe jobs`` beside a real broker: lists, filters, and the report of one job."""

import csv
import io
import json
import re
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccpipe.bus.nats import connection
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.cli.jobs.read import stored_jobs
from ccpipe.cli.jobs.report_text import write_report
from ccpipe.config import Bus, Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.history.energy import SharedPower
from ccpipe.history.interfaces import MetricCurve, MetricCurves, MetricStatistics
from ccpipe.history.report import report
from ccpipe.jobs import Job, JobNode, message
from ccpipe.message import Message, event, metric
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.telemetry import Telemetry
from tests.cli.command import Ended, ccpipe, finished, on_terminal

SECOND = 10**9
NOW = int(time.time())


def job(number: int, ago: int, seconds: int = 0, **given: Any) -> Job:
    """Return a job that started some time ago, and runs unless it took `seconds`."""
    start = NOW - ago
    given = {"user": "anna", "partition": "main", "nodes": (JobNode("n1"),), **given}
    given.setdefault("state", "completed" if seconds else "running")
    end = (start + seconds) * SECOND if seconds else 0
    return Job(cluster="fox.test", id=number, start=start * SECOND, end=end, **given)


JOBS = (
    job(1, 17119, name="cfd"),
    job(2, 7200, 3600, user="bo", partition="gpu", accelerators=4),
    job(3, 7200, 1800, state="timeout", nodes=(JobNode("n1"), JobNode("n2"))),
    job(4, 20 * 86400, 3600),
    job(5, 90000, 86400, name="a name \x1b[31m that is far too long for a terminal of 80 columns"),
)


@pytest.fixture
async def stored(site: Site) -> Site:
    """A site whose stream has the events of these jobs, and one of another kind."""
    events = [message("start_job", each) for each in JOBS]
    events += [message("stop_job", each) for each in JOBS if each.end]
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        await sink.write(to_lines(events))
    return site


async def run(site: Site, *words: str) -> Ended:
    return await finished("jobs", *words, "--server", site.bus.servers[0], "--cluster", "fox.test")


async def numbers(site: Site, *words: str) -> list[int]:
    done = await run(site, *words, "-o", "json")
    assert done.code == 0, done.err
    return [json.loads(line)["job"] for line in done.out.splitlines()]


async def test_jobs_lists_running_jobs_first(stored: Site) -> None:
    """Those of a user within a week, in 80 columns, with escaped names."""
    done = await run(stored, "--user", "anna")
    assert done.code == 0, done.err
    head, *rows = done.out.splitlines()
    assert " ".join(head.split()) == "JOB USER PARTITION NAME STATE NODES STARTED ELAPSED"
    assert [row.split()[0] for row in rows] == ["1", "5", "3"]
    assert re.fullmatch(r"4:[45]\d:\d\d", rows[0].split()[-1])
    assert [row.split()[-1] for row in rows[1:]] == ["1-00:00:00", "0:30:00"]
    assert max(map(len, done.out.splitlines())) == 80
    assert "\x1b" not in done.out


async def test_jobs_filters(stored: Site) -> None:
    """By every option; several values match any of them."""
    assert await numbers(stored, "--all") == [1, 2, 5, 3]
    assert await numbers(stored, "-u", "anna", "-u", "bo", "--running") == [1]
    assert await numbers(stored, "-a", "--state", "TIMEOUT", "--state", "failed") == [3]
    assert await numbers(stored, "-a", "--partition", "gpu") == [2]
    assert await numbers(stored, "-a", "--node", "n[2-9]") == [3]
    assert await numbers(stored, "-a", "--since", "30d", "--until", "10d") == [4]
    assert await numbers(stored, "-a", "--sort", "duration", "--count", "2") == [5, 1]
    assert await numbers(stored, "-a", "--sort", "user") == [5, 1, 3, 2]


async def test_jobs_writes_json_and_csv(stored: Site) -> None:
    """Times are seconds since the epoch; the stop of a job that runs is missing."""
    done = await run(stored, "-u", "bo", "-o", "json")
    row = json.loads(done.out)
    assert (row["cluster"], row["start"], row["stop"]) == ("fox.test", NOW - 7200, NOW - 3600)
    assert (row["duration"], row["nodes"], row["gpus"], row["state"]) == (3600, 1, 4, "completed")
    assert "energy" not in row
    done = await run(stored, "-u", "anna", "-r", "-o", "csv")
    [running] = csv.DictReader(io.StringIO(done.out))
    assert (running["job"], running["name"], running["stop"]) == ("1", "cfd", "")


def queued(**payload: Any) -> Message:
    text = json.dumps({"cluster": "fox.test", "user": "anna", **payload})
    return event("jobpending", "jobpending", text, time=NOW * SECOND, tags={"cluster": "fox.test"})


@pytest.fixture
async def waiting(stored: Site) -> Site:
    """The same site with two jobs and an array that wait, one of which was cancelled since."""
    jobs = [
        {"jobId": 8, "jobName": "cfd", "partition": "main", "numNodes": 4, "walltime": 7200,
         "submitTime": NOW - 60, "reason": "ReqNodeNotAvail, UnavailableNodes:n[1-400]"},
        {"jobId": 9, "arrayTasks": 20, "reason": "Priority"},
        {"jobId": 10},
    ]  # fmt: skip
    async with NatsSink(site=stored, telemetry=Telemetry()) as sink:
        await sink.write(to_lines([queued(pending=jobs)]))
        await sink.write(to_lines([queued(left=[{"jobId": 10, "jobState": "cancelled"}])]))
    return stored


async def test_jobs_lists_pending_jobs_after_running_ones(waiting: Site) -> None:
    """With the reason in place of the start."""
    assert await numbers(waiting, "-u", "anna") == [1, 9, 8, 5, 3]
    assert await numbers(waiting, "-u", "anna", "--running") == [1]
    assert await numbers(waiting, "-u", "bo", "--state", "pending") == []
    done = await run(waiting, "--user", "anna")
    assert "9 (20)" in done.out
    assert "(Priority)" in done.out
    assert "(ReqNodeNotAva…)" in done.out


async def test_jobs_lists_what_pending_jobs_request(waiting: Site) -> None:
    done = await run(waiting, "--all", "--state", "pending", "--sort", "job")
    head, array, plain = done.out.splitlines()
    assert head.split() == [
        "JOB", "USER", "PARTITION", "NAME", "NODES", "LIMIT", "SUBMITTED", "REASON",
    ]  # fmt: skip
    assert array.split()[-1] == "Priority"
    assert plain.split()[:6] == ["8", "anna", "main", "cfd", "4", "2:00:00"]
    assert max(map(len, done.out.splitlines())) <= 80
    done = await run(waiting, "-a", "--state", "pending", "-o", "json")
    rows = {row["job"]: row for row in map(json.loads, done.out.splitlines())}
    assert (rows[8]["start"], rows[8]["submit"], rows[9]["tasks"]) == (None, NOW - 60, 20)


async def test_jobs_shows_one_pending_job(waiting: Site) -> None:
    done = await run(waiting, "8")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "Job 8 on fox.test: pending"
    assert "  requested  4 nodes\n" in done.out
    assert "  limit      2:00:00\n" in done.out
    assert "  reason     ReqNodeNotAvail, UnavailableNodes:n[1-400]\n" in done.out
    assert json.loads((await run(waiting, "9", "-o", "json")).out)["reason"] == "Priority"


async def test_jobs_without_a_job_says_how_to_find_some(stored: Site) -> None:
    done = await run(stored, "--user", "nobody")
    assert (done.code, done.out) == (0, "")
    assert "no jobs of nobody: --all shows those of all users" in done.err


async def test_jobs_shows_one_job(stored: Site) -> None:
    done = await run(stored, "3")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "Job 3 on fox.test: timeout"
    assert "  nodes      2: n[1-2]\n" in done.out
    assert "  elapsed    0:30:00\n" in done.out
    assert "no store of metrics is configured" in done.err
    found = json.loads((await run(stored, "3", "-o", "json")).out)
    assert (found["hostnames"], found["state"], found["report"]) == (["n1", "n2"], "timeout", None)


async def test_jobs_rejects_unknown_job_and_misuse(stored: Site) -> None:
    """With the exit codes of sysexits.h."""
    done = await run(stored, "99")
    assert (done.code, done.err) == (66, "ccpipe: job 99: no event of its start is stored\n")
    done = await run(stored, "--state", "faild")
    assert done.code == 64
    assert "--state: invalid value 'faild'; did you mean 'failed'?" in done.err
    assert (await run(stored, "3", "--all")).code == 64
    assert (await run(stored, "3", "-o", "csv")).code == 64
    assert (await run(stored, "--all", "--user", "anna")).code == 64
    assert (await run(stored, "--count", "0")).code == 64


async def test_jobs_needs_stored_events(site: Site) -> None:
    """A broker without a stream of events has none to list."""
    done = await run(site, "--all")
    assert done.code == 69
    assert "no stream stores the events of fox.test" in done.err


def test_jobs_reports_missing_broker() -> None:
    done = ccpipe("jobs", "--server", "nats://127.0.0.1:1")
    assert done.code == 69
    assert "no NATS server answers at nats://127.0.0.1:1" in done.err


async def test_table_of_jobs_fits_narrow_terminal(stored: Site) -> None:
    """By cutting names."""
    words = ("--server", stored.bus.servers[0], "--cluster", "fox.test")
    done = on_terminal("jobs", "-a", *words, columns=72, NO_COLOR="1")
    assert max(map(len, done.out.splitlines())) <= 72
    assert "…" in done.out


def test_report_is_written_as_by_seff(capsys: pytest.CaptureFixture[str]) -> None:
    """With energy, findings and metrics, in 80 columns."""
    ended = job(3, 7200, 3600, state="timeout", walltime=3600, hwthreads=64, name="cfd")
    rows = [("cpu_used", 600.0), ("mem_used", 64e6), ("mem_total", 256e6), ("cpu_power", 250.0)]
    statistics = [MetricStatistics("n1", name, "", 9, v, v, v) for name, v in rows]
    watts = MetricCurve("", "cpu_power", "", np.array([250.0]), counts=np.array([1.0]))
    power = SharedPower(1.0, MetricCurves(np.array([ended.start / SECOND]), 3000.0, [watts]))
    write_report(ended, report(ended, statistics, [power], now=0, units={"mem_used": "kB"}))
    out = capsys.readouterr().out
    assert "  CPU        9.4 %: 6.0 of 64 hardware threads on average\n" in out
    assert "  memory     25.0 %: 59.6 GiB of 238 GiB at the peak of each node\n" in out
    energy = "0.208 kWh (7.5e+05 J) of 1 node, mean 250 W, measured for 0:50:00"
    assert f"  energy     {energy}\n" in out
    assert "  elapsed    1:00:00 of at most 1:00:00\n" in out
    assert "What went wrong:\n  - Reached its time limit of 1:00:00," in out
    assert "  METRIC      MINIMUM      MEAN   MAXIMUM\n" in out
    assert "  mem_used   59.6 GiB  59.6 GiB  59.6 GiB\n" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.fixture
async def parquet(tmp_path: Path) -> Path:
    """Files with the events of these jobs, and the power and CPU use of job 2 for an hour."""
    ended = JOBS[1]
    tags = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
    values = {"cpu_used": 800.0, "num_cpus": 16.0, "cpu_power": 120.0}
    lines = [message("start_job", each) for each in JOBS] + [message("stop_job", ended)]
    for time_ in range(ended.start, ended.end, 60 * SECOND):
        lines += [metric(name, value, time=time_, tags=tags) for name, value in values.items()]
    async with ParquetSink(dir=str(tmp_path / "parquet")) as sink:
        await sink.write(to_lines(lines))
    return tmp_path / "parquet"


def test_jobs_reads_store_without_broker(parquet: Path) -> None:
    """Jobs and their reports: 120 W for an hour are 0.12 kWh."""
    where = ("--history", parquet, "--server", "nats://127.0.0.1:1", "--cluster", "fox.test")
    done = ccpipe("jobs", 2, *where)
    assert done.code == 0, done.err
    assert "jobs are from the store only: no NATS server answers" in done.err
    assert "  CPU        50.0 %: 8.0 of 16 hardware threads on average\n" in done.out
    assert "  energy     0.12 kWh (4.32e+05 J) of 1 node, mean 120 W\n" in done.out
    found = json.loads(ccpipe("jobs", 2, "-o", "json", *where).out)
    assert found["report"]["energy"]["joules"] == 432000
    assert found["report"]["cpu"] == {"used": 8, "allocated": 16, "nodes": 1}
    done = ccpipe("jobs", "--all", "-o", "json", *where)
    assert [json.loads(line)["job"] for line in done.out.splitlines()] == [3, 1, 5, 2]


async def test_stored_jobs_waits_briefly_for_absent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a store has jobs, an answer does not take as long as connecting may."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 3600.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:  # accepts, and sends nothing
        address = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        site = Site(cluster="fox", bus=Bus(servers=[address]))
        with pytest.raises(UnavailableError, match="no NATS server answers"):
            await stored_jobs(site, briefly=True)
