"""Metrics in the real cc-metric-store: every published series can be read there."""

import asyncio
import json
import urllib.request
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Self

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message
from ccpipe.telemetry import Telemetry
from tests.bridges.clustercockpit import peer
from tests.cli.command import ccpipe, command, environment
from tests.conftest import eventually, free_port
from tests.paths import ROOT

CLUSTER = "fritz"
NODE = "n1"
SELECTORS = (("type", "type-ids"), ("subtype", "subtype-ids"))

CONFIGURATION = """
cluster = "fritz"
hostname = "n1"
[publish]
interval = "1s"
profile = "clustercockpit"
[publish.sonar]
sample_interval = 0
sysinfo_interval = 0
"""


class Store:
    """A running cc-metric-store."""

    def __init__(self, directory: Path, nats: str, metrics: dict[str, Any], subject: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.headers: dict[str, str] = {}
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {
            "main": {"addr": self.url.removeprefix("http://")},
            "nats": {"address": nats},
            "metrics": metrics,
            "metric-store": {
                "checkpoints": {"file-format": "json", "directory": str(directory / "checkpoints")},
                "checkpoint-interval": "12h",
                "memory-cap": 1,
                "retention-in-memory": "48h",
                "nats-subscriptions": [{"subscribe-to": subject, "cluster-tag": CLUSTER}],
            },
        }
        (directory / "config.json").write_text(json.dumps(config))

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            peer("cc-metric-store"), "-config", "config.json", cwd=self.directory
        )
        await eventually(self._answers)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.kill()
        await self.process.wait()

    def _answers(self) -> bool:
        try:
            self.values([], 0, 1)
        except OSError:
            return False
        return True

    def values(self, series: list[Message], begin: int, end: int) -> list[list[float | None]]:
        """Return what it has of each series from `begin` to `end`, in seconds."""
        queries = []
        for message in series:
            query: dict[str, Any] = {"metric": message.name, "host": message.hostname}
            for (kind, ids), tag in zip(SELECTORS, ("type", "stype"), strict=True):
                if message.tags.get(tag, "node") != "node":
                    query |= {kind: message.tags[tag], ids: [message.tags[f"{tag}-id"]]}
            queries.append(query)
        body = {"cluster": CLUSTER, "from": begin, "to": end, "queries": queries, "with-data": True}
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}/api/query", json.dumps(body).encode(), self.headers, method="GET"
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            results = json.load(answer)["results"]
        return [one[0].get("data") or [] for one in results]


async def published(
    subject: str, site: Site, publish: Callable[[], Awaitable[None]]
) -> list[Message]:
    payloads: list[bytes] = []
    bus = Connection(site.bus, name="test", telemetry=Telemetry())
    async with bus:
        await bus.subscribe(subject, lambda delivery: payloads.append(delivery.payload))
        await bus.flush()
        await publish()
        await bus.flush()
    return list(decode(b"".join(payloads)))


def by_series(messages: Iterable[Message]) -> dict[tuple[object, ...], dict[int, Message]]:
    found: dict[tuple[object, ...], dict[int, Message]] = {}
    for message in messages:
        assert message.time is not None
        found.setdefault((message.name, *sorted(message.tags.items())), {})[message.time] = message
    return found


@pytest.mark.parametrize("by_bridge", [False, True])
async def test_store_returns_every_series_of_node(
    tmp_path: Path, nats_server: NatsServer, site: Site, by_bridge: bool
) -> None:
    """Each value of each series: with the profile on the node, and with the recipe on the bus."""
    path = tmp_path / "ccpipe.toml"
    path.write_text(CONFIGURATION)
    printed = ccpipe("config", "clustercockpit", "--all", "--config", path).out
    metrics = json.loads(printed)["metrics"]
    env = environment(CCPIPE_BUS__SERVERS=nats_server.url, XDG_STATE_HOME=str(tmp_path))
    if by_bridge:
        path.write_text(CONFIGURATION.replace("clustercockpit", "none"))
    subject = "hpc-nats" if by_bridge else f"{CLUSTER}.metrics"

    async def publish() -> None:
        process = await start("publish", "--config", path, "--for", "5s")
        assert await asyncio.wait_for(process.wait(), 30) == 0

    async def publish_through_bridge() -> None:
        recipe = ROOT / "bridges/clustercockpit.toml"
        bridge = await start("bridge", recipe, "--config", path, "--for", "15s")
        await publish()
        assert await asyncio.wait_for(bridge.wait(), 30) == 0

    def start(*arguments: object) -> Awaitable[Process]:
        return asyncio.create_subprocess_exec(*command(*arguments), env=env)

    async with Store(tmp_path / "store", nats_server.url, metrics, subject) as store:
        work = publish_through_bridge if by_bridge else publish
        series = by_series(await published(subject, site, work))
        assert len(series) > 100
        names = {str(key[0]) for key in series}
        hwthreads = {str(key[0]) for key in series if ("type", "hwthread") in key}
        assert hwthreads >= {"cpu_user", "cpu_used"} | ({"clock"} & names)
        assert {"net_bytes_in", "disk_total"} <= names
        missing = await lost(store, series)
    print(f"{len(series)} series published, {len(missing)} lost")
    assert missing == {}


async def lost(
    store: Store, series: dict[tuple[object, ...], dict[int, Message]]
) -> dict[tuple[object, ...], list[float | None]]:
    """Return the series of which the store has other values than were published, with its own."""
    times = sorted({time // 10**9 for one in series.values() for time in one})
    queries = [next(iter(one.values())) for one in series.values()]
    deadline = asyncio.get_running_loop().time() + 10
    while True:
        read = store.values(queries, times[0], times[-1] + 1)
        missing = {
            key: values
            for (key, one), values in zip(series.items(), read, strict=True)
            if not _holds(values, one)
        }
        if not missing or asyncio.get_running_loop().time() > deadline:
            return missing
        await asyncio.sleep(0.2)


def _holds(values: list[float | None], sent: dict[int, Message]) -> bool:
    there = [value for value in values if value is not None]
    expected = [float(message.value) for _, message in sorted(sent.items())]
    return there == pytest.approx(expected, rel=1e-6, abs=1e-3)  # as it prints them
