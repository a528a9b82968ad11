"""The job page's numbers in a real Chromium, equal to the answers of the store itself."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import duckdb
import msgspec
import pytest

from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.jobs import Job, JobNode, message
from ccpipe.sinks.parquet import ParquetSink
from tests.cli.command import finished
from tests.conftest import eventually
from tests.dashboard.browser import Page
from tests.dashboard.conftest import Served
from tests.e2e.dashboard.test_page import CHARTS

SECOND = 10**9
CLUSTER = "fox.test"
NOW = int(time.time())
BEGIN = NOW - 3600
ELAPSED = 1517
OTHER_POWER = 900.0
"""Watts of each socket while others use the node."""


def power(second: int, node: int) -> float:
    inside = BEGIN <= second < BEGIN + ELAPSED
    return 100.0 + 10 * node + second % 7 if inside else OTHER_POWER


def made_job(nodes: Sequence[JobNode], *, shared: str = "none", end: int = BEGIN + ELAPSED) -> Job:
    return Job(
        cluster=CLUSTER, id=77, user="anna", name="cfd", partition="main", shared=shared,
        start=BEGIN * SECOND, end=end * SECOND, state="completed", nodes=tuple(nodes),
    )  # fmt: skip


async def store(live: Served, job: Job, lines: Sequence[str]) -> None:
    """Write metrics, and the events of the job, which the bus never had."""
    events = encode([message("start_job", job), message("stop_job", job)])
    async with ParquetSink(dir=str(live.parquet)) as sink:
        await sink.write(decode("\n".join(lines).encode() + b"\n" + events))


def lines_of(nodes: Sequence[str], interval: int) -> list[str]:
    found = []
    for second in range(BEGIN - 700, BEGIN + ELAPSED + 700, interval):
        for number, node in enumerate(nodes):
            tags = f"cluster={CLUSTER},hostname={node}"
            found += [
                f"cpu_load,{tags},type=node value={number + second % 5} {second}",
                f"flops_any,{tags},type=node value={1e9 + second % 11} {second}",
                f"mem_bw,{tags},type=node value={2e4 + second % 13} {second}",
                *[
                    f"cpu_power,{tags},type=socket,type-id={s} value={watts} {second}"
                    for s, watts in enumerate([power(second, number)] * 2)
                ],
            ]
    return found


def sql(directory: Path, query: str, **names: Any) -> list[tuple[Any, ...]]:
    """Return the store's own answer; ``samples`` are the metrics in the time of the job."""
    samples = f"""
        SELECT * FROM read_parquet('{directory}/*/*/*.parquet') WHERE field = 'value'
            AND epoch(time) >= {BEGIN} AND epoch(time) < {BEGIN + ELAPSED}"""  # noqa: S608
    return duckdb.execute(f"WITH samples AS ({samples}) {query}", names or None).fetchall()


async def open_job(page: Page, live: Served, query: str = "") -> None:
    await page.open("about:blank")
    await page.open(f"{live.server.url}#/job/{CLUSTER}/77/{BEGIN}{query}")
    await page.until(
        "document.querySelector('.statistics')?.closest('section').innerText",
        lambda text: bool(text) and "of all stored values of the job" in text,
    )
    await page.until("document.querySelector('.note').textContent", lambda text: text == "")


async def shown(page: Page, values: Sequence[float], unit: str) -> list[str]:
    """Return numbers as the page writes them."""
    found: list[str] = await page.js(
        f"import('/units.js').then(m => {json.dumps(list(values))}.map(v => m.format(v, {unit!r})))"
    )
    return found


async def statistics(page: Page) -> Mapping[tuple[str, str], list[str]]:
    """Return the cells of the table, by metric and node."""
    await page.js(
        "document.querySelector('.statistics').closest('section')"
        ".querySelector('button[aria-pressed=false]')?.click()"
    )
    rows = await page.js(
        "[...document.querySelectorAll('.statistics tbody tr')].map(row =>"
        " [row.dataset.metric, ...[...row.children].slice(1).map(cell => cell.textContent)])"
    )
    return {(metric, node): cells for metric, node, *cells in rows}


@pytest.mark.parametrize(
    "interval", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (10, 60)), 90]
)
async def test_job_page_equals_store_at_interval(live: Served, page: Page, interval: int) -> None:
    """Statistics and energy are of exactly the job's time; nothing of the jobs beside it."""
    nodes = ("n1", "n2", "n3")
    await store(live, made_job([JobNode(node) for node in nodes]), lines_of(nodes, interval))
    await open_job(page, live)
    table = await statistics(page)
    units = {"cpu_load": "", "flops_any": "Flops/s", "mem_bw": "MByte/s", "cpu_power": "W"}
    of_nodes = sql(live.parquet, """
        SELECT name, hostname, min(v), avg(v), max(v) FROM (
            SELECT name, hostname, time, sum(value) AS v FROM samples GROUP BY ALL
        ) GROUP BY ALL""")  # fmt: skip
    assert len(of_nodes) == len(units) * len(nodes)
    state = live.state.nodes.known
    for name, node, *numbers in of_nodes:
        assert table[name, node] == await shown(page, numbers, state[name].unit), (name, node)
    for name in units:
        rows = [numbers for each, _, *numbers in of_nodes if each == name]
        lows, means, highs = zip(*rows, strict=True)
        numbers = [min(lows), sum(means) / len(means), max(highs)]
        assert table[name, "all"] == await shown(page, numbers, state[name].unit), name
    [(mean,)] = sql(live.parquet, """
        SELECT avg(v) FROM (SELECT time, sum(value) AS v FROM samples
                            WHERE name = 'cpu_power' GROUP BY ALL)""")  # fmt: skip
    card = await page.until("document.querySelector('.energy').innerText")
    watts = [float(line.split()[0]) for line in card.split("\n") if line.endswith(" W")]
    assert watts[0] == pytest.approx(mean, rel=0.01)
    assert watts[1] == pytest.approx(mean / 3, rel=0.01)
    [hours] = [float(line.split()[0]) for line in card.split("\n") if line.endswith(" Wh")]
    assert hours == pytest.approx(mean * ELAPSED / 3600, rel=0.01)
    assert "25 min 17 s" in card
    assert {"cpu_load", "flops_any", "mem_bw"} <= set(await page.js(CHARTS))
    assert page.problems == []


async def test_energy_is_the_same_on_page_in_index_and_terminal(live: Served, page: Page) -> None:
    """Of power that steps, with gaps: the integral from start to stop, where a gap adds nothing."""
    watts = [(0, 300, 100), (300, 720, 500), (1140, ELAPSED, 200)]  # nothing from 720 to 1140
    lines = [
        f"cpu_power,cluster={CLUSTER},hostname=n{node},type=node value={node * power} "
        f"{BEGIN + second}"
        for node in (1, 2)
        for start, stop, power in [(-300, 0, 900), *watts, (ELAPSED, ELAPSED + 300, 900)]
        for second in range(start, stop, 60)
    ]
    job = made_job([JobNode("n1"), JobNode("n2")])
    await store(live, job, lines)
    events = encode([message("start_job", job), message("stop_job", job)])
    await live.bus.publish("fox%2Etest.events.job", events)
    await live.bus.flush()
    joules = sum(3 * power * (stop - start) for start, stop, power in watts)
    await open_job(page, live)
    card = await page.until("document.querySelector('.energy').innerText")
    assert await page.js(f"import('/units.js').then(m => m.energy({joules}))") in card
    assert "18 min 17 s" in card
    async with aiohttp.ClientSession(live.server.url) as session:
        indexed = 0.0
        async with asyncio.timeout(60):
            while not indexed:
                async with session.post("/api/jobs", json={"job": [77]}) as answer:
                    indexed = sum(row["energy"] or 0 for row in (await answer.json())["jobs"])
                await asyncio.sleep(0.2)
    words = ("--history", live.parquet, "--server", live.site.bus.servers[0])
    done = await finished("jobs", "77", *map(str, words), "--cluster", CLUSTER, "-o", "json")
    report = json.loads(done.out)["report"]["energy"]
    assert indexed == pytest.approx(joules)
    assert report["joules"] == indexed
    assert report["seconds"] == ELAPSED - 420
    assert page.problems == []


async def test_job_page_shows_band_of_many_nodes(live: Served, page: Page) -> None:
    """Beyond eight nodes it is their mean, with a band of minimum and maximum."""
    nodes = [f"n{number}" for number in range(12)]
    await store(live, made_job([JobNode(node) for node in nodes]), lines_of(nodes, 60))
    await open_job(page, live)
    load = "document.querySelector('.chart[data-metric=cpu_load]')"
    await page.until(f"{load}?.querySelector('.now').textContent", lambda text: text[0].isdigit())
    assert await page.js(f"{load}.querySelector('.lines').hidden")
    table = await statistics(page)
    assert ("cpu_load", "n11") in table
    [numbers] = sql(live.parquet, "SELECT min(value), avg(value), max(value) FROM samples "
                                  "WHERE name = 'cpu_load'")  # fmt: skip
    assert table["cpu_load", "all"] == await shown(page, numbers, "")
    assert page.problems == []


async def test_job_page_counts_own_hwthreads_of_shared_node(live: Served, page: Page) -> None:
    """What cannot be divided is labelled as the whole node's."""
    job = made_job([JobNode("n1", (1, 3))], shared="multi_user")
    lines = [
        f"{metric},cluster={CLUSTER},hostname=n1,{tags} value={value} {second}"
        for second in range(BEGIN - 600, BEGIN + ELAPSED + 600, 30)
        for metric, tags, value in [
            *[("flops_any", f"type=hwthread,type-id={n}", 10.0**n) for n in range(4)],
            *[("ipc", f"type=hwthread,type-id={n}", float(n)) for n in range(4)],
            ("mem_bw", "type=socket,type-id=0", 5.0),
            ("cpu_load", "type=node", 4.0),
        ]
    ]
    await store(live, job, lines)
    await open_job(page, live)
    table = await statistics(page)
    unit = live.state.nodes.known["flops_any"].unit
    assert table["flops_any", "n1"] == await shown(page, [1010.0] * 3, unit)
    assert table["ipc", "n1"] == await shown(page, [2.0] * 3, "")
    labels = await page.js(
        "[...document.querySelectorAll('.chart figcaption')].filter(c => c.innerText.includes("
        "'whole node')).map(c => c.parentElement.dataset.metric)"
    )
    assert "mem_bw" in labels
    assert not {"flops_any", "ipc"} & set(labels)
    assert page.problems == []


async def test_job_page_zooms_into_selected_time(live: Served, page: Page) -> None:
    """Dragging reads a finer step, and the address opens the same time elsewhere."""
    await store(live, made_job([JobNode("n1")]), lines_of(["n1"], 2))
    await open_job(page, live)
    steps = """(async () => { const m = await import('/history.js');
        const a = await m.fetchHistory({of: 'job', cluster: 'fox.test', job: 77, begin: %d,
            start: %s, stop: %s}); return a.step; })()"""
    box = await page.js(
        "(() => { const o = document.querySelector('.charts .u-over'); o.scrollIntoView("
        "{block: 'center'}); const b = o.getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    left, top, width, height = box
    for kind, share in (("mousePressed", 0.25), ("mouseMoved", 0.4), ("mouseMoved", 0.5),
                        ("mouseReleased", 0.5)):  # fmt: skip
        await page.call("Input.dispatchMouseEvent", type=kind, x=left + share * width,
                        y=top + height / 2, button="left", buttons=1, clickCount=1)  # fmt: skip
    address = await page.until("location.hash", lambda text: "?from=" in text)
    chosen = dict(part.split("=") for part in address.partition("?")[2].split("&"))
    start, stop = int(chosen["from"]), int(chosen["to"])
    assert start == pytest.approx(BEGIN + ELAPSED * 0.25, abs=ELAPSED * 0.05)
    assert stop == pytest.approx(BEGIN + ELAPSED * 0.5, abs=ELAPSED * 0.05)
    whole = await page.js(steps % (BEGIN, BEGIN, BEGIN + ELAPSED))
    assert await page.js(steps % (BEGIN, start, stop)) < whole
    range_ = "document.querySelector('.shown').textContent"
    written = await page.js(
        f"import('/units.js').then(m => `${{m.dateTime({start})}} \\u2013 ${{m.dateTime({stop})}}`)"
    )
    text = await page.until(range_, lambda text: text.startswith(written))
    assert "UTC" in text
    await open_job(page, live, "?" + address.partition("?")[2])
    await page.until(range_, text.__eq__)
    await page.js("[...document.querySelectorAll('.spans button')][0].click()")
    assert "?" not in await page.js("location.hash")
    assert page.problems == []


async def test_running_job_continues_with_live_values(live: Served, page: Page) -> None:
    """Energy is of its 40 seconds only, though the node was busy before; new values appear."""
    now = int(time.time())
    begin = now - 40
    job = made_job([JobNode("n1")])
    running = msgspec.structs.replace(job, start=begin * SECOND, end=0, state="running")
    lines = [
        f"{metric},cluster={CLUSTER},hostname=n1,type=node value={value} {second}"
        for second in range(now - 600, now, 2)
        for metric, value in (("cpu_power", 100 if second >= begin else 900), ("cpu_load", 3))
    ]
    async with ParquetSink(dir=str(live.parquet)) as sink:
        await sink.write(decode("\n".join(lines).encode()))
    await live.bus.publish("fox%2Etest.metrics", encode([message("start_job", running)]))
    await live.bus.flush()
    await eventually(lambda: bool(live.state.jobs.jobs))
    node = f"cluster={CLUSTER},hostname=n1,type=node"
    await live.say("metrics", f"cpu_load,{node} value=5", f"cpu_power,{node} value=100")
    await page.open(f"{live.server.url}#/job/{CLUSTER}/77/{begin}")
    energy = "document.querySelector('.energy')?.innerText"
    card = await page.until(
        energy, lambda text: text and "measured for" in text and "100 W" in text
    )
    hours = next(line for line in card.split("\n") if line.endswith("Wh"))
    assert 1.08 <= float(hours.split()[0]) <= 1.25
    load = "document.querySelector('.chart[data-metric=cpu_load]')"
    shown = f"{load}?.querySelector('.now').textContent"
    await page.until(shown, lambda text: text == "5.00")
    await live.say("metrics", f"cpu_load,{node} value=31.5")
    await page.until(shown, lambda text: text == "31.5")
    # the store's last row may lack nodes yet
    rows = "import('/history.js').then(m => m.trimmed([1, 2, 3], [[5, 4, null]], true).times)"
    assert await page.js(rows) == [1]
    assert page.problems == []
