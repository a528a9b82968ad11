"""The index kept up to date: events, a store's jobs, reports, a file that breaks."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ccpipe.errors import UnavailableError, UsageError
from ccpipe.history import indexing
from ccpipe.history.indexing import JobIndexer
from ccpipe.history.interfaces import (
    History,
    MetricCurve,
    MetricCurves,
    MetricQuery,
    MetricStatistics,
    SumCurves,
    SumQuery,
)
from ccpipe.history.job_search import JobSearch
from ccpipe.jobs import Job, JobNode, RunKey
from ccpipe.jobs.pending import PendingJob
from tests.conftest import eventually

SECOND = 10**9
NOW = int(time.time())


def job(number: int, ago: int = 7200, seconds: int = 3600) -> Job:
    start = NOW - ago
    return Job(
        cluster="fox", id=number, user="anna", nodes=(JobNode("n1"),), start=start * SECOND,
        end=(start + seconds) * SECOND if seconds else 0,
        state="completed" if seconds else "running",
    )  # fmt: skip


class Store:
    """A store with jobs and one metric; answers as its attributes say."""

    def __init__(self, *jobs: Job) -> None:
        self.stored = jobs
        self.asked: list[tuple[float, float]] = []
        self.queries: list[MetricQuery] = []
        self.maximum = 9e9
        self.error: Exception | None = None

    async def jobs(self, cluster: str, start: float, stop: float) -> Sequence[Job]:
        assert cluster == "fox"
        self.asked.append((start, stop))
        if stop - start > self.maximum:
            raise UsageError("too many jobs; select a shorter time")
        return [each for each in self.stored if start <= each.start / SECOND < stop]

    async def job(self, key: RunKey) -> Job | None:
        raise NotImplementedError

    async def statistics(self, query: MetricQuery) -> Sequence[MetricStatistics]:
        self.queries.append(query)
        if self.error is not None:
            raise self.error
        return [MetricStatistics(name, "cpu_power", "", 9, 1, 100, 200) for name in query.nodes]

    async def curves(self, query: MetricQuery) -> MetricCurves:
        times = np.arange(query.start, query.stop, 10.0)
        curve = MetricCurve("", "cpu_power", "", 100 + 0 * times, counts=1 + 0 * times)
        return MetricCurves(times, 10.0, [curve])

    async def sums(self, query: SumQuery) -> SumCurves:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


@contextlib.asynccontextmanager
async def running(path: Path | None, store: History | None = None) -> AsyncIterator[JobIndexer]:
    async with JobIndexer(path, store, clusters=["fox"], live=lambda: [job(99, 60, 0)]) as indexer:
        yield indexer


async def found(indexer: JobIndexer) -> dict[int, float | None]:
    """Return the energy of each job."""
    answer = await indexer.find(JobSearch(sort="job", descending=False))
    return {row["job"]: row["energy"] for row in answer.jobs}


async def until(indexer: JobIndexer, wanted: dict[int, float | None]) -> None:
    """Wait for these jobs and energies."""
    async with asyncio.timeout(30):
        while await found(indexer) != wanted:
            await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(indexing, "IDLE_SECONDS", 0.05)


async def test_search_finds_job_that_was_just_put() -> None:
    """Without waiting for the next write."""
    async with running(None) as indexer:
        indexer.put(job(1))
        assert await found(indexer) == {1: None}
        with pytest.raises(UsageError, match="no store of metrics"):
            await indexer.report(job(1))


async def test_stored_jobs_get_their_reports(tmp_path: Path) -> None:
    """Once they have ended some time ago: an hour at 100 W."""
    store = Store(job(1), job(2, 7200, 7190), job(3, 600, 0))
    async with running(tmp_path / "jobs.sqlite", store) as indexer:
        await until(indexer, {1: 360000.0, 2: None, 3: None})
    assert [query.nodes for query in store.queries] == [["n1"]]


async def test_restart_continues(tmp_path: Path) -> None:
    """Only newer jobs are read, and only missing reports computed."""
    path = tmp_path / "jobs.sqlite"
    async with running(path, Store(job(1))) as indexer:
        await until(indexer, {1: 360000.0})
    store = Store(job(2, 86400 * 3), job(3))
    async with running(path, store) as indexer:
        await until(indexer, {1: 360000.0, 3: 360000.0})
    assert len(store.queries) == 1


async def test_jobs_are_read_in_parts_of_a_time_with_too_many(tmp_path: Path) -> None:
    store = Store(job(1), job(2, 20 * 86400))
    store.maximum = 9 * 86400
    async with running(tmp_path / "jobs.sqlite", store) as indexer:
        await until(indexer, {1: 360000.0, 2: 360000.0})
    answered = [each for each in store.asked if each[1] - each[0] <= store.maximum]
    assert all(one[0] == other[1] for one, other in pairwise(answered))


async def test_reports_are_retried_while_store_is_unavailable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(job(1))
    store.error = UnavailableError("the store is closed")
    async with running(tmp_path / "jobs.sqlite", store) as indexer:
        await eventually(lambda: len(store.queries) > 1)
        assert "reports of jobs are not computed: the store is closed" in caplog.text
        store.error = None
        await until(indexer, {1: 360000.0})


async def test_dashboard_continues_without_damaged_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In memory; the log names the file."""
    path = tmp_path / "jobs.sqlite"
    path.write_bytes(b"damaged" * 999)
    async with running(path) as indexer:
        indexer.put(job(1))
        assert set(await found(indexer)) == {1}
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert f"{path} is damaged" in record.message


async def test_dashboard_continues_when_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the jobs that are known now."""
    async with running(tmp_path / "jobs.sqlite") as indexer:
        indexer.put(job(1))
        await found(indexer)
        with indexer._index._session("BEGIN") as connection:
            connection.execute("PRAGMA max_page_count = 1")
        for number in range(300):
            indexer.put(job(100 + number))
        assert set(await found(indexer)) == {99, *range(100, 199)}
    assert "database or disk is full; until a restart, only recent jobs are listed" in caplog.text


async def test_pending_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped while nothing can be written."""
    monkeypatch.setattr(indexing, "MAX_PENDING", 3)
    indexer = JobIndexer(None)
    for number in range(5):
        indexer.put(job(number))
    assert set(await found(indexer)) == {2, 3, 4}


WAITING = PendingJob(cluster="fox", id=8, user="anna", reason="Priority")


async def waiting(indexer: JobIndexer) -> list[int]:
    return [row["job"] for row in (await indexer.find(JobSearch(state=["pending"]))).jobs]


async def test_pending_jobs_of_earlier_process_are_not_listed(tmp_path: Path) -> None:
    """They may have started since."""
    path = tmp_path / "jobs.sqlite"
    async with JobIndexer(path) as indexer:
        indexer.put_queue([WAITING], [])
        assert await waiting(indexer) == [8]
    async with JobIndexer(path) as indexer:
        assert await waiting(indexer) == []


async def test_latest_change_of_pending_job_is_written() -> None:
    async with JobIndexer(None) as indexer:
        indexer.put_queue([WAITING], [])
        indexer.put_queue([], [WAITING.key])
        assert await waiting(indexer) == []
        indexer.put_queue([], [WAITING.key])
        indexer.put_queue([WAITING], [])
        assert await waiting(indexer) == [8]


async def test_index_that_replaces_a_broken_one_has_pending_jobs(tmp_path: Path) -> None:
    async with JobIndexer(tmp_path / "jobs.sqlite", queue=lambda: [WAITING]) as indexer:
        indexer.put_queue([WAITING], [])
        assert await waiting(indexer) == [8]
        with indexer._index._session("BEGIN") as connection:
            connection.execute("PRAGMA max_page_count = 1")
        for number in range(300):
            indexer.put(job(100 + number))
        assert await waiting(indexer) == [8]
        assert indexer._index.path is None
