"""Answers about jobs, from every store that a dashboard may have."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from ccpipe.config import Bus, Site
from ccpipe.dashboard.access import EVERYTHING
from ccpipe.dashboard.jobs_api import JobsApi
from ccpipe.dashboard.queries import (
    HistoryQuery,
    JobHistoryQuery,
    JobStatisticsQuery,
    StoreQuery,
    answer,
    check_access,
    job_key,
    read_query,
)
from ccpipe.errors import UsageError
from ccpipe.formats.lineprotocol import encode
from ccpipe.history.interfaces import History
from ccpipe.history.report import fetch_report
from ccpipe.jobs import Job, JobNode, message
from ccpipe.live.feed import LiveFeed, known_metrics
from ccpipe.telemetry import Telemetry
from tests.dashboard.test_views import read
from tests.history.conftest import BEGIN, STORES, Open, server, stored

__all__ = ["server", "stored"]

SECOND = 10**9
NODES = [f"n{number}" for number in range(10)]


@pytest.fixture
def feed() -> LiveFeed:
    feed = LiveFeed(Site(bus=Bus(servers=["nats://127.0.0.1:1"])), Telemetry(), name="dashboard")
    feed.state.nodes.known = known_metrics()
    return feed


def made(nodes: Sequence[str], start: int, end: int) -> Job:
    return Job(
        cluster="fox", id=77, user="anna", state="completed", shared="none",
        start=(BEGIN + start) * SECOND, end=(BEGIN + end) * SECOND,
        nodes=tuple(JobNode(node) for node in nodes),
    )  # fmt: skip


def lines(nodes: Sequence[str], start: int, end: int) -> list[str]:
    """Return the power of nodes, which is 100 W while the job runs and 900 W otherwise."""
    return [
        f"cpu_power,cluster=fox,hostname={node},type=socket,type-id={socket} "
        f"value={50 if start <= second < end else 450} {BEGIN + second}"
        for second in range(-600, 2400, 60)
        for node in nodes
        for socket in (0, 1)
    ]


async def ask(
    feed: LiveFeed, history: History, query: StoreQuery
) -> tuple[dict[str, Any], list[float]]:
    """Return the answer as the server gives it to an administrator."""
    jobs, key = JobsApi(feed, history), job_key(query)
    async with jobs.indexer:
        job = await jobs.job(key) if key is not None else None
        check_access(EVERYTHING, feed, query, job)
        return read(await answer(feed, history, jobs.indexer, query, job))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.long), 10])
@pytest.mark.parametrize("span", [(0, 39), (60, 1260), (75, 1000)])
async def test_energy_is_integral_over_time_of_job(
    feed: LiveFeed, stored: Open, store: str, count: int, span: tuple[int, int]
) -> None:
    """Never other jobs' power, and also where it runs for less than the measuring interval."""
    job = made(NODES[:count], *span)
    key = job.run_key
    history = await stored(store, lines(NODES[:count], *span))
    for function in ("start_job", "stop_job"):
        feed.state.jobs.feed(message(function, job), time.time())
    query = JobStatisticsQuery("fox", 77, key.start // SECOND)
    energy = (await fetch_report(history, job, {})).energy
    assert energy is not None
    assert energy.joules == pytest.approx(100 * count * energy.seconds)
    assert energy.seconds == span[1] - span[0]
    header, _ = await ask(feed, history, query)
    [row] = header["statistics"]
    assert row["all"] == [100, 100, 100]
    assert len(row["nodes"]) == count
    header, numbers = await ask(feed, history, JobHistoryQuery("fox", 77, query.begin))
    assert header["start"] == BEGIN + span[0]
    assert (header["nodes"] is None) == (count > 8)
    known = {number for number in numbers if number == number}  # noqa: PLR0124 - not NaN
    assert known == {100, 100 * count}


@pytest.mark.parametrize("store", ["parquet", "postgres"])
async def test_stored_job_is_found_when_bus_has_forgotten_it(
    feed: LiveFeed, stored: Open, store: str
) -> None:
    """By its cluster, id and start; another start is unknown."""
    job = made(NODES[:2], 60, 1260)
    events = encode([message("start_job", job), message("stop_job", job)]).decode().splitlines()
    history = await stored(store, [*lines(NODES[:2], 60, 1260), *events])
    begin = job.start // SECOND
    header, _ = await ask(feed, history, JobHistoryQuery("fox", 77, begin))
    assert header["job"]["user"] == "anna"
    assert header["job"]["stop"] == BEGIN + 1260
    part = JobHistoryQuery("fox", 77, begin, start=BEGIN - 999.0, stop=BEGIN + 600.0)
    header, _ = await ask(feed, history, part)
    assert header["start"] == BEGIN + 60
    assert header["start"] + header["count"] * header["step"] <= BEGIN + 660
    for start, stop in ((BEGIN + 5000, BEGIN + 5060), (BEGIN + 700, BEGIN + 5000),
                        (BEGIN - 500, BEGIN - 400), (BEGIN + 9e9, -9e9)):  # fmt: skip
        beyond = JobHistoryQuery("fox", 77, begin, start=start, stop=stop)
        header, numbers = await ask(feed, history, beyond)
        assert BEGIN + 60 <= header["start"] < BEGIN + 1260
        assert not {number for number in numbers if number > 200}
    with pytest.raises(UsageError, match="neither the bus nor the store"):
        await ask(feed, history, JobHistoryQuery("fox", 77, begin + 1))


async def test_query_of_unknown_form_is_rejected() -> None:
    """As is one with further keys, or without a time."""
    query = b'{"of": "nodes", "cluster": "c", "nodes": ["n"], "start": 1, "stop": 2}'
    assert read_query(query) == HistoryQuery("c", ["n"], 1, 2)
    for body in (b"", b"{", query.replace(b"nodes", b"all", 1), query.replace(b"}", b', "x": 1}'),
                 query.replace(b', "stop": 2', b""), b"\xff", b"[" * 5000):  # fmt: skip
        with pytest.raises(UsageError, match="not a query"):
            read_query(body)
