"""Jobs from the events that a store has."""

import msgspec
import pytest

from ccpipe.errors import UsageError
from ccpipe.formats.lineprotocol import encode
from ccpipe.history import job_events
from ccpipe.jobs import Job, JobNode, RunKey, message
from ccpipe.message import event
from tests.history.conftest import BEGIN, Open

SECOND = 10**9
DAY = 86400
WITH_JOBS = ("parquet", "delta", "postgres")


def job(number: int, start: int, end: int = 0, *, cluster: str = "fox") -> Job:
    """Return a job; times are seconds after BEGIN."""
    return Job(
        cluster=cluster, id=number, user="anna", project="p", partition="main", hwthreads=4,
        start=(BEGIN + start) * SECOND, end=(BEGIN + end) * SECOND if end else 0,
        state="failed" if end else "running", nodes=(JobNode("n1", (0, 1), ("00:1a",)),),
    )  # fmt: skip


def lines(*jobs: Job) -> list[str]:
    messages = [message("start_job", msgspec.structs.replace(j, state="running")) for j in jobs]
    messages += [message("stop_job", j) for j in jobs if j.end]
    return encode(messages).decode().splitlines()


@pytest.mark.parametrize("store", WITH_JOBS)
async def test_history_returns_jobs_that_overlap_a_time(stored: Open, store: str) -> None:
    """Starts before it and stops after it are found; other clusters' jobs are not."""
    inside, running = job(1, 100, 200), job(2, 300)
    long = job(3, -2 * DAY, 1000)
    before, after = job(4, -500, -1), job(5, 700, 800)
    other = job(6, 100, 200, cluster="bear")
    history = await stored(store, lines(inside, running, long, before, after, other))
    found = await history.jobs("fox", BEGIN + 50, BEGIN + 600)
    assert {each.id for each in found} == {1, 2, 3}
    states = {each.id: (each.state, each.end) for each in found}
    assert states == {
        1: ("failed", inside.end), 2: ("running", 0), 3: ("failed", long.end),
    }  # fmt: skip
    assert found[0].nodes == inside.nodes
    assert {each.user for each in found} == {"anna"}


@pytest.mark.parametrize("store", WITH_JOBS)
async def test_history_finds_one_run_of_a_job(stored: Open, store: str) -> None:
    """By its start; its stop may be days later."""
    first, second = job(7, -2 * DAY, -5000), job(7, 100)
    history = await stored(store, lines(first, second))
    found = await history.job(first.run_key)
    assert found is not None
    assert (found.start, found.end, found.state) == (first.start, first.end, "failed")
    again = await history.job(second.run_key)
    assert again is not None
    assert again.end == 0
    assert await history.job(RunKey("fox", 7, (BEGIN + 1) * SECOND)) is None
    assert await history.job(RunKey("bear", 7, first.start)) is None


@pytest.mark.parametrize("store", WITH_JOBS)
async def test_history_ignores_event_that_is_not_a_job(stored: Open, store: str) -> None:
    """Such as one with another function, or with text that is not JSON."""
    tags = {"cluster": "fox", "hostname": "n1"}
    at = (BEGIN + 10) * SECOND
    wrong = [
        event("job", "start_job", "{7", time=at, tags=tags),
        event("job", "requeue", '{"jobId": 7}', time=at, tags=tags),
    ]
    history = await stored(store, [*lines(job(1, 5)), *encode(wrong).decode().splitlines()])
    [found] = await history.jobs("fox", BEGIN, BEGIN + 60)
    assert found.id == 1


@pytest.mark.parametrize("store", WITH_JOBS)
async def test_history_rejects_query_for_too_many_jobs(
    stored: Open, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their events would not fit into memory."""
    history = await stored(store, lines(job(1, 5), job(2, 6), job(3, 7)))
    monkeypatch.setattr(job_events, "MAX_EVENTS", 2)
    with pytest.raises(UsageError, match="more than 2 events of jobs; select a shorter time"):
        await history.jobs("fox", BEGIN, BEGIN + 60)


@pytest.mark.parametrize("store", ["victoriametrics", "prometheus"])
async def test_history_of_metrics_only_rejects_query_for_jobs(stored: Open, store: str) -> None:
    history = await stored(store, ["load,cluster=fox,hostname=n1 value=1"])
    with pytest.raises(UsageError, match="stores metrics only: for jobs, use Parquet"):
        await history.jobs("fox", BEGIN, BEGIN + 60)
    with pytest.raises(UsageError, match="stores metrics only"):
        await history.job(RunKey("fox", 1, BEGIN * SECOND))
