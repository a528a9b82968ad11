"""Grafana's dashboards: its schema accepts them, and every query has an answer in real stores.

``ccpipe simulate`` and the shipped bridges fill the stores.
"""

import asyncio
import contextlib
import copy
import itertools
import re
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import asyncpg
import pytest
import yaml

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus
from ccpipe.node.sampling.collector import declared
from tests.bridges.recipes import completed, started
from tests.bus.nats.conftest import connected
from tests.conftest import eventually, free_port
from tests.deployment.compose import SERVICES
from tests.deployment.grafana import DASHBOARDS, DIRECTORY, SOURCES, UNITS, Grafana, violations
from tests.deployment.test_prometheus import names_of_telemetry
from tests.paths import ROOT
from tests.processes import frozen
from tests.servers.postgres import PASSWORD, Server
from tests.servers.victoriametrics import VictoriaMetrics
from tests.sinks.postgres.conftest import server as postgres_server  # noqa: F401 - a fixture

CLUSTER = "fritz.test"
SIMULATE = ("simulate", "--nodes", "3", "--speed", "max", "--failures", "0")
PANELS = [panel for dashboard in DASHBOARDS.values() for panel in dashboard["panels"]]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_follow_schema_of_grafana(name: str) -> None:
    """Every key of a dashboard, its variables, panels, their options and queries, and its type."""
    assert violations(DASHBOARDS[name]) == []
    units = {panel["fieldConfig"]["defaults"]["unit"] for panel in DASHBOARDS[name]["panels"]}
    assert units <= UNITS


def test_schema_reports_unknown_keys_and_wrong_types() -> None:
    dashboard = copy.deepcopy(dict(DASHBOARDS["cluster"]))
    stat, lines = dashboard["panels"][0], dashboard["panels"][4]
    stat["options"] = {"colorMode": "nope", "graph": "area"}
    lines["fieldConfig"]["defaults"]["custom"]["fillOpacity"] = "10"
    lines["targets"][0]["exp"] = lines["targets"][0]["expr"]
    dashboard["templating"]["list"][0]["multi"] = 1
    assert [violation.partition(":")[0] for violation in violations(dashboard)] == [
        ".panels[0].options.graph",
        ".panels[4].targets[0].exp",
        ".panels[0].options.color_mode",
        ".panels[4].field_config.defaults.custom.fill_opacity",
        ".templating.list_val[0].multi",
    ]


class Pipe:
    """Processes of ccpipe on one broker, which VictoriaMetrics scrapes as Prometheus would."""

    def __init__(self, directory: Path, server: NatsServer) -> None:
        self.directory = directory
        self.environ = {
            "CCPIPE_CLUSTER": CLUSTER, "CCPIPE_BUS__SERVERS": server.url,
            "XDG_STATE_HOME": str(directory),
        }  # fmt: skip
        self.targets = directory / "targets.yml"
        self._targets: list[dict[str, Any]] = []
        self._stack = contextlib.AsyncExitStack()
        scraped = yaml.safe_load((ROOT / "bridges/prometheus/prometheus.yml").read_text())
        del scraped["scrape_configs"][0]["dns_sd_configs"]
        scraped["scrape_configs"][0]["file_sd_configs"] = [{"files": [str(self.targets)]}]
        scraped["global"]["scrape_interval"] = "1s"
        self.targets.write_text("[]")
        (directory / "prometheus.yml").write_text(yaml.dump(scraped))
        flags = {
            "-relabelConfig": ROOT / "bridges/prometheus/relabel.yml",
            "-promscrape.config": directory / "prometheus.yml",
            "-promscrape.config.strictParse": "false",
            "-promscrape.fileSDCheckInterval": "1s",
            "-search.latencyOffset": "0s",
        }
        self.store = VictoriaMetrics(directory / "store", *(f"{k}={v}" for k, v in flags.items()))

    async def __aenter__(self) -> Self:
        self._stack.enter_context(self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, name: str, *arguments: object, **environ: str) -> Process:
        """Start a process, of which VictoriaMetrics scrapes the metrics."""
        listen = f"127.0.0.1:{free_port()}"
        environ = {**self.environ, "CCPIPE_TELEMETRY__LISTEN": listen, **environ}
        process = await started(*arguments, **environ)

        async def end() -> None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 120)

        self._stack.push_async_callback(end)
        self._targets.append({"targets": [listen], "labels": {"__meta_dns_name": f"bridge-{name}"}})
        self.targets.write_text(yaml.dump(self._targets))
        return process


@pytest.fixture
async def pipe(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[Pipe]:
    async with Pipe(tmp_path, nats_server) as pipe:
        yield pipe


async def unread(server: NatsServer) -> dict[str, int]:
    """Return how many messages each bridge has not stored yet."""
    async with connected(Bus(servers=[server.url])) as bus:
        jetstream = bus.jetstream()
        found = [
            consumer
            for stream in await jetstream.streams_info()
            for consumer in await jetstream.consumers_info(stream.config.name or "")
        ]
    return {each.name: (each.num_pending or 0) + (each.num_ack_pending or 0) for each in found}


EMPTY_FOR_JOB_WITHOUT_GPU = {"job: GPU use of its nodes: A"}


async def test_every_query_returns_data_of_simulated_cluster(
    pipe: Pipe,
    nats_server: NatsServer,
    postgres_server: Server,  # noqa: F811
) -> None:
    """With all clusters and nodes chosen, and with each job."""
    database = await postgres_server.database()
    stores = {
        "victoriametrics": {"CCPIPE_SINK__URL": pipe.store.url},
        "postgres": {
            "CCPIPE_SINK__URL": postgres_server.url(database),
            "CCPIPE_SINK__PASSWORD_FILE": str(postgres_server.secret),
        },
    }
    for name, environ in stores.items():
        await pipe.start(name, "bridge", name, **environ)
    await completed(*SIMULATE, "--duration", "20m", **pipe.environ)
    while await unread(nats_server) != dict.fromkeys(stores, 0):
        await asyncio.sleep(0.1)

    async def ask(query: str) -> list[Mapping[str, Any]]:
        connection = await asyncpg.connect(postgres_server.url(database), password=PASSWORD)
        try:
            return [dict(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    grafana = Grafana(pipe.store, ask)
    for name in DASHBOARDS.keys() - {"job", "pipe"}:
        assert await grafana.empty(name) == set()
    of_jobs = [
        await grafana.empty("job", {"job": job}) for job in await grafana.options("job", "job")
    ]
    assert min(of_jobs, key=len) == set()
    assert max(of_jobs, key=len) == EMPTY_FOR_JOB_WITHOUT_GPU


FAULTS = {
    "a bridge that does not run while its stream overflows": {"Lost unread in 24 h"},
    "its store is down": {"Failed writes", "Queue in memory"},
    "lines that are not line protocol": {"Dead letters", "Dead letters in 24 h"},
    "a publisher without broker, with a small spool": {
        "Broker connection errors", "Publisher spool", "Lines dropped by limits",
    },
    "commands of a collector that fail, and that hang": {
        "Failed collector reads", "Missed samples",
    },
}  # fmt: skip
"""Faults, and the panels of the dashboard ``pipe`` that show them."""
EMPTY_WITHOUT_FAULTS = {
    "pipe: Failed collector reads: A",  # a series appears with the first failure of a collector
}
ALERTS = {
    "CcpipeUnreadMessagesDropped", "CcpipeStoreRefusesWrites", "CcpipeDeadLetters",
    "CcpipeSpoolDrops", "CcpipeNotConnected", "CcpipeCollectorFails", "CcpipeSpoolGrows",
}  # fmt: skip
"""Whose expressions are true then; ``tests.yml`` is about the times that others need."""
NODE = """
cluster = "fritz.test"
[publish]
interval = "1s"
[publish.spool]
max_size = "64KiB"
[publish.collectors.command]
commands = { fails = ["false"], hangs = ["sleep", "60"] }
timeout = "30s"
"""


@pytest.mark.long
async def test_pipe_shows_faults_and_nothing_without_them(
    pipe: Pipe, nats_server: NatsServer
) -> None:
    """On its dashboard, where a counter of no fault is zero, and in the expressions of alerts."""
    pipe.environ["CCPIPE_BUS__STREAM_MAX_BYTES"] = "1MiB"
    await pipe.start("publisher", "publish")
    await pipe.start("good", "bridge", "victoriametrics", CCPIPE_SINK__URL=pipe.store.url)
    await eventually(lambda: Grafana(pipe.store).has_scraped())
    healthy = Grafana(pipe.store)
    assert await healthy.empty("pipe") == EMPTY_WITHOUT_FAULTS
    assert healthy.alerts() == set()

    node, nowhere = pipe.directory / "node.toml", f"127.0.0.1:{free_port()}"
    node.write_text(NODE)
    await pipe.start(
        "lonely", "publish", "--config", node, CCPIPE_BUS__SERVERS=f"nats://{nowhere}",
        XDG_STATE_HOME=str(pipe.directory / "lonely"),
    )  # fmt: skip
    down = await pipe.start(
        "down", "bridge", "victoriametrics", CCPIPE_SOURCE__DURABLE="down",
        CCPIPE_SINK__URL=f"http://{nowhere}",
    )  # fmt: skip
    while "down" not in await unread(nats_server):
        await asyncio.sleep(0.1)
    async with frozen(down.pid):
        await completed(*SIMULATE, "--duration", "10m", "--broken", "0.1", **pipe.environ)
    expected = {f"pipe: {panel}: A" for panels in FAULTS.values() for panel in panels} | ALERTS
    deadline = time.monotonic() + 300
    while missing := expected - await shown(Grafana(pipe.store)):
        assert time.monotonic() < deadline, missing
        await asyncio.sleep(0.2)


async def shown(grafana: Grafana) -> set[str]:
    """Return the panels of the pipe that are above zero, and the alerts."""
    results = await grafana.results("pipe")
    return {each.where for each in results if each.is_above_zero} | grafana.alerts()


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


def metrics_shown() -> set[str]:
    return set.union(*map(names_of, PANELS))


def test_metrics_of_dashboards_exist() -> None:
    """Each name in PromQL and SQL is one of a collector's table or of /metrics."""
    assert metrics_shown() <= names_of_telemetry() | {row.name for row in declared()} | {"job"}


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
    providers = yaml.safe_load((DIRECTORY / "provisioning/dashboards/ccpipe.yml").read_text())
    mounts = {each["target"]: each["source"] for each in SERVICES["grafana"]["volumes"]}
    assert mounts[providers["providers"][0]["options"]["path"]] == "./bridges/grafana/dashboards"
