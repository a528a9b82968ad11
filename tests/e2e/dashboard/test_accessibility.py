"""axe-core has no complaint about any view, in both themes, on a wide screen and on a phone."""

import importlib.resources
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import DashboardOptions, Site
from ccpipe.dashboard.server import DashboardServer
from ccpipe.dashboard.sign_in import SignIn
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.jobs import JobNode, message
from ccpipe.live.feed import LiveFeed
from ccpipe.message import log, metric
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.dashboard.browser import Page
from tests.dashboard.conftest import Served
from tests.e2e.dashboard.test_job_page import BEGIN, lines_of, made_job, store
from tests.e2e.dashboard.test_nodes import CLUSTER, now, rack
from tests.e2e.dashboard.test_page import metrics, publish

__all__ = ["rack"]

AXE = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text()
"""axe-core itself, which is all that we use of this package."""
RUN = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.map(rule =>
    [rule.id, ...rule.nodes.map(node => `${node.target}: ${node.failureSummary}`)]))"""
CHARTS = "!!document.querySelector('.chart canvas')"
STATISTICS = "!!document.querySelector('.statistics td')"
OF_NODE, OF_JOB = f"#/node/{CLUSTER}", f"#/job/{CLUSTER}"
VIEWS = {
    "#/": "document.querySelectorAll('canvas.heat').length === 3"
    " && document.querySelectorAll('td a, .exceeded a').length > 2",
    "#/nodes": "/[0-9]/.test(document.querySelector('td.figure')?.innerText)",
    "#/nodes//rack/map": "document.querySelectorAll('.groups canvas').length > 1",
    f"{OF_NODE}/n1": CHARTS,
    f"{OF_NODE}/n1?last=7200": f"document.querySelector('.note').textContent === '' && {CHARTS}",
    f"{OF_NODE}/r2n2": "document.querySelector('.condition')?.innerText.includes('silent')",
    f"{OF_NODE}/none": "document.querySelector('.empty a')?.innerText === 'All nodes'",
    "#/jobs": "document.querySelectorAll('tbody tr').length > 2",
    "#/jobs?user=anna&show=finished": "document.querySelector('.filters').open"
    " && !!document.querySelector('tbody tr')",
    "#/jobs?sort=usre": "document.querySelector('[role=status].dim').innerText.includes('did you')",
    f"{OF_JOB}/79/{BEGIN}": f"!!document.querySelector('.state.running') && {CHARTS}",
    f"{OF_JOB}/77/{BEGIN}": f"!!document.querySelector('.findings') && {STATISTICS} && {CHARTS}",
    f"{OF_JOB}/78/{BEGIN}": f"{STATISTICS} && {CHARTS}",
    f"{OF_JOB}/1/2": "document.querySelector('.empty a')?.innerText === 'All jobs'",
    "#/events": "document.querySelectorAll('.entry').length > 3",
    "#/pipe": "document.querySelectorAll('table').length === 2 && !!document.querySelector('li')",
}
"""Each path with what is true once the page shows everything."""
QUICK = ("#/", f"{OF_NODE}/n1", "#/jobs", f"{OF_JOB}/77/{BEGIN}", "#/pipe")

looks = pytest.mark.parametrize(
    ("dark", "width"),
    [(True, 390), *(pytest.param(*look, marks=pytest.mark.long)
                    for look in ((True, 1280), (False, 390), (False, 1280)))],
)  # fmt: skip


async def appear(page: Page, *, dark: bool, width: int) -> None:
    """Choose theme and size, high enough for all to be drawn; colours are judged without motion."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    await page.call("Emulation.setEmulatedMedia", features=[scheme, still])
    await page.size(width, 3000)


async def violations(page: Page) -> Any:
    """Return what axe-core complains about: a rule, and the elements with the reasons."""
    if not await page.js("!!window.axe"):
        await page.js(f"{AXE}; 0")
    await page.js("document.querySelectorAll('main details').forEach(d => { d.open = true; })")
    return await page.js(RUN)


@pytest.fixture
async def full(rack: Served) -> Served:
    """Nodes of all states, jobs that ended and one that runs, a log message and a dead letter."""
    nodes = [f"n{number}" for number in range(1, 13)]
    few = msgspec.structs.replace(made_job([JobNode("n1"), JobNode("n2")]), state="timeout")
    many = msgspec.structs.replace(made_job([JobNode(node) for node in nodes]), id=78)
    running = msgspec.structs.replace(few, id=79, state="running", end=0)
    await store(rack, few, lines_of(nodes, 30))
    events = [message("start_job", job) for job in (few, many, running)]
    events += [message("stop_job", job) for job in (few, many)]
    tags = {"cluster": CLUSTER, "hostname": "n1", "type": "node"}
    levels = ("debug", "info", "warn", "error")
    events += [log("ccpipe", level, f"{level} text", time=now(), tags=tags) for level in levels]
    disks = [
        metric("io_reads", 1.0, time=now(), tags={**tags, "stype": "device", "stype-id": f"sd{n}"})
        for n in range(12)
    ]
    await publish(rack, [*events, *metrics(time.time()), *disks])
    async with NatsSink(site=rack.site, telemetry=Telemetry()) as sink:
        await sink.write(to_lines(metrics(time.time())))
    letter = DeadLetter(b"cpu_load value=abc", "not a number", "fox.metrics")
    await NatsDeadLetterSink(rack.bus, rack.site).write([letter])
    return rack


async def check_views(page: Page, live: Served, *paths: str) -> None:
    await page.open(live.server.url)
    await page.until("document.querySelector('#status .dot')?.className === 'dot good'")
    for path in paths:
        await page.js(f"location.hash = {path!r}")
        await page.until(VIEWS[path])
        assert await violations(page) == [], path


async def test_frequent_views_are_accessible(full: Served, page: Page) -> None:
    """In the light theme and on a wide screen."""
    await appear(page, dark=False, width=1280)
    await check_views(page, full, *QUICK)


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
async def test_every_view_is_accessible(full: Served, page: Page, dark: bool, width: int) -> None:
    """Live and ended jobs, stored and silent nodes, and what is unknown or wrong."""
    await appear(page, dark=dark, width=width)
    await check_views(page, full, *VIEWS)


@looks
async def test_page_without_data_is_accessible(
    live: Served, page: Page, dark: bool, width: int
) -> None:
    """As when the connection is lost."""
    await appear(page, dark=dark, width=width)
    await page.open(live.server.url)
    await page.until("document.querySelector('.welcome:not([hidden])')?.innerText")
    assert await violations(page) == []
    await live.server.__aexit__(None, None, None)
    await page.until("document.getElementById('status').innerText.includes('connection lost')")
    assert await violations(page) == []


@looks
async def test_sign_in_is_accessible(
    site: Site, page: Page, tmp_path: Path, dark: bool, width: int
) -> None:
    """By token, with a wrong one, without permission, and by a proxy."""
    file = tmp_path / "tokens"
    file.write_text("admin-token\nalice-token user alice\n")
    proxied = DashboardOptions(user_header="X-Forwarded-User", trusted_proxies=["127.0.0.1"])
    await appear(page, dark=dark, width=width)
    async with (
        LiveFeed(site, Telemetry(), name="dashboard") as feed,
        DashboardServer(
            feed, listen="127.0.0.1:0", sign_in=SignIn(DashboardOptions(token_file=str(file)))
        ) as server,
        DashboardServer(feed, listen="127.0.0.1:0", sign_in=SignIn(proxied)) as other,
    ):
        await page.open(server.url)
        await page.until("!!document.querySelector('input[type=password]')")
        assert await violations(page) == []
        await page.js("document.querySelector('main button').click()")
        await page.until("document.querySelector('main .bad')?.textContent")
        assert await violations(page) == []
        await page.open("about:blank")
        await page.open(f"{server.url}#token=alice-token")
        await page.until("document.querySelector('#status .dot')?.className === 'dot good'")
        await page.js("location.hash = '#/pipe'")
        await page.until("document.querySelector('h1')?.innerText === 'Not permitted'")
        assert await violations(page) == []
        await page.open(other.url)
        await page.until("document.querySelector('main button')?.innerText === 'Sign in'")
        assert await violations(page) == []
