"""The page in a real Chromium: every view, hostile texts, keys, the token."""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import DashboardOptions, Site
from ccpipe.dashboard.server import DashboardServer
from ccpipe.dashboard.sign_in import SignIn
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.live.feed import LiveFeed
from ccpipe.message import Message, event, log, metric
from ccpipe.pipeline import DeadLetter
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.dashboard.browser import Page
from tests.dashboard.conftest import Served

SECOND = 10**9
NODES = ("n1", "n2", "n10")
PAGES_BY_KEY = (
    ("2", "#/nodes"), ("3", "#/jobs"), ("4", "#/events"), ("5", "#/pipe"), ("1", "#/")
)  # fmt: skip
TITLE = "Memory used GB 64.0 GB"
CHARTS = "[...document.querySelectorAll('.chart[data-metric]')].map(c => c.dataset.metric)"


def contains(wanted: str, text: str) -> bool:
    return wanted in text


def metrics(at: float) -> list[Message]:
    """Return what three nodes send: load, memory, speed, power of sockets, a GPU."""
    found = []
    for number, node in enumerate(NODES):
        tags = {"cluster": "fox.test", "hostname": node, "type": "node"}
        values = {
            "cpu_load": 8.0 + number, "mem_used": 64e6, "flops_any": 1e11 * (number + 1),
            "mem_bw": 2e4, "cpu_user": 50.0 + number,
        }  # fmt: skip
        found += [metric(k, v, time=int(at) * SECOND, tags=tags) for k, v in values.items()]
        for socket in ("0", "1"):
            part = {**tags, "type": "socket", "type-id": socket}
            found.append(metric("cpu_power", 100.0, time=int(at) * SECOND, tags=part))
        gpu = {**tags, "type": "accelerator", "type-id": "0"}
        found.append(metric("nv_util", 75.0, time=int(at) * SECOND, tags=gpu))
    return found


def start(user: str = "anna", cluster: str = "fox.test") -> Message:
    payload = (
        f'{{"jobId": 77, "user": "{user}", "cluster": "{cluster}", "startTime": '
        f'{int(time.time()) - 3600}, "numNodes": 2, "partition": "main", '
        '"resources": [{"hostname": "n1"}, {"hostname": "n2"}], "metaData": {"jobName": "cfd"}}'
    )
    tags = {"cluster": cluster, "hostname": "n1", "type": "node"}
    return event("job", "start_job", payload, time=int(time.time()) * SECOND, tags=tags)


async def publish(live: Served, messages: list[Message]) -> None:
    """Publish messages on the subject of metrics; the kind of each follows from its line."""
    await live.bus.publish("fox%2Etest.metrics", encode(messages))
    await live.bus.flush()


@pytest.fixture
async def busy(live: Served) -> Served:
    text = log("ccpipe", "warn", "disk is slow", time=int(time.time()) * SECOND,
               tags={"cluster": "fox.test", "hostname": "n2", "type": "node"})  # fmt: skip
    await publish(live, [*metrics(time.time()), start(), text])
    return live


async def go(page: Page, live: Served, path: str = "") -> None:
    await page.open(live.server.url + path)
    await page.until("document.querySelector('#status .dot')?.className", lambda c: c == "dot good")


async def test_first_page_shows_all_nodes(busy: Served, page: Page) -> None:
    """Three maps, the running job and the warning, without errors in the console."""
    await go(page, busy)
    await page.until(
        "document.querySelectorAll('.map select option:checked').length", lambda n: n == 3
    )
    chosen = "[...document.querySelectorAll('.map select')].map(s => s.value).join()"
    await page.until(chosen, lambda found: found == "cpu_load,mem_used,nv_util")
    await page.until("document.body.innerText", lambda text: "disk is slow" in text)
    shown = await page.text()
    assert "3 nodes" in shown
    assert "job 77 anna cfd 2 nodes" in " ".join(shown.split())
    # Colours are painted: the canvas is not empty.
    painted = """(() => { const c = document.querySelector('canvas.heat');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return d.filter((v, i) => i % 4 === 3 && v > 0).length; })()"""
    await page.until(painted, lambda pixels: pixels > 500)
    assert page.problems == []


async def test_page_shows_live_values(busy: Served, page: Page) -> None:
    """Published values appear without reloading."""
    await go(page, busy, "#/node/fox.test/n1")
    value = "document.querySelector('[data-metric=cpu_load] .now')?.textContent"
    await page.until(value, lambda text: text == "8.00")
    changed = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
    await publish(busy, [metric("cpu_load", 31.5, time=int(time.time()) * SECOND, tags=changed)])
    await page.until(value, lambda text: text == "31.5")
    # A new series appears by itself.
    await publish(busy, [metric("ipc", 1.25, time=int(time.time()) * SECOND, tags=changed)])
    ipc = "document.querySelector('[data-metric=ipc] .now')?.textContent"
    await page.until(ipc, lambda text: text == "1.25")
    assert page.problems == []


async def test_chart_has_title_with_unit_and_name_of_metric(busy: Served, page: Page) -> None:
    """The unit is that of the axis; the page is searched by title and by name."""
    await go(page, busy, "#/node/fox.test/n1")
    title = "document.querySelector('[data-metric=mem_used] figcaption')"
    await page.until(f"{title}?.innerText.replaceAll('\\n', ' ')", lambda t: t == TITLE)
    assert await page.js(f"{title}.querySelector('.name').title") == "mem_used"
    search = "document.querySelector('input[type=search]')"
    shown = "[...document.querySelectorAll('.chart:not([hidden])')].map(c => c.dataset.metric)"
    for word in ("mem_used", "memory used"):
        await page.js(f"{search}.value = {word!r}; {search}.dispatchEvent(new Event('input'))")
        assert set(await page.js(shown)) == {"mem_used"}
    assert page.problems == []


async def test_chart_of_many_parts_is_band_with_one_to_choose(busy: Served, page: Page) -> None:
    """Beyond eight parts, so that no colour is used twice; eight have a line and colour each."""
    tags = {"cluster": "fox.test", "hostname": "n1", "type": "node", "stype": "device"}
    now = int(time.time()) * SECOND
    for name, count in (("io_reads", 12), ("io_writes", 8)):
        await publish(busy, [
            metric(name, float(10 * part), time=now, tags={**tags, "stype-id": f"sd{part:02}"})
            for part in range(count)
        ])  # fmt: skip
    await go(page, busy, "#/node/fox.test/n1")
    await page.until("!!document.querySelector('[data-metric=io_reads]')")
    await page.js("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    await page.js("document.querySelector('[data-metric=io_writes]').scrollIntoView()")
    colours = "new Set([...document.querySelectorAll('[data-metric=io_writes] .lines i')]"
    different = f"{colours}.map(i => getComputedStyle(i).backgroundColor)).size"
    await page.until(different, lambda number: number == 8)
    legend = "document.querySelector('[data-metric=io_reads] .lines')"
    await page.until(f"{legend}?.innerText", lambda text: "mean of 12, minimum to maximum" in text)
    now_shown = "document.querySelector('[data-metric=io_reads] .now').textContent"
    await page.until(now_shown, lambda text: text == "sum 660")
    column = """import('/chart.js').then(({Chart}) => { const chart = new Chart({title: 't',
        labels: Array(12).fill('part')}); chart.set([[1, 2], ...Array.from({length: 12},
        (_, part) => [part ? part : null, null])]); return chart.drawn(); })"""
    assert await page.js(column) == [[1, 2], [1, None], [6, None], [11, None], [None, None]]
    midnight = await page.js("new Date(2026, 10, 28).getTime() / 1000")
    times = f"[{midnight}, {midnight} + 43200, {midnight} + 86400]"
    labels = f"import('/chart.js').then(m => {times}.map(time => m.brief(time, 7 * 86400)))"
    assert await page.js(labels) == ["11-28", "12:00", "11-29"]
    await page.js(
        f"(s => {{ s.value = [...s.options].find(o => o.text.endsWith('sd07')).value;"
        f" s.dispatchEvent(new Event('change')); }})({legend}.querySelector('select'))"
    )
    await page.until(now_shown, lambda text: text == "device sd07 70.0")
    assert page.problems == []


async def test_node_page_is_reachable_by_keyboard(busy: Served, page: Page) -> None:
    """Arrows move on the map and Enter opens; digits change pages, / searches, t the theme."""
    await go(page, busy)
    await page.until("document.querySelector('.map select')?.value", lambda v: v == "cpu_load")
    await page.until(
        "document.querySelector('.tip') && (document.querySelector('canvas.heat').focus(), 1)"
    )
    await page.key("ArrowRight")
    await page.key("ArrowRight")
    tip = await page.until("document.querySelector('.tip').textContent")
    assert tip == "n2  9.00"
    await page.key("Enter")
    await page.until("location.hash", lambda at: at == "#/node/fox.test/n2")
    await page.until("document.querySelectorAll('.chart').length", lambda n: n >= 7)
    assert await page.js("document.title") == "n2 · ccpipe"
    await page.key("/")
    assert await page.js("document.activeElement.type") == "search"
    await page.js("document.activeElement.blur()")
    for key, path in PAGES_BY_KEY:
        await page.key(key)
        await page.until("location.hash", path.__eq__)
    before = await page.js("document.documentElement.dataset.theme")
    await page.key("t")
    assert await page.js("document.documentElement.dataset.theme") != before
    assert page.problems == []


async def test_job_page_shows_nodes_energy_and_roofline(busy: Served, page: Page) -> None:
    """Found in the list, by its user too."""
    await go(page, busy, "#/jobs")
    await page.until("document.querySelector('td a')?.textContent", lambda text: text == "77")
    search = "document.querySelector('input').value = {!r}; document.querySelector('input')"
    search += ".dispatchEvent(new Event('input'))"
    await page.js(search.format("nobody"))
    await page.until("document.body.innerText", partial(contains, "No job matches"))
    await page.js(search.format("anna cfd"))
    await page.until("document.querySelector('td a')?.textContent", lambda text: text == "77")
    await page.js("document.querySelector('td a').click()")
    await page.until("document.querySelectorAll('.nodes a').length", lambda n: n == 2)
    energy = "document.querySelector('.energy')?.innerText"
    await page.until(energy, lambda text: text and "400 W" in text and "200 W" in text)
    painted = """(() => { const c = document.querySelector('canvas.roof');
        if (!c?.width) return 0;
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return d.filter((v, i) => i % 4 === 3 && v > 0).length; })()"""
    await page.until(painted, lambda pixels: pixels > 500)
    assert {"flops_any", "mem_bw", "cpu_load"} <= set(await page.js(CHARTS))
    assert page.problems == []


@pytest.mark.parametrize("interval", [2, 60, 90])
async def test_node_page_shows_history_at_interval(busy: Served, page: Page, interval: int) -> None:
    """An hour and more of a node: values that are no longer live, without gaps."""
    now = int(time.time())
    begin = now - 3000
    lines = [
        f"mem_used,cluster=fox.test,hostname=n1,type=node value={second - begin} {second}"
        for second in range(begin, now - 600, interval)
    ]
    async with ParquetSink(dir=str(busy.parquet)) as sink:
        await sink.write(decode("\n".join(lines).encode()))
    await go(page, busy, "#/node/fox.test/n1")
    await page.until("document.querySelectorAll('.chart').length", lambda n: n >= 7)
    await page.js("[...document.querySelectorAll('.spans button')][1].click()")
    await page.until("location.hash", lambda at: at == "#/node/fox.test/n1?last=3600")
    await page.until(CHARTS, lambda names: set(names) == {"mem_used"})
    pressed = "document.querySelector('.spans [aria-pressed=true]').textContent"
    assert await page.js(pressed) == "1 h"
    drawn = """import('/history.js').then(m => m.fetchHistory({of: 'nodes', cluster: 'fox.test',
        nodes: ['n1'], start: %d, stop: %d})).then(a => [a.step, a.column(0)])"""
    step, column = await page.js(drawn % (begin, begin + 1200))
    assert step >= interval
    assert None not in column
    # the address opens the same time elsewhere
    await page.open("about:blank")
    await go(page, busy, f"#/node/fox.test/n1?from={begin}&to={begin + 1200}")
    await page.until(CHARTS, lambda names: set(names) == {"mem_used"})
    fields = "[...document.querySelectorAll('.range input')].map(i => new Date(i.value) / 1000)"
    await page.until(fields, [begin, begin + 1200].__eq__)
    await page.js("[...document.querySelectorAll('.spans button')][0].click()")
    await page.until(CHARTS, lambda names: len(names) >= 7)
    assert page.problems == []


async def test_gone_node_shows_history(busy: Served, page: Page) -> None:
    """Its last values are in the store, though nothing was received lately."""
    now = int(time.time())
    line = f"mem_used,cluster=fox.test,hostname=gone,type=node value=5 {now - 3000}"
    async with ParquetSink(dir=str(busy.parquet)) as sink:
        await sink.write(decode(line.encode()))
    await go(page, busy, "#/node/fox.test/gone")
    await page.until("document.querySelector('main').textContent",
                     lambda text: "Nothing has been received" in text)  # fmt: skip
    await page.js("[...document.querySelectorAll('.spans button')][1].click()")
    title = "document.querySelector('.chart .name')?.textContent"
    await page.until(title, lambda text: text == "Memory used")
    assert page.problems == []


async def test_hostile_texts_are_escaped(live: Served, page: Page) -> None:
    """Names, tags and texts that are markup are shown literally, on every page."""
    bad = "<script>window.hacked=1</script>"
    image = "<img src=x onerror=window.hacked=2>"
    now = int(time.time()) * SECOND
    tags = {"cluster": image, "hostname": bad, "type": "node"}
    part = {**tags, "type": "socket", "type-id": image}
    hostile = [
        metric("cpu_load", 1.0, time=now, tags=tags),
        metric(f"mem_used{image}", 2.0, time=now, tags=tags),
        metric("cpu_power", 3.0, time=now, tags=part),
        metric("cpu_power", 3.0, time=now, tags={**part, "type-id": "javascript:alert(1)"}),
        log(image, "error", f"{bad}{image}", time=now, tags=tags),
        start(user=image.replace('"', ""), cluster=image),
    ]
    await publish(live, hostile)
    letter = DeadLetter(bad.encode(), image, image)
    await NatsDeadLetterSink(live.bus, live.site).write([letter])
    await go(page, live)
    await page.until("document.body.textContent", lambda text: f"{bad}{image}" in text)
    await page.js("document.querySelector('td a').click()")
    await page.until(
        "document.body.textContent", lambda text: "userimg" not in text and image in text
    )
    await page.js(
        f"location.hash = ['#/node', {image!r}, {bad!r}].map((part, n) =>"
        " n ? encodeURIComponent(part) : part).join('/')"
    )
    await page.until("document.querySelectorAll('.chart').length", lambda n: n >= 3)
    views = [("#/events", bad), ("#/jobs", image), ("#/pipe", image), ("#/nodes", bad)]
    for path, wanted in [*views, ("#/nodes//cluster/map", image)]:
        await page.js(f"location.hash = {path!r}")
        await page.until("document.querySelector('main').textContent", partial(contains, wanted))
    assert await page.js("window.hacked ?? null") is None
    assert await page.js("document.querySelectorAll('main script, main img').length") == 0
    assert page.problems == []


async def test_event_is_shown_once_and_links_to_its_job(busy: Served, page: Page) -> None:
    """Also after another metric was selected for a map, which restarts the page's stream."""
    await go(page, busy)
    await page.until("document.querySelectorAll('.entry').length", lambda n: n == 2)
    await page.js(
        "(() => { const s = document.querySelector('.map select'); s.value = 'mem_bw';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    await page.until("document.querySelector('.heat').title", lambda text: "memory" in text)
    assert await page.js("document.querySelectorAll('.entry').length") == 2
    await page.js("document.querySelector('.entry a[href^=\"#/job/\"]').click()")
    await page.until("document.querySelector('h1').textContent", lambda text: text == "Job 77")
    await page.until("!!document.querySelector('.nodes a')")
    await page.js("document.querySelector('.nodes a').click()")
    await page.until("document.querySelector('td.job a')?.textContent", lambda text: text == "77")
    assert page.problems == []


async def test_pages_fit_phone(busy: Served, page: Page) -> None:
    """Tables scroll separately; texts of events are below, not cut off."""
    await page.size(390, 844)
    await go(page, busy)
    start = int(await page.js("Math.round(Date.now() / 1000)")) - 3600
    begin = next(iter(busy.state.jobs.jobs)).start // SECOND
    assert abs(begin - start) < 60
    job = f"#/job/fox.test/77/{begin}"
    paths = ("#/", "#/nodes", "#/nodes//rack/map", "#/jobs", "#/events", "#/pipe")
    for path in (*paths, "#/node/fox.test/n1", job):
        await page.js(f"location.hash = {path!r}")
        await page.until("document.querySelectorAll('main .card, main .chart').length")
        await asyncio.sleep(1.2)  # until its first frame is drawn
        assert await page.js("document.documentElement.scrollWidth") == 390, path
    await page.js("location.hash = '#/events'")
    width = "document.querySelector('.entry .text')?.clientWidth"
    await page.until(width, lambda pixels: pixels and pixels > 250)
    assert page.problems == []


async def test_few_nodes_are_tiles_and_gaps_are_explained(busy: Served, page: Page) -> None:
    """The legend below the map explains grey."""
    tags = {"cluster": "fox.test", "hostname": "n3", "type": "node"}
    await publish(busy, [metric("ipc", 1.0, time=int(time.time()) * SECOND, tags=tags)])
    await go(page, busy)
    missing = "document.querySelector('.missing').textContent"
    await page.until(missing, lambda text: text == "1 without a value (grey)")
    assert await page.js("document.querySelector('canvas.heat').clientHeight") < 120


async def test_layout_is_stable_while_values_arrive(busy: Served, page: Page) -> None:
    """By the browser's own measure of layout shifts, after the page was loaded."""
    await page.call("Network.enable")
    await go(page, busy)
    await page.until("document.querySelector('.map select')?.value", lambda v: v == "cpu_load")
    await drawn(page, 2)
    await page.js(
        "window.shift = 0; new PerformanceObserver(list => { for (const e of list.getEntries())"
        " window.shift += e.value; }).observe({type: 'layout-shift'})"
    )
    for second in range(3):
        await publish(busy, metrics(time.time() + second))
        await drawn(page, 1)
    assert await page.js("window.shift") < 0.01


async def drawn(page: Page, frames: int) -> None:
    enough = len(page.frames) + frames
    await eventually(lambda: len(page.frames) >= enough)
    for _ in range(2):
        await page.js("new Promise(resolve => requestAnimationFrame(() => resolve(1)))")


async def test_page_reconnects_to_restarted_dashboard(busy: Served, page: Page) -> None:
    """Meanwhile the page reports the lost connection."""
    await go(page, busy)
    port = busy.server.port
    await busy.server.__aexit__(None, None, None)
    await page.until(
        "document.getElementById('status').innerText", lambda t: "connection lost" in t
    )
    async with DashboardServer(busy.feed, listen=f"127.0.0.1:{port}"):
        await page.until(
            "document.querySelector('#status .dot').className", lambda c: c == "dot good"
        )


async def test_page_requires_token(site: Site, page: Page, tmp_path: Path) -> None:
    """Typed, or in the URL, from which it is removed."""
    file = tmp_path / "tokens"
    file.write_text("open-sesame")
    sign_in = SignIn(DashboardOptions(token_file=str(file)))
    async with (
        LiveFeed(site, Telemetry(), name="dashboard") as feed,
        DashboardServer(feed, listen="127.0.0.1:0", sign_in=sign_in) as server,
    ):
        await page.open(server.url)
        await page.until("!!document.querySelector('input[type=password]')")
        await page.js(
            "document.querySelector('input').value = 'wrong';"
            "document.querySelector('main button').click()"
        )
        await page.until("document.querySelector('main .bad')?.textContent")
        await page.open("about:blank")
        await page.open(server.url + "#token=open-sesame")
        await page.until(
            "document.querySelector('#status .dot')?.className", lambda c: c == "dot good"
        )
        assert "sesame" not in str(await page.js("location.href"))
        assert await page.js("document.cookie") == ""
        refused = [each for each in page.problems if "401" not in each]
        assert refused == []


async def test_pipe_page_shows_streams_and_dead_letters_of_other_sinks(
    live: Served, page: Page
) -> None:
    async with NatsSink(site=live.site, telemetry=Telemetry()) as sink:
        await sink.write(to_lines(metrics(time.time())))
    await go(page, live, "#/pipe")
    await page.until("document.body.innerText", lambda text: "ccpipe-fox%2Etest" in text)
    assert page.problems == []
