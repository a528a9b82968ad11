"""Numbers of the first page and of the page of a node in a real Chromium, live and of the store.

Each is equal to what the store itself answers: SQL of DuckDB over the Parquet files, or PromQL of
VictoriaMetrics. Numbers are read as people do, with the mouse on the charts.
"""

import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ccpipe.config import Site
from ccpipe.dashboard.server import DashboardServer
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.history.open import open_history
from ccpipe.jobs import Job, JobNode, message
from ccpipe.live.feed import LiveFeed, averaged_metrics
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sinks.victoriametrics import VictoriaMetricsSink
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.dashboard.browser import Page
from tests.dashboard.conftest import Served
from tests.live.conftest import fed
from tests.servers.victoriametrics import VictoriaMetrics

SECOND = 10**9
CLUSTER = "fox.test"
NODES = ("n1", "n2", "n3", "n4")
SAMPLES = 1200
UNITS = {"cpu_load": "", "mem_used": "kB", "cpu_power": "W", "flops_any": "Flops/s"}
HOVERED = 6
"""Points of a chart that are looked at."""

Line = tuple[str, str, str, float]


def values(place: int) -> Iterator[Line]:
    """Yield metric, node, tags and value of one time; all change by more than is rounded away."""
    wave = 1 + 0.4 * math.sin(place / 5) + 0.3 * math.sin(place / 97)
    for number, node in enumerate(NODES, 1):
        yield "cpu_load", node, "type=node", round(16 * number * wave, 3)
        yield "mem_used", node, "type=node", round(3e7 * number * wave, 1)
        for socket in (0, 1):
            watts = round((90 + 20 * socket + number) * wave, 3)
            yield "cpu_power", node, f"type=socket,type-id={socket}", watts
        for thread in range(3):
            flops = round((1000 + 100 * thread + number) * 1e6 * wave, 1)
            yield "flops_any", node, f"type=hwthread,type-id={thread}", flops
    yield "platform_power", "n4", "type=node", round(700 * wave, 3)


def line(metric: str, node: str, tags: str, value: float, second: int) -> str:
    return f"{metric},cluster={CLUSTER},hostname={node},{tags} value={value!r} {second}"


@dataclass
class Stored:
    """A dashboard, and what its store answers when it is asked itself."""

    server: DashboardServer
    feed: LiveFeed
    served: Served
    write: Callable[[Sequence[str]], Any]
    node_value: Callable[[str, str, float, float], float]
    """The mean of a node's metric from a time to another."""
    power: Callable[[float, float], float]
    """The mean power of all nodes."""
    flops: Callable[[float, float], float]


def of_parquet(served: Served) -> Stored:
    directory = served.parquet

    def ask(query: str, start: float, stop: float) -> float:
        samples = f"""
            SELECT *, epoch(time) AS second FROM read_parquet('{directory}/*/*/*.parquet')
            WHERE field = 'value' AND epoch(time) >= {start} AND epoch(time) < {stop}"""  # noqa: S608
        [(found,)] = duckdb.execute(f"WITH samples AS ({samples}) {query}").fetchall()
        return float(found)

    async def write(lines: Sequence[str]) -> None:
        async with ParquetSink(dir=str(directory)) as sink:
            await sink.write(decode("\n".join(lines).encode()))

    def node_value(metric: str, node: str, start: float, stop: float) -> float:
        sums = (
            f"SELECT sum(value) AS v FROM samples WHERE name = '{metric}' AND hostname = '{node}'"  # noqa: S608
        )
        return ask(f"SELECT avg(v) FROM ({sums} GROUP BY second)", start, stop)  # noqa: S608

    def all_nodes(condition: str) -> Callable[[float, float], float]:
        sums = (
            f"SELECT hostname, second, sum(value) AS v FROM samples WHERE {condition} GROUP BY ALL"  # noqa: S608
        )
        means = f"SELECT avg(v) AS mean FROM ({sums}) GROUP BY hostname"  # noqa: S608
        return lambda start, stop: ask(f"SELECT sum(mean) FROM ({means})", start, stop)  # noqa: S608

    power = all_nodes("name = CASE hostname WHEN 'n4' THEN 'platform_power' ELSE 'cpu_power' END")
    return Stored(
        served.server, served.feed, served, write, node_value, power,
        all_nodes("name = 'flops_any'"),
    )  # fmt: skip


def of_victoriametrics(served: Served, vm: VictoriaMetrics) -> Stored:
    def ask(query: str, start: float, stop: float) -> float:
        text = query.replace("[]", f"[{round((stop - start) * 1000)}ms]")
        at = f"{stop - 0.001:.3f}"
        body = vm.get("/api/v1/query", {"query": text, "time": at, "nocache": "1"})
        answer = json.loads(body)
        [found] = answer["data"]["result"]
        return float(found["value"][1])

    async def write(lines: Sequence[str]) -> None:
        async with VictoriaMetricsSink(url=vm.url) as sink:
            await sink.write(decode("\n".join(lines).encode()))
        vm.get("/internal/force_flush")

    def sums(of: str) -> Callable[[float, float], float]:
        return lambda start, stop: ask(of, start, stop)

    return Stored(
        served.server, served.feed, served, write,
        lambda metric, node, start, stop: ask(
            f'sum(avg_over_time({metric}{{hostname="{node}"}}[]))', start, stop
        ),
        sums('sum(avg_over_time(cpu_power{hostname!="n4"}[])) + sum(avg_over_time('
             'platform_power{hostname="n4"}[]))'),
        sums("sum(avg_over_time(flops_any[]))"),
    )  # fmt: skip


@pytest.fixture
async def stored(
    request: pytest.FixtureRequest, site: Site, tmp_path: Path
) -> AsyncIterator[Stored]:
    with contextlib.ExitStack() as stack:
        where = str(tmp_path / "parquet")
        if request.param == "victoriametrics":
            vm = VictoriaMetrics(tmp_path / "victoriametrics")
            vm.start()
            stack.callback(vm.stop)
            where = vm.url
        history = open_history(where, averaged_metrics)
        async with (
            fed(LiveFeed(site, Telemetry(), name="dashboard")) as live,
            DashboardServer(live.feed, listen="127.0.0.1:0", history=history) as server,
        ):
            served = Served(live.feed, live.bus, site, server, tmp_path / "parquet")
            is_parquet = request.param == "parquet"
            yield of_parquet(served) if is_parquet else of_victoriametrics(served, vm)


JOBS = [(-10, 400), (150, 190), (310, 330), (320, 350), (321, 329), (335, 1150), (600, 900)]
"""Starts and stops of jobs, in intervals; each runs on two nodes."""


def jobs(begin: int, interval: int) -> list[Job]:
    return [
        Job(
            cluster=CLUSTER, id=number, user="anna", state="completed",
            start=(begin + start * interval) * SECOND, end=(begin + stop * interval) * SECOND,
            nodes=(JobNode(NODES[number % 4]), JobNode(NODES[(number + 1) % 4])),
        )
        for number, (start, stop) in enumerate(JOBS)
    ]  # fmt: skip


def counted(begin: int, interval: int, start: float, stop: float) -> tuple[float, float]:
    """Return the mean numbers of running jobs and of nodes with one, second by second."""
    running = busy = 0
    rows = [(job.start // SECOND, job.end // SECOND, job.nodes) for job in jobs(begin, interval)]
    for second in range(int(start), int(stop)):
        at = [nodes for begins, ends, nodes in rows if begins <= second < ends]
        running += len(at)
        busy += len({node.hostname for nodes in at for node in nodes})
    return running / (stop - start), busy / (stop - start)


async def settle(page: Page, note: str) -> None:
    """Wait for a note, and until every chart that is shown, at least four, is drawn."""
    await page.until("document.querySelector('.note')?.textContent", lambda text: text == note)
    await page.until(
        "(() => { const shown = [...document.querySelectorAll('.chart')]"
        ".filter(chart => chart.checkVisibility());"
        " return shown.length >= 4 && shown.every(chart => chart.querySelector('canvas')); })()"
    )


NOW_OF = """(async () => {
    const { metricTitle } = await import('/metrics.js');
    const charts = [...document.querySelectorAll('.chart')];
    const title = c => c.querySelector('.name').textContent;
    return Object.fromEntries(%s.map(name => [name, charts.find(c =>
        [name, metricTitle(name)].includes(title(c)))?.querySelector('.now').textContent]));
})()"""


async def hovered(page: Page, count: int) -> AsyncIterator[int]:
    """Put the mouse on some of `count` points of the charts, and yield their numbers."""
    left, top, width, height = await page.js(
        "(() => { const plots = [...document.querySelectorAll('.u-over')];"
        " const b = plots.find(o => o.checkVisibility()).getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    for part in range(HOVERED):
        # the chart takes its outermost pixels for its ends
        x = math.ceil(left) + part * math.floor(width - 3) // (HOVERED - 1)
        place = (x - left) * (count - 1) / width
        while abs(place % 1 - 0.5) < 0.2:  # between two points
            x -= 1 if part else -1
            place = (x - left) * (count - 1) / width
        await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=top + height / 2)
        await page.js("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        yield round(place)


async def compare(
    page: Page, count: int, expected: Callable[[int], Mapping[str, tuple[float, str, str]]]
) -> int:
    """Compare the charts' numbers at some of `count` points; return how many were compared.

    `expected` returns value, unit and prefix of each chart.
    """
    compared = 0
    async for place in hovered(page, count):
        wanted = expected(place)
        asked = [[value, unit, prefix] for value, unit, prefix in wanted.values()]
        texts = await page.js(
            f"import('/units.js').then(m => {json.dumps(asked)}.map(([value, unit, prefix]) =>"
            " prefix + m.format(value, unit)))"
        )
        found = await page.js(NOW_OF % json.dumps(list(wanted)))
        assert found == dict(zip(wanted, texts, strict=True)), (place, wanted)
        compared += len(wanted)
    return compared


async def check_node(page: Page, stored: Stored, start: int, stop: int, interval: int) -> int:
    base = math.ceil((stop - start) / 400)
    step = base * math.ceil(interval / base)
    await page.open("about:blank")
    await page.open(f"{stored.server.url}#/node/{CLUSTER}/n2?from={start}&to={stop}")
    await settle(page, "")

    def expected(place: int) -> Mapping[str, tuple[float, str, str]]:
        begin = start + place * step
        prefixes = {"cpu_power": "sum "}
        return {
            name: (
                stored.node_value(name, "n2", begin, min(begin + step, stop)),
                unit,
                prefixes.get(name, ""),
            )
            for name, unit in UNITS.items()
        }

    return await compare(page, math.ceil((stop - start) / step), expected)


STORED_ONLY = (
    "Charts are of the store and of the list of jobs. "
    "All else is live: no store has the states of nodes."
)


async def check_first_page(
    page: Page, stored: Stored, start: int, stop: int, interval: int, begin: int
) -> int:
    step = max(math.ceil((stop - start) / 80), 2 * interval)
    width = step if step <= 4 * interval else 2 * interval
    await page.open("about:blank")
    await page.open(f"{stored.server.url}#/?from={start}&to={stop}")
    await settle(page, STORED_ONLY)

    def expected(place: int) -> Mapping[str, tuple[float, str, str]]:
        at = start + place * step
        running, busy = counted(begin, interval, at, at + step)
        return {
            "Power": (stored.power(at, at + width), "W", ""),
            "Floating-point speed": (stored.flops(at, at + width), "Flops/s", ""),
            "Jobs running": (running, "count", ""),
            "Nodes with a job": (busy, "count", ""),
        }

    return await compare(page, (stop - start) // step, expected)


@pytest.mark.parametrize(
    ("stored", "interval"),
    [
        ("parquet", 2),
        pytest.param("parquet", 10, marks=pytest.mark.long),
        pytest.param("parquet", 60, marks=pytest.mark.long),
        ("parquet", 90),
        pytest.param("victoriametrics", 2, marks=pytest.mark.long),
        ("victoriametrics", 60),
    ],
    indirect=["stored"],
)  # fmt: skip
async def test_history_of_pages_equals_store_at_interval(
    stored: Stored, page: Page, interval: int
) -> None:
    """96 numbers: node and first page, each of a short time, and of one whose steps are means."""
    now = int(time.time())
    grid = 30 * interval
    begin = (now - 3600 - SAMPLES * interval) // grid * grid
    lines = [
        line(*each, begin + place * interval)
        for place in range(SAMPLES)
        for each in values(place)
    ]  # fmt: skip
    await stored.write(lines)
    events = [message(name, job) for job in jobs(begin, interval)
              for name in ("start_job", "stop_job")]  # fmt: skip
    await stored.served.bus.publish("fox%2Etest.metrics", encode(events))
    recent = [line(*each, now) for each in values(0)]
    await stored.served.say("metrics", *[text.rpartition(" ")[0] for text in recent])
    await eventually(lambda: len(stored.feed.state.jobs.ended) == len(JOBS))
    await page.size(1280, 3000)
    whole = begin, begin + SAMPLES * interval
    short = begin + 300 * interval, begin + 340 * interval
    compared = 0
    for start, stop in (whole, short):
        compared += await check_node(page, stored, start, stop, interval)
        compared += await check_first_page(page, stored, start, stop, interval, begin)
    assert compared == 2 * 2 * 4 * HOVERED
    assert page.problems == []


@pytest.mark.parametrize("stored", ["parquet", "victoriametrics"], indirect=True)
async def test_live_numbers_equal_store(stored: Stored, page: Page) -> None:
    """The latest of node and first page, which a bridge has stored as well."""
    now = int(time.time())
    lines = [line(*each, now) for each in values(7)]
    await stored.write(lines)
    await stored.served.say("metrics", *[text.rpartition(" ")[0] for text in lines])
    await eventually(lambda: len(stored.feed.state.nodes.in_order()) == len(NODES))
    await page.size(1280, 3000)
    await page.open(f"{stored.server.url}#/node/{CLUSTER}/n2")
    span = now - 1, now + 1
    wanted = {name: (stored.node_value(name, "n2", *span), unit) for name, unit in UNITS.items()}
    prefixes = {"cpu_power": "sum "}
    texts = await written(page, list(wanted.values()))
    shown = {name: prefixes.get(name, "") + t for name, t in zip(wanted, texts, strict=True)}
    await page.until(NOW_OF % json.dumps(list(UNITS)), shown.__eq__)
    await page.open("about:blank")
    await page.open(stored.server.url)
    texts = await written(page, [(stored.power(*span), "W"), (stored.flops(*span), "Flops/s")])
    charts = dict(zip(("Power", "Floating-point speed"), texts, strict=True))
    await page.until(NOW_OF % json.dumps(list(charts)), charts.__eq__)
    totals = "[...document.querySelectorAll('.totals dd')].slice(-2).map(d => d.textContent)"
    await page.until(totals, texts.__eq__)
    assert page.problems == []


async def written(page: Page, numbers: Sequence[tuple[float, str]]) -> list[str]:
    """Return numbers as the page writes them, each in its unit."""
    texts: list[str] = await page.until(
        f"import('/units.js').then(m => {json.dumps(list(numbers))}.map(([value, unit]) =>"
        " m.format(value, unit)), () => null)"
    )
    return texts
