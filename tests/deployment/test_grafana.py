"""Grafana's dashboards: every metric exists, and every query has an answer in the real stores.

Both stores contain data of a cluster from ``ccpipe simulate``.
"""

import asyncio
import itertools
import json
import math
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.message import Kind, Message
from ccpipe.node.sampling.collector import declared
from ccpipe.sinks.victoriametrics import VictoriaMetricsSink
from ccpipe.telemetry import Counter as CounterMetric
from ccpipe.telemetry import Gauge, Telemetry
from tests.cli.command import ccpipe
from tests.deployment.compose import SERVICES
from tests.deployment.test_prometheus import names_of_telemetry
from tests.paths import ROOT
from tests.servers.postgres import Server
from tests.servers.victoriametrics import VictoriaMetrics
from tests.sinks.postgres.conftest import server as postgres_server  # noqa: F401 - a fixture

GRAFANA = ROOT / "bridges/grafana"
DASHBOARDS = {
    path.stem: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("dashboards/*.json"))
}
SOURCES = yaml.safe_load((GRAFANA / "provisioning/datasources/ccpipe.yml").read_text())[
    "datasources"
]
PANELS = [
    pytest.param(panel, id=f"{name}-{panel['title']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
]
OF_METRICS = [each for each in PANELS if each.values[0]["datasource"]["type"] == "prometheus"]  # type: ignore[index]
OF_SQL = [each for each in PANELS if each not in OF_METRICS]


@pytest.fixture(scope="module")
def made() -> list[Message]:
    """Give the data of a cluster by default, apart from its size."""
    # fmt: off
    done = ccpipe("simulate", "--dry-run", "--cluster", "fritz", "--nodes", "4",
                  "--duration", "30m", "--interval", "60s", "--speed", "max", "--failures", "0")
    # fmt: on
    assert done.code == 0, done.err
    return list(decode(done.out.encode()))


@pytest.fixture(scope="module")
def variables(made: Sequence[Message]) -> dict[str, str]:
    """Give a node with GPUs and a job on it as values of Grafana's variables."""
    hosts = {m.hostname for m in made if m.name == "nv_util"}
    ids = [m.tags["stype-id"] for m in made if m.name == "job_mem_used" and m.hostname in hosts]
    [(job, _)] = Counter(ids).most_common(1)
    host = next(m.hostname for m in made if m.tags.get("stype-id") == job)
    return {
        "$cluster": "fritz", "$hostname": host, "$job": job,
        "$__rate_interval": "4m", "$__interval": "1m",
    }  # fmt: skip


@pytest.fixture(scope="module")
def store(
    made: Sequence[Message], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VictoriaMetrics]:
    relabel = f"-relabelConfig={ROOT}/bridges/prometheus/relabel.yml"
    assert relabel.replace(f"{ROOT}/bridges", "/etc") in SERVICES["victoriametrics"]["command"]
    store = VictoriaMetrics(
        tmp_path_factory.mktemp("store") / "data", relabel, "-search.latencyOffset=0s"
    )
    store.start()

    async def fill() -> None:
        numbers = [message for message in made if message.kind is Kind.METRIC]
        async with VictoriaMetricsSink(url=store.url) as sink:
            await sink.write(to_lines(numbers))

    try:
        asyncio.run(fill())
        for minutes, text in telemetry().items():
            stamp = time.time_ns() // 10**6 - minutes * 60_000
            url = f"{store.url}/api/v1/import/prometheus?timestamp={stamp}"
            urllib.request.urlopen(url, data=text).close()  # noqa: S310 - our own address
        store.get("/internal/force_flush")
        yield store
    finally:
        store.stop()


def telemetry() -> dict[int, bytes]:
    """Return /metrics of a pipe in which everything has happened, by minutes ago."""
    shown, page = Telemetry(), {}
    for minutes in (3, 2, 1, 0):
        for part in vars(shown).values():
            if isinstance(part, CounterMetric | Gauge):
                for label in list(part.values) or ["parquet"]:
                    part.values[label] = part.values.get(label, 0) + 10
        shown.last_write.set(time.time() - 5)
        page[minutes] = generate_latest(shown.registry)
    return page


@pytest.mark.parametrize("panel", OF_METRICS)
def test_metric_panels_have_data(
    panel: dict[str, Any], store: VictoriaMetrics, variables: dict[str, str]
) -> None:
    """Each query, sent as by Grafana, returns at least one number."""
    for target in panel["targets"]:
        query = target["expr"]
        for name, value in variables.items():
            query = query.replace(name, value)
        assert "$" not in query
        span = {"start": str(time.time() - 1500), "end": str(time.time()), "step": "30"}
        body = store.get("/api/v1/query_range", {"query": query, "nocache": "1"} | span)
        series = json.loads(body)["data"]["result"]
        values = [float(value) for each in series for _, value in each["values"]]
        assert values, query
        assert not any(math.isnan(value) for value in values), query
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            if label != "instance":  # which scraping adds
                assert label in series[0]["metric"], (query, label)


@pytest.fixture(scope="module")
def database(made: Sequence[Message], postgres_server: Server) -> str:  # noqa: F811
    async def fill() -> str:
        name = await postgres_server.database()
        async with postgres_server.sink(name) as sink:
            await sink.write(to_lines(made))
        return name

    return asyncio.run(fill())


@pytest.mark.parametrize("panel", OF_SQL)
async def test_postgresql_panels_have_rows(
    panel: dict[str, Any],
    database: str,
    postgres_server: Server,  # noqa: F811
) -> None:
    """Each query, with Grafana's macros replaced as by Grafana, returns a row."""
    for target in panel["targets"]:
        query = target["rawSql"].replace("$cluster", "'fritz'")
        query = query.replace("$__timeFilter(time)", "time > now() - interval '1 hour'")
        query = query.replace(
            "$__timeGroupAlias(time, $__interval)",
            'floor(extract(epoch from time) / 60) * 60 AS "time"',
        )
        assert "$_" not in query
        rows = await postgres_server.ask(database, query)
        assert rows
        assert all(value is not None for value in rows[0])


def names_of(panel: dict[str, Any]) -> set[str]:
    """Return the metrics of a panel; each of its queries has one."""
    found = set[str]()
    for target in panel["targets"]:
        if "expr" in target:
            names = re.findall(r"\b[a-z]\w+(?=\{)|\bccpipe_\w+", target["expr"])
        else:
            names = re.findall(r"name = '(\w+)'", target["rawSql"])
        assert names, target
        found.update(names)
    return found


def shown() -> set[str]:
    return set.union(*(names_of(panel) for parameter in PANELS for panel in parameter.values))  # type: ignore[arg-type]


def test_metrics_of_dashboards_exist() -> None:
    """Each name in PromQL and SQL is one of a collector's table or of /metrics."""
    assert shown() <= names_of_telemetry() | {row.name for row in declared()} | {"job"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_use_provisioned_data_sources(name: str) -> None:
    """Each variable is declared, and panels do not overlap."""
    dashboard = DASHBOARDS[name]
    uids = {source["uid"]: source["type"] for source in SOURCES}
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert uids[panel["datasource"]["uid"]] == panel["datasource"]["type"]
        for target in panel["targets"]:
            text = target.get("expr") or target["rawSql"]
            assert set(re.findall(r"\$([a-z]\w*)", text)) - {"resources"} <= variables
        place = panel["gridPos"]
        cells = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]),
                range(place["y"], place["y"] + place["h"]),
            )
        )
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_panels_have_descriptions() -> None:
    """At least one sentence, under the panel's title."""
    for dashboard in DASHBOARDS.values():
        for panel in dashboard["panels"]:
            assert re.fullmatch(r"[A-Z].{40,200}\.", panel["description"]), panel["title"]


def test_dashboards_are_in_directory_of_provider() -> None:
    """The one that compose.yaml mounts."""
    providers = yaml.safe_load((GRAFANA / "provisioning/dashboards/ccpipe.yml").read_text())
    mounts = {each["target"]: each["source"] for each in SERVICES["grafana"]["volumes"]}
    assert mounts[providers["providers"][0]["options"]["path"]] == "./bridges/grafana/dashboards"
