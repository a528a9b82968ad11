"""The index of jobs: what it keeps, its searches beside a plain filter, and broken files."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.errors import UnavailableError, UsageError
from ccpipe.history.energy import Energy
from ccpipe.history.findings import JobFinding
from ccpipe.history.index import BrokenIndexError, JobIndex
from ccpipe.history.job_metrics import Efficiency
from ccpipe.history.job_search import JobSearch
from ccpipe.history.report import MetricReport, UsageReport
from ccpipe.jobs import Job, JobNode, RunKey
from ccpipe.jobs.pending import PendingJob

SECOND = 10**9
NOW = 1000


def job(number: int = 7, start: int = 100, end: int = 0, **given: Any) -> Job:
    given = {"user": "anna", "nodes": (JobNode("n1"),), **given}
    state = given.pop("state", "completed" if end else "running")
    return Job(
        cluster="fox", id=number, start=start * SECOND, end=end * SECOND, state=state, **given
    )


def numbers(index: JobIndex, **search: Any) -> list[int]:
    return [row["job"] for row in index.find(JobSearch(**search), NOW).jobs]


def report(energy: float, cpu: float, ipc: float) -> UsageReport:
    return UsageReport(
        seconds=1, node_hours=1, cpu_hours=None, cpu=Efficiency(cpu, 1, 1), memory=None, gpu=None,
        energy=Energy(energy, 1, [], 1), is_shared=False,
        metrics=[MetricReport("ipc", "", 0, ipc, ipc + 1, [])],
        findings=[JobFinding("timeout", "Reached its time limit.")],
    )  # fmt: skip


def test_index_keeps_end_when_start_is_repeated() -> None:
    """Starts and stops may arrive in any order, and again."""
    index = JobIndex()
    index.put([job()])
    assert numbers(index, is_running=True) == [7]
    index.put([job(end=200, state="failed")])
    index.put([job(name="cfd")])
    [row] = index.find(JobSearch(), NOW).jobs
    assert (row["state"], row["stop"], row["duration"], row["name"]) == ("failed", 200, 100, "cfd")
    assert (row["first_node"], row["energy"]) == ("n1", None)


def test_index_ends_job_whose_stop_was_lost() -> None:
    """At its limit; a stop that arrives after all tells how it really ended."""
    index = JobIndex()
    index.put([job(1, walltime=60), job(2, walltime=10**6), job(3, 100, 150)])
    index.end_lost(161 + 86400)
    assert numbers(index, is_running=True) == [2]
    index.put([job(1)])  # its start, repeated
    [row] = index.find(JobSearch(job=[1]), NOW).jobs
    assert (row["state"], row["stop"]) == ("ended", 160)
    assert [each.id for each in index.without_report(1e9, 9)] == [1, 3]
    index.put([job(1, end=500, state="failed")])
    [row] = index.find(JobSearch(job=[1]), NOW).jobs
    assert (row["state"], row["stop"]) == ("failed", 500)


def test_index_lists_running_jobs_first_by_stop() -> None:
    index = JobIndex()
    index.put([job(1, 100, 900), job(2, 50), job(3, 100, 950), job(4, 60)])
    assert numbers(index, sort="stop") == [4, 2, 3, 1]
    assert numbers(index, sort="stop", limit=2, offset=1) == [2, 3]
    assert index.find(JobSearch(limit=1), NOW).total == 4


def test_index_has_numbers_of_report_until_job_changes() -> None:
    """A job without a report is offered until it has one, and again if it ended later."""
    index = JobIndex()
    index.put([job(1, 100, 200), job(2, 100, 300), job(3)])
    assert [each.id for each in index.without_report(250, 9)] == [1]
    assert [each.id for each in index.without_report(999, 9)] == [2, 1]
    index.put_report(RunKey("fox", 1, 100 * SECOND), report(3.5e6, 0.25, 1.5))
    index.put_report(RunKey("fox", 2, 100 * SECOND), None)
    assert index.without_report(999, 9) == []
    [row] = index.find(JobSearch(job=[1]), NOW).jobs
    assert (row["energy"], row["cpu"], row["memory"], row["mean_ipc"], row["max_ipc"]) == (
        3.5e6, 0.25, None, 1.5, 2.5,
    )  # fmt: skip
    assert row["findings"] == "Reached its time limit."
    assert numbers(index, ranges={"energy": (3e6, 4e6), "mean_ipc": (1.5, None)}) == [1]
    assert numbers(index, sort="energy", descending=False) == [1, 2, 3]
    index.put([job(1, 100, 201)])
    assert [each.id for each in index.without_report(999, 9)] == [1]


def test_index_survives_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "jobs.sqlite"
    index = JobIndex(path)
    index.put([job(nodes=(JobNode("n1", (0, 1)), JobNode("n2")))])
    index.close()
    found = JobIndex(path).get(RunKey("fox", 7, 100 * SECOND))
    assert found is not None
    assert found.nodes == (JobNode("n1", (0, 1)), JobNode("n2"))
    assert path.parent.stat().st_mode & 0o077 == 0


def test_index_drops_oldest_jobs_beyond_maximum() -> None:
    """With their nodes."""
    index = JobIndex(max_jobs=10)
    index.put([job(n, n, n + 1, nodes=(JobNode(f"n{n}"),)) for n in range(1, 16)])
    assert sorted(numbers(index)) == list(range(7, 16))
    assert numbers(index, node=["n6"]) == []
    assert numbers(index, node=["n7", "n8"], descending=False) == [7, 8]


def test_index_ignores_job_without_start() -> None:
    index = JobIndex()
    index.put([job(1, 0), job(2)])
    assert numbers(index) == [2]


WAITING = PendingJob(
    cluster="fox", id=8, user="anna", name="cfd", partition="main", submit=50, nodes=4, walltime=60,
    tasks=10, reason="Priority",
)  # fmt: skip


def test_index_lists_pending_jobs_between_running_and_ended_ones() -> None:
    """They have neither a start nor a duration; a state of their own tells them apart."""
    index = JobIndex()
    index.put([job(1, 100, 900), job(2, 50)])
    index.put_pending([WAITING])
    assert numbers(index, sort="stop") == [2, 8, 1]
    [row] = index.find(JobSearch(state=["pending"]), NOW).jobs
    assert (row["submit"], row["start"], row["stop"], row["duration"]) == (50, 0, 0, None)
    assert (row["nodes"], row["reason"], row["tasks"], row["walltime"]) == (4, "Priority", 10, 60)
    assert numbers(index, is_running=True) == [2]
    assert numbers(index, is_running=False) == [1]
    assert numbers(index, words=["priori"]) == [8]
    assert numbers(index, until=NOW) == [1, 2]
    assert numbers(index, ranges={"duration": (0, 10**9)}) == [1, 2]


def test_index_updates_and_removes_pending_jobs() -> None:
    """A start of the same job stays."""
    index = JobIndex()
    index.put_pending([WAITING, replace(WAITING, id=9)])
    index.put_pending([replace(WAITING, reason="Resources")])
    reasons = {row["job"]: row["reason"] for row in index.find(JobSearch(), NOW).jobs}
    assert reasons == {8: "Resources", 9: "Priority"}
    index.put([job(8)])
    index.put_pending([], [("fox", 8), ("fox", 7)])
    states = {row["job"]: row["state"] for row in index.find(JobSearch(), NOW).jobs}
    assert states == {8: "running", 9: "pending"}
    index.clear_pending()
    assert numbers(index) == [8]


def test_pending_jobs_are_not_dropped_for_ended_ones() -> None:
    """Nor do they count: their number is bounded where they are known from."""
    index = JobIndex(max_jobs=3)
    index.put_pending(replace(WAITING, id=number) for number in range(20, 30))
    index.put([job(number, 100 + number) for number in range(3)])
    assert index.find(JobSearch(), NOW).total == 13
    index.put([job(4, 200)])
    assert index.find(JobSearch(state=["pending"]), NOW).total == 10
    assert max(numbers(index, is_running=True)) == 4


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    one, other = JobIndex(tmp_path / "jobs.sqlite"), JobIndex(tmp_path / "jobs.sqlite")
    one.put([job(1)])
    other.put([job(1, 100, 200), job(2)])
    one.put([job(2, 100, 300)])
    for index in (one, other):
        assert [row["stop"] for row in index.find(JobSearch(sort="job"), NOW).jobs] == [300, 200]


def damaged(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be one" * 99)


def spoilt(path: Path) -> None:
    JobIndex(path).put([job()])
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)
    for each in path.parent.glob("jobs.sqlite-*"):
        each.unlink()


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [damaged, spoilt, directory])
def test_index_reports_broken_file(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """By its path."""
    path = tmp_path / "jobs.sqlite"
    spoil(path)
    with pytest.raises(BrokenIndexError, match="jobs.sqlite"):
        JobIndex(path).put([job()])


def test_index_reports_lock_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpipe.history.index.LOCK_SECONDS", 0.05)
    index = JobIndex(tmp_path / "jobs.sqlite")
    other = sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="is locked by another process"):
        index.put([job()])
    assert numbers(index) == []
    other.execute("ROLLBACK")
    other.close()
    index.put([job()])
    assert numbers(index) == [7]


def test_index_reports_full_disk(tmp_path: Path) -> None:
    """SQLite's own limit on pages stands for the disk's; what was there remains readable."""
    index = JobIndex(tmp_path / "jobs.sqlite")
    with index._session("BEGIN") as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(BrokenIndexError, match="full"):
        index.put([job(n, name="x" * 250) for n in range(1000)])
    assert numbers(index) == []


def test_index_of_another_version_is_emptied(tmp_path: Path) -> None:
    """It is filled again from events and the store."""
    path = tmp_path / "jobs.sqlite"
    JobIndex(path).put([job()])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert numbers(JobIndex(path)) == []


@pytest.mark.parametrize(
    ("search", "text"),
    [
        ({"sort": "usre"}, "sort: no column 'usre'; did you mean 'user'"),
        ({"sort": "user; DROP TABLE jobs"}, "sort: no column"),
        ({"ranges": {"user": (1, 2)}}, "ranges: no column 'user'"),
        ({"limit": 1001}, "limit: 1001 is not between 0 and 1000"),
        ({"offset": -1}, "offset: -1"),
        ({"job": [2**63]}, "job: not a 64-bit number"),
        ({"user": ["x"] * 101}, "at most 100 values"),
        ({"name": "\udcff"}, "not UTF-8"),
    ],
)
def test_index_rejects_search(search: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        JobIndex().find(JobSearch(**search))


NAMES = st.sampled_from(["anna", "bo", "ANNA", "a%b", "a_b", "x\\y", "' OR 1=1 --", "ß", ""])
RUNS = st.builds(
    lambda start, duration, **given: job(
        start=start, end=start + duration if duration else 0, **given
    ),
    number=st.integers(1, 5), start=st.integers(1, 500), duration=st.integers(0, 400),
    user=NAMES, project=NAMES, partition=NAMES, name=NAMES,
    nodes=st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True).map(
        lambda names: tuple(map(JobNode, names))
    ),
    accelerators=st.integers(0, 3),
)  # fmt: skip
BOUND = st.none() | st.integers(0, 600)
SEARCHES = st.builds(
    JobSearch,
    user=st.lists(NAMES, max_size=2), partition=st.lists(NAMES, max_size=1), name=NAMES,
    words=st.lists(st.sampled_from(["ANN", "n1", "7", "%", "_", "\\", "compl", "b"]), max_size=2),
    node=st.lists(st.sampled_from(["n1", "n2", "n9"]), max_size=2),
    state=st.lists(st.sampled_from(["running", "completed"]), max_size=1),
    is_running=st.sampled_from([None, True, False]), since=BOUND, until=BOUND,
    ranges=st.dictionaries(
        st.sampled_from(["duration", "nodes", "gpus", "job"]), st.tuples(BOUND, BOUND), max_size=2
    ),
    sort=st.sampled_from(["start", "job", "duration", "user", "nodes", "gpus", "stop"]),
    descending=st.booleans(), limit=st.integers(0, 5), offset=st.integers(0, 5),
)  # fmt: skip


def folded(text: str) -> str:
    """Return a text with A to Z in lower case."""
    return "".join(c.lower() if c.isascii() else c for c in text)


def values_of(run: Job) -> dict[str, float | None]:
    stop = (run.end or NOW * SECOND) // SECOND
    return {
        "duration": stop - run.start // SECOND, "nodes": len(run.nodes),
        "gpus": run.accelerators or None, "job": run.id, "start": run.start // SECOND,
        "stop": run.end // SECOND or 2**63,
    }  # fmt: skip


def in_range(value: float | None, low: float | None, high: float | None) -> bool:
    if value is None:
        return (low, high) == (None, None)
    return (low is None or value >= low) and (high is None or value <= high)


def is_found(run: Job, search: JobSearch) -> bool:
    """The plain filter that the index is compared with."""
    hosts = [node.hostname for node in run.nodes]
    texts = [str(run.id), run.user, run.project, run.partition, run.name, run.state]
    start, stop = run.start / SECOND, run.end / SECOND
    lists = [(search.user, run.user), (search.partition, run.partition), (search.state, run.state)]
    return (
        all(not values or value in values for values, value in lists)
        and (not search.node or bool(set(hosts) & set(search.node)))
        and folded(search.name) in folded(run.name)
        and all(
            word in hosts or any(folded(word) in folded(text) for text in texts)
            for word in search.words
        )
        and search.is_running in (None, not stop)
        and (search.since is None or not stop or stop >= search.since)
        and (search.until is None or start <= search.until)
        and all(in_range(values_of(run)[name], *b) for name, b in search.ranges.items())
    )


def place(run: Job, search: JobSearch) -> tuple[Any, ...]:
    """Return the place of a job in ascending order, without what is unknown."""
    values: dict[str, Any] = {**values_of(run), "user": run.user}
    return values[search.sort], run.start


@given(st.lists(RUNS, max_size=12, unique_by=lambda run: run.run_key), SEARCHES)
def test_index_finds_what_plain_filter_finds(runs: list[Job], search: JobSearch) -> None:
    """In its order, page by page; jobs without the value are last."""
    index = JobIndex()
    index.put(runs)
    matching = [run for run in runs if is_found(run, search)]
    known = [run for run in matching if place(run, search)[0] is not None]
    known.sort(key=lambda run: place(run, search), reverse=search.descending)
    found = index.find(search, NOW)
    index.close()
    assert found.total == len(matching)
    page = slice(search.offset, search.offset + search.limit)
    rows = [(row["job"], row["start"]) for row in found.jobs]
    assert len(rows) == len(matching[page])
    by_key = {(run.id, run.start // SECOND): run for run in matching}
    expected = known[page]
    assert [place(by_key[row], search) for row in rows[: len(expected)]] == [
        place(run, search) for run in expected
    ]
    assert set(rows) <= by_key.keys()
    assert len(set(rows)) == len(rows)
