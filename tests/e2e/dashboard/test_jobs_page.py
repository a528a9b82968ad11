"""The page of jobs in a real Chromium: searches, order, pages, the address."""

import json
import time
from typing import Any

import pytest

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, event, metric
from ccpipe.sinks.parquet import ParquetSink
from tests.dashboard.browser import Page
from tests.dashboard.conftest import Served
from tests.e2e.dashboard.test_page import go, publish

SECOND = 10**9
START = 1_740_000_000
ROWS = (
    "[...document.querySelectorAll('tbody tr')].map(row => row.querySelector('td.job').innerText)"
)
SHOWN = "document.querySelector('[role=status].dim').textContent"


def job_event(function: str, number: int, **given: Any) -> Message:
    payload = {"jobId": number, "cluster": "fox.test", **given}
    tags = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
    return event("job", function, json.dumps(payload), time=int(time.time()) * SECOND, tags=tags)


def started(number: int, start: int = START, **given: Any) -> Message:
    given = {"user": "anna", "partition": "main", "resources": [{"hostname": "n1"}], **given}
    return job_event("start_job", number, startTime=start, **given)


def stopped(number: int, stop: int, state: str = "completed", start: int = START) -> Message:
    return job_event("stop_job", number, startTime=start, stopTime=stop, jobState=state)


@pytest.fixture
async def listed(live: Served) -> Served:
    """Three jobs: one runs, one completed after an hour, one of two nodes failed after two."""
    nodes = [{"hostname": "n2"}, {"hostname": "n3"}]
    await publish(live, [
        started(1, metaData={"jobName": "cfd"}), started(2, user="bo", partition="gpu"),
        started(3, user="bo", resources=nodes), stopped(2, START + 3600),
        stopped(3, START + 7200, "out_of_memory"),
    ])  # fmt: skip
    return live


async def test_jobs_page_lists_running_jobs_first(listed: Served, page: Page) -> None:
    """With a shape for each state, and numbers at the right."""
    await go(page, listed, "#/jobs")
    await page.until(ROWS, lambda rows: rows == ["1", "3", "2"])
    states = "[...document.querySelectorAll('td.state')].map(cell => cell.innerText)"
    assert await page.js(states) == ["▶running", "✕out of memory", "✓completed"]
    cell = "document.querySelectorAll('td.duration')[1]"
    assert await page.js(f"{cell}.innerText") == "2 h"
    assert await page.js(f"getComputedStyle({cell}).textAlign") == "right"
    assert await page.js(SHOWN) == "3 jobs"
    assert page.problems == []


async def test_jobs_page_sorts_by_head(listed: Served, page: Page) -> None:
    """Largest numbers first, then smallest; the address has the order."""
    await go(page, listed, "#/jobs")
    await page.until(ROWS, lambda rows: len(rows) == 3)
    head = "[...document.querySelectorAll('th button')].find(b => b.innerText.startsWith('nodes'))"
    await page.js(f"{head}.click()")
    await page.until("location.hash", lambda at: at == "#/jobs?sort=-nodes")
    await page.until(ROWS, lambda rows: rows[0] == "3")
    await page.js(f"{head}.click()")
    await page.until("location.hash", lambda at: at == "#/jobs?sort=nodes")
    await page.until(ROWS, lambda rows: rows[-1] == "3")
    sort = "document.querySelector('th[aria-sort]').getAttribute('aria-sort')"
    assert await page.js(sort) == "ascending"


@pytest.mark.parametrize(
    ("address", "rows"),
    [
        ("user=bo", ["3", "2"]),
        ("user=bo&partition=gpu", ["2"]),
        ("state=out_of_memory", ["3"]),
        ("node=n3", ["3"]),
        ("show=running", ["1"]),
        ("q=CF", ["1"]),
        ("duration_min=1.5&show=finished", ["3"]),
        ("nodes_max=1&sort=job", ["1", "2"]),
        ("user=nobody", []),
    ],
)
async def test_jobs_page_filters_by_address(
    listed: Served, page: Page, address: str, rows: list[str]
) -> None:
    """So that a link shows the same to a colleague."""
    await go(page, listed, f"#/jobs?{address}")
    await page.until(ROWS, lambda shown: shown == rows)
    if not rows:
        await page.until("document.body.innerText", lambda text: "No job matches." in text)
    assert page.problems == []


async def test_jobs_page_puts_filters_into_address(listed: Served, page: Page) -> None:
    """A state by one click, a user by a link or a field; clear removes them."""
    await go(page, listed, "#/jobs")
    await page.until(ROWS, lambda rows: len(rows) == 3)
    await page.js("[...document.querySelectorAll('.spans button')][3].click()")
    await page.until(ROWS, lambda rows: rows == ["3", "2"])
    assert await page.js("location.hash") == "#/jobs?show=finished"
    await page.js("document.querySelector('td.user a').click()")
    await page.until("location.hash", lambda at: at == "#/jobs?user=bo")
    await page.until("document.querySelector('input[name=user]')?.value", lambda v: v == "bo")
    await page.js(
        "(() => { const i = document.querySelector('input[name=partition]'); i.value = 'gpu';"
        " i.dispatchEvent(new Event('input')); })()"
    )
    await page.until(ROWS, lambda rows: rows == ["2"])
    assert await page.js("location.hash") == "#/jobs?user=bo&partition=gpu"
    await page.js("document.querySelector('.fields > button').click()")
    await page.until(ROWS, lambda rows: len(rows) == 3)
    assert await page.js("location.hash") == "#/jobs"
    assert page.problems == []


async def test_jobs_page_follows_events(listed: Served, page: Page) -> None:
    """A job that starts or ends appears without reloading."""
    await go(page, listed, "#/jobs")
    await page.until(ROWS, lambda rows: len(rows) == 3)
    await publish(listed, [stopped(1, START + 60, "timeout"), started(4, START + 9)])
    await page.until(ROWS, lambda rows: rows == ["4", "3", "2", "1"])
    assert page.problems == []


async def test_jobs_page_shows_pending_jobs(listed: Served, page: Page) -> None:
    """With what they wait for; they leave the list when they start or are cancelled."""
    since = int(time.time()) - 3600
    rows = [
        {"jobId": 8, "numNodes": 4, "walltime": 7200, "submitTime": since, "reason": "Priority"},
        {"jobId": 9, "numNodes": 1, "arrayTasks": 20, "submitTime": since - 60},
    ]
    await publish(listed, [queued(pending=rows)])
    await go(page, listed, "#/jobs")
    await page.until(ROWS, lambda rows: rows == ["1", "9 (20 tasks)", "8", "3", "2"])
    assert await page.js("document.querySelectorAll('td.state')[2].innerText") == "⋯pending"
    assert await page.js("document.querySelectorAll('td.findings')[2].innerText") == "Priority"
    assert await page.js("document.querySelectorAll('td.duration')[2].innerText") == ""
    await page.js("[...document.querySelectorAll('.spans button')][2].click()")
    await page.until(ROWS, lambda rows: rows == ["9 (20 tasks)", "8"])
    assert await page.js("location.hash") == "#/jobs?state=pending"
    cells = "[...document.querySelectorAll('tbody tr')[1].children].map(cell => cell.innerText)"
    *_, nodes, threads, limit, _, reason = await page.js(cells)
    assert [nodes, threads, limit, reason] == ["4", "", "2 h", "Priority"]
    await publish(listed, [started(8, since), queued(left=[{"jobId": 9}])])
    await page.until("document.body.innerText", lambda text: "No job matches." in text)
    assert page.problems == []


def queued(**payload: Any) -> Message:
    text = json.dumps({"cluster": "fox.test", "user": "anna", **payload})
    tags = {"cluster": "fox.test", "hostname": "fox.test", "type": "node"}
    return event("jobpending", "jobpending", text, time=int(time.time()) * SECOND, tags=tags)


async def test_first_page_counts_waiting_jobs(listed: Served, page: Page) -> None:
    """Tasks of an array one by one, with their course over time; a click lists them."""
    await publish(listed, [
        queued(pending=[{"jobId": 8}, {"jobId": 9, "arrayTasks": 20}]),
        metric("load_one", 1.0, time=int(time.time()) * SECOND,
               tags={"cluster": "fox.test", "hostname": "n1", "type": "node"}),
    ])  # fmt: skip
    await go(page, listed, "#/")
    link = "[...document.querySelectorAll('.totals a')].find(a => a.innerText === 'jobs waiting')"
    number = f"{link}?.closest('div').querySelector('dd').innerText"
    await page.until(number, lambda text: text == "21")
    chart = (
        "[...document.querySelectorAll('.charts.sums .chart')].find(c => c.checkVisibility() && "
    )
    await page.until(
        f"{chart} c.innerText.startsWith('Jobs waiting'))?.innerText", lambda text: "21" in text
    )
    await page.js(f"{link}.click()")
    await page.until("location.hash", lambda at: at == "#/jobs?state=pending")
    await page.until(ROWS, lambda rows: len(rows) == 2)
    assert page.problems == []


async def test_jobs_page_has_pages(live: Served, page: Page) -> None:
    """Of a hundred jobs; the address has the page."""
    await publish(live, [started(number, START + number) for number in range(250)])
    await go(page, live, "#/jobs?page=3")
    await page.until(SHOWN, lambda text: text == "201 to 250 of 250 jobs")
    await page.js("document.querySelector('.pages button').click()")
    await page.until(SHOWN, lambda text: text == "101 to 200 of 250 jobs")
    assert await page.js("location.hash") == "#/jobs?page=2"


async def test_jobs_page_fits_phone_with_filters(listed: Served, page: Page) -> None:
    await page.size(390, 844)
    await go(page, listed, "#/jobs?user=bo")
    await page.until(ROWS, lambda rows: len(rows) == 2)
    assert await page.js("document.documentElement.scrollWidth") == 390


async def test_jobs_page_shows_error_of_search(listed: Served, page: Page) -> None:
    """A column that does not exist comes from an address that was changed by hand."""
    await go(page, listed, "#/jobs?sort=usre")
    await page.until(SHOWN, lambda text: "did you mean 'user'" in text)


async def test_job_page_shows_report(live: Served, page: Page) -> None:
    """Two hardware threads of eight for an hour at 360 W, until the time limit."""
    begin = int(time.time()) - 7200
    tags = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
    values = {"cpu_used": 200.0, "num_cpus": 8.0, "cpu_power": 360.0}
    lines = [
        metric(name, value, time=(begin + second) * SECOND, tags=tags)
        for second in range(0, 3600, 60)
        for name, value in values.items()
    ]
    async with ParquetSink(dir=str(live.parquet)) as sink:
        await sink.write(to_lines(lines))
    await publish(live, [started(5, begin), stopped(5, begin + 3600, "timeout", begin)])
    await go(page, live, f"#/job/fox.test/5/{begin}")
    report = "[...document.querySelectorAll('.card')].find(c => c.innerText.startsWith('Report'))"
    text = await page.until(f"{report}?.innerText")
    assert "25 %" in text
    assert "node-hours\n1.00" in text
    assert "Reached its time limit, and was ended after 1:00:00." in text
    assert "Used 25 % of its processors: 2.0 of 8 hardware threads on average." in text
    assert page.problems == []
