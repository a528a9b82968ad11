"""The first page and the nodes' pages in a real Chromium: numbers, groups, silent nodes."""

import json
import time
from typing import Any

import pytest

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, event, metric
from ccpipe.sinks.parquet import ParquetSink
from tests.conftest import eventually
from tests.dashboard.browser import Page
from tests.dashboard.conftest import Served
from tests.e2e.dashboard.test_page import SECOND, go, publish

CLUSTER = "fox.test"
NODES = ("r1n1", "r1n2", "r2n1", "r2n2")


def now() -> int:
    return int(time.time()) * SECOND


def values(node: str, cluster: str = CLUSTER, age: int = 0, **numbers: float) -> list[Message]:
    tags = {"cluster": cluster, "hostname": node, "type": "node"}
    time = now() - age * SECOND
    return [metric(name, value, time=time, tags=tags) for name, value in numbers.items()]


def happens(name: str, function: str, payload: dict[str, Any]) -> Message:
    tags = {"cluster": CLUSTER, "hostname": NODES[0], "type": "node"}
    return event(name, function, json.dumps(payload), time=now(), tags=tags)


def job(*nodes: str) -> Message:
    return happens("job", "start_job", {
        "jobId": 77, "user": "anna", "cluster": CLUSTER, "startTime": int(time.time()) - 3600,
        "numNodes": len(nodes), "partition": "main", "resources": [{"hostname": n} for n in nodes],
    })  # fmt: skip


def states(**nodes: list[str]) -> Message:
    rows = [{"hostname": name, "states": found} for name, found in nodes.items()]
    return happens("nodestate", "nodestate", {"cluster": CLUSTER, "nodes": rows})


VISIBLE = "[...document.querySelectorAll('.charts.sums .chart')].filter(c => c.checkVisibility())"
CHARTS = f"{VISIBLE}.map(c => c.querySelector('.name').textContent).join()"


@pytest.fixture
async def rack(live: Served) -> Served:
    """Four nodes in two racks: busy, idle with full memory, drained, and silent for two hours."""
    for number, node in enumerate(NODES):
        used = 97e6 if node == "r1n2" else 10e6
        await publish(live, values(
            node, cpu_load=1.5 + number, mem_used=used, mem_total=100e6, platform_power=100.0,
            flops_any=1e9,
        ))  # fmt: skip
    rows = [{"hostname": "r2n1", "reason": "bad DIMM"}]
    why = happens("nodereason", "nodereason", {"cluster": CLUSTER, "nodes": rows})
    await publish(live, [job("r1n1"), states(r2n1=["idle", "drain"], r9=["down"]), why])
    nodes = live.state.nodes.nodes
    await eventually(lambda: len(live.state.nodes.in_order()) == 5)
    nodes[CLUSTER, "r2n2"].seen -= 7380
    return live


async def shows(page: Page, expression: str, wanted: object) -> None:
    await page.until(expression, lambda found: found == wanted)


TOTALS = "[...document.querySelectorAll('.totals dd')].map(d => d.textContent).join()"
NAMES = "[...document.querySelectorAll('.nodes th.name a')].map(a => a.textContent).join()"


async def test_first_page_sums_nodes_jobs_power_and_speed(rack: Served, page: Page) -> None:
    """With their course over time; a silent node adds nothing."""
    await go(page, rack)
    await shows(page, TOTALS, "1,1,1,1,1,1,0,300 W,3.00 GF/s")
    await page.until("document.querySelectorAll('.charts.sums canvas').length", lambda n: n == 4)
    assert "▲ Memory in use over 95.0 %\nr1n2 97.0 %" in await page.js(
        "document.querySelector('.exceeded').innerText"
    )
    await publish(rack, values("r1n2", mem_used=50e6))
    await page.until("document.querySelector('.exceeded').parentElement.hidden")
    assert "r2n1: idle, drain; r9: down" in await page.js(
        "document.querySelector('.log').innerText"
    )
    missing = "document.querySelector('.missing').textContent"
    assert "1 drained (diamond), 1 down (cross), 1 silent (stroke)" in await page.js(missing)
    await page.js("document.querySelector('.totals dt a[href$=silent]').click()")
    await shows(page, NAMES, "r2n2")
    assert page.problems == []


async def test_first_page_without_data_says_what_to_type(live: Served, page: Page) -> None:
    """Until the first metrics arrive."""
    await go(page, live)
    text = "document.querySelector('.welcome:not([hidden])')?.innerText"
    shown = await page.until(text)
    assert "ccpipe publish" in shown
    assert "ccpipe simulate" in shown
    assert await page.js("document.querySelector('.maps').checkVisibility()") is False
    await publish(live, values("r1n1", cpu_load=1.0))
    await page.until("document.querySelector('.welcome').hidden")
    await page.until("document.querySelector('.maps').checkVisibility()")
    assert page.problems == []


async def test_first_page_shows_one_of_several_clusters(rack: Served, page: Page) -> None:
    """The choice is in the address."""
    await publish(rack, values("m1", "other", cpu_load=2.0, platform_power=55.0))
    await go(page, rack)
    await page.until("document.querySelector('.totals dd').checkVisibility()")
    await page.until("document.querySelectorAll('main select option').length", lambda n: n > 3)
    await page.js("(s => { s.value = 'other'; s.dispatchEvent(new Event('change')); })"
                  "(document.querySelector('[aria-label=Cluster]'))")  # fmt: skip
    await shows(page, "location.hash", "#/overview/other")
    await shows(page, TOTALS, "0,1,0,0,0,0,0,55.0 W,\N{EN DASH}")
    assert page.problems == []


async def test_first_page_keeps_stored_time_in_address(rack: Served, page: Page) -> None:
    """Also for another cluster; what is live only is drawn again with the live time."""
    stored = [
        metric("platform_power", 250.0, time=now() - ago * SECOND,
               tags={"cluster": cluster, "hostname": "r1n1", "type": "node"})
        for ago in range(0, 7200, 60) for cluster in (CLUSTER, "other")
    ]  # fmt: skip
    async with ParquetSink(dir=str(rack.parquet)) as sink:
        await sink.write(to_lines(stored))
    await publish(rack, values("m1", "other", cpu_load=2.0, platform_power=55.0))
    await go(page, rack)
    await shows(page, CHARTS, "Nodes,Jobs running,Power,Floating-point speed")
    await page.js("[...document.querySelectorAll('.spans button')][1].click()")
    await shows(page, "location.hash", "#/?last=3600")
    await shows(page, CHARTS, "Jobs running,Power,Nodes with a job")
    await page.until("document.querySelector('.note').textContent",
                     lambda text: "no store has the states of nodes" in text)  # fmt: skip
    power = (
        f"{VISIBLE}.find(c => c.innerText.startsWith('Power')).querySelector('.now').textContent"
    )
    await shows(page, power, "500 W")
    await page.js("(s => { s.value = 'other'; s.dispatchEvent(new Event('change')); })"
                  "(document.querySelector('[aria-label=Cluster]'))")  # fmt: skip
    await shows(page, "location.hash", "#/overview/other?last=3600")
    await shows(page, power, "250 W")
    await page.js("document.querySelector('.spans button').click()")
    await shows(page, "location.hash", "#/overview/other")
    await shows(page, CHARTS, "Nodes,Jobs running,Power")
    assert page.problems == []


async def test_list_of_nodes_is_searched_grouped_and_sorted(rack: Served, page: Page) -> None:
    """By name, state or partition; the address has all of it."""
    await go(page, rack, "#/nodes")
    await shows(page, NAMES, "r1n1,r1n2,r2n1,r2n2,r9")
    text = "document.querySelector('.nodes').innerText.replace(/\\s+/g, ' ')"
    shown = await page.until(text, lambda found: "97.0" in found)
    assert "Memory used (GB)" in shown
    assert "●busy main 1 1.5 10.0 1.0 100.0" in shown
    assert "r2n1 ◆drained" in shown
    assert "idle, drain: bad DIMM" in shown
    assert "r9 ✕down" in shown
    # most of these are below 1 TF/s
    unit = "import('/metrics.js').then(m => m.columnUnit([2e10, 2e11, 1.7e12], 'Flops/s').name)"
    assert await page.js(unit) == "GF/s"
    await page.js("[...document.querySelectorAll('.nodes thead button')]"
                  ".find(b => b.textContent.startsWith('CPU load')).click()")  # fmt: skip
    await shows(page, NAMES, "r2n1,r1n2,r1n1,r2n2,r9")
    sort = "document.querySelector('[aria-sort=descending]').textContent"
    assert await page.js(sort) == "CPU load"
    await page.js("(s => { s.value = 'rack'; s.dispatchEvent(new Event('change')); })"
                  "(document.querySelector('[aria-label=\"Group by\"]'))")  # fmt: skip
    groups = "[...document.querySelectorAll('tr.group')].map(r => r.innerText).join()"
    await shows(page, groups, "r 1 node,r1 2 nodes,r2 2 nodes")
    await page.js("(s => { s.value = 'main'; s.dispatchEvent(new Event('input')); })"
                  "(document.querySelector('[type=search]'))")  # fmt: skip
    await shows(page, NAMES, "r1n1")
    assert await page.js("location.hash") == "#/nodes//rack/list/main"
    await page.open("about:blank")
    await go(page, rack, "#/nodes//rack/list/main")
    await shows(page, NAMES, "r1n1")
    assert page.problems == []


async def test_long_list_of_nodes_is_shown_in_part(live: Served, page: Page) -> None:
    """The others are found by searching, or shown on request."""
    await publish(live, [m for n in range(1, 211) for m in values(f"n{n}", cpu_load=float(n))])
    await go(page, live, "#/nodes")
    rows = "document.querySelectorAll('.nodes tbody tr').length"
    await shows(page, rows, 200)
    more = "[...document.querySelectorAll('button')].find(b => b.textContent === 'Show more')"
    assert "The first 200 of 210 nodes" in await page.text()
    await page.js(f"{more}.click()")
    await shows(page, rows, 210)
    last = "[...document.querySelectorAll('.nodes tbody tr')].at(-1).innerText"
    assert "210.0" in await page.js(last)
    await page.until(f"!{more}.checkVisibility()")
    assert page.problems == []


async def test_map_of_nodes_has_canvas_for_each_group(rack: Served, page: Page) -> None:
    """Arrow keys and Enter open a node; the tip has what the scheduler reports."""
    await go(page, rack, "#/nodes//rack/map")
    titles = "[...document.querySelectorAll('.groups h3')].map(t => t.textContent).join()"
    await shows(page, titles, "r 1 node,r1 2 nodes,r2 2 nodes")
    tips = "document.querySelectorAll('.groups .tip')[2]"
    await page.until(f"!!{tips}")
    await page.js("document.querySelectorAll('.groups canvas')[2].focus()")
    await page.key("ArrowRight")
    await page.until(
        f"{tips}.textContent", lambda text: text == "r2n1  3.50  idle, drain: bad DIMM"
    )
    await page.key("ArrowRight")
    silent = await page.js(f"{tips}.textContent")
    assert silent.startswith("r2n2  silent since ")
    assert "2 h 3 min" in silent
    await page.key("Enter")
    await shows(page, "location.hash", f"#/node/{CLUSTER}/r2n2")
    await page.until("document.querySelector('.condition')?.textContent", lambda t: t == "▲silent")
    assert page.problems == []


async def test_silent_node_is_acknowledged(rack: Served, page: Page) -> None:
    """On its page or in the list; it is listed again once it sends."""
    await go(page, rack, f"#/node/{CLUSTER}/r2n2")
    head = "document.querySelector('.title').innerText.replace(/\\s+/g, ' ')"
    await page.until(head, lambda text: "silent since" in text and "2 h 3 min" in text)
    await go(page, rack, "#/nodes")
    button = "[...document.querySelectorAll('td.remark button')]"
    await page.until(f"{button}.length", lambda n: n == 1)
    await page.js(f"{button}[0].click()")
    await shows(page, NAMES, "r1n1,r1n2,r2n1,r9")
    await publish(rack, values("r2n2", cpu_load=1.0))
    await shows(page, NAMES, "r1n1,r1n2,r2n1,r2n2,r9")
    assert page.problems == []


async def test_node_that_sends_nothing_has_its_history(rack: Served, page: Page) -> None:
    """From the files, with charts of the series in them."""
    async with ParquetSink(dir=str(rack.parquet)) as sink:
        for second in range(600, 3000, 60):
            await sink.write(to_lines(values("r9", age=second, mem_used=4e6)))
    await go(page, rack, f"#/node/{CLUSTER}/r9")
    await page.until("document.body.innerText", lambda text: "has sent no metrics" in text)
    await page.js("[...document.querySelectorAll('.spans button')][1].click()")
    await page.until("!!document.querySelector('.chart .name')")
    names = "[...document.querySelectorAll('.chart .name')].map(n => n.textContent).join()"
    await shows(page, names, "Memory used,Memory used")  # in the summary, and in its section
    assert await page.js("document.querySelector('.chart').title") == "memory used by programs"
    assert page.problems == []
