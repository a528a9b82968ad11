"""The page in a real Chromium as a user sees it, below a proxy's path."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.config import DashboardOptions, Site
from ccpipe.dashboard.server import DashboardServer
from ccpipe.dashboard.sign_in import SignIn
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.live.feed import LiveFeed
from ccpipe.message import Message, event
from ccpipe.telemetry import Telemetry
from tests.dashboard.browser import Page

NOW = int(time.time())


def start(number: int, user: str, node: str) -> Message:
    payload = {
        "jobId": number, "user": user, "cluster": "c", "startTime": NOW - 60, "numNodes": 1,
        "project": "p", "metaData": {"jobName": f"{user}-job"}, "resources": [{"hostname": node}],
    }  # fmt: skip
    tags = {"cluster": "c", "hostname": node}
    return event("job", "start_job", json.dumps(payload), time=NOW * 10**9, tags=tags)


@pytest.fixture
async def below(site: Site, tmp_path: Path) -> AsyncIterator[DashboardServer]:
    file = tmp_path / "tokens"
    file.write_text("admin-token\nalice-token user alice\n")
    options = DashboardOptions(token_file=str(file), base_path="/site/ccpipe")
    async with (
        LiveFeed(site, Telemetry(), name="dashboard") as feed,
        DashboardServer(feed, listen="127.0.0.1:0", sign_in=SignIn(options)) as server,
    ):
        lines = [f"cpu_load,cluster=c,hostname=n{n},type=node value=1 {NOW}" for n in (1, 2)]
        feed.state.feed(decode("\n".join(lines).encode()), NOW)
        feed.state.feed_texts(to_lines([start(1, "alice", "n1"), start(2, "bob", "n2")]), NOW)
        yield server


async def opened(page: Page, server: DashboardServer, token: str, place: str) -> None:
    """Sign in below the proxy's path, and go to a page."""
    await page.open(f"{server.url}#token={token}")
    await page.until("document.querySelector('#status .dot')?.className === 'dot good'")
    await page.js(f"location.hash = '{place}'")


async def test_page_shows_user_own_jobs_below_path(below: DashboardServer, page: Page) -> None:
    """A click on the name lists them; other users' names, and the pipe, are not shown."""
    await opened(page, below, "alice-token", "#/")
    await page.until("document.body.innerText.includes('alice (user)')")
    assert await page.js("location.pathname") == "/site/ccpipe/"
    await page.js("[...document.querySelectorAll('#status a')].at(-1).click()")
    await page.until("document.querySelector('main').innerText.includes('alice-job')")
    assert await page.js("location.hash") == "#/jobs/mine"
    assert await page.js("document.querySelector('input[name=user]').value") == "alice"
    shown = await page.js("[...document.querySelectorAll('nav a')].map((a) => a.checkVisibility())")
    assert shown.count(False) == 1
    await page.js("location.hash = '#/pipe'")
    await page.until("document.querySelector('main').innerText.includes('Not permitted')")
    assert "bob" not in await page.text()
    assert page.problems == []


async def test_page_names_reason_of_refusal_and_goes_on(below: DashboardServer, page: Page) -> None:
    """A node without an own job is refused; the next page is live again."""
    await opened(page, below, "alice-token", "#/node/c/n2")
    await page.until("document.querySelector('main').innerText.includes('no job of yours')")
    await page.js("location.hash = '#/node/c/n1'")
    await page.until("document.querySelector('main').innerText.includes('alice-job')")
    assert "bob" not in await page.text()
    assert page.problems == []


async def test_page_asks_to_sign_in_at_proxy(site: Site, page: Page) -> None:
    """Where there are no tokens, it does not ask for one."""
    options = DashboardOptions(user_header="X-Forwarded-User", trusted_proxies=["127.0.0.1"])
    async with (
        LiveFeed(site, Telemetry(), name="dashboard") as feed,
        DashboardServer(feed, listen="127.0.0.1:0", sign_in=SignIn(options)) as server,
    ):
        await page.open(server.url)
        await page.until("document.querySelector('main button')?.textContent === 'Sign in'")
        assert not await page.js("!!document.querySelector('input[type=password]')")
        headers = {"X-Forwarded-User": "carol"}
        await page.call("Network.enable")
        await page.call("Network.setExtraHTTPHeaders", headers=headers)
        await page.open("about:blank")
        await page.open(server.url)
        await page.until("document.body?.innerText.includes('carol (user)')")


async def test_page_shows_administrator_everything(below: DashboardServer, page: Page) -> None:
    """With a single token, no name is shown."""
    await opened(page, below, "admin-token", "#/jobs")
    await page.until("document.querySelector('main').innerText.includes('bob-job')")
    shown = await page.js("[...document.querySelectorAll('nav a')].map((a) => a.checkVisibility())")
    assert all(shown)
    assert page.problems == []
