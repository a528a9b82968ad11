"""``OtlpSink`` with real receivers: Prometheus 3 and a VictoriaMetrics of 2025."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Duration
from ccpipe.errors import UnavailableError
from ccpipe.message import Message
from ccpipe.sinks.otlp import OtlpSink
from tests.servers.otlp import prometheus_3, victoriametrics_2025
from tests.servers.prometheus import Prometheus
from tests.servers.victoriametrics import VictoriaMetrics
from tests.sinks.conftest import SECOND, Given, carry, carry_again
from tests.sinks.kills import LINES, KilledBridges

pytestmark = pytest.mark.long

NOW = int(time.time()) * SECOND - 600 * SECOND
"""Prometheus takes samples of about the last hour only."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One store for all tests that keep their names apart; it takes late samples."""
    directory = tmp_path_factory.mktemp("store") / "prometheus"
    with prometheus_3(directory, late=True) as store:
        yield store


@pytest.fixture(scope="module")
def victoriametrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    directory = tmp_path_factory.mktemp("store") / "victoria"
    with victoriametrics_2025(directory, "-dedup.minScrapeInterval=1ms") as store:
        yield store


def to_prometheus(store: Prometheus) -> OtlpSink:
    path = "/api/v1/otlp/v1/metrics"
    return OtlpSink(url=store.url, url_path=path, timeout=Duration(60), counters=["counted_*"])


def to_victoriametrics(store: VictoriaMetrics) -> OtlpSink:
    path = "/opentelemetry/v1/metrics"
    return OtlpSink(url=store.url, url_path=path, timeout=Duration(60))


def records(name: str, hosts: int = 3, seconds: int = 4) -> list[Message]:
    """Return metrics of some nodes and their hardware threads, each with its own value."""
    return [
        Message(
            name,
            {"cluster": "fox", "hostname": f"n{host}", "type": "hwthread", "type-id": thread},
            host + second / 8 if thread == "0" else host * second,
            NOW + second * SECOND + 5_000_000,
        )
        for second in range(seconds)
        for host in range(hosts)
        for thread in ("0", "1")
    ]


def label(tag: str) -> str:
    names = {"cluster": "hpc_cluster_name", "hostname": "host_name"}
    return names.get(tag, tag.replace("-", "_"))


async def test_prometheus_stores_points_of_all_nodes_once(prometheus: Prometheus) -> None:
    """With the labels of the page, milliseconds, and values; a repeated batch changes nothing."""
    sent = records("stored")
    assert await carry(Given(sent, sent[:7], sent), to_prometheus(prometheus)) == []
    found = prometheus.query("stored[1m]", NOW / SECOND + 30)
    stored = {
        (tuple(sorted(labels.items())), round(when * 1000), float(value))
        for labels, values in found
        for when, value in values
    }
    own = {"__name__": "stored", "job": "ccpipe"}
    assert stored == {
        (
            tuple(sorted({**own, **{label(key): text for key, text in m.tags.items()}}.items())),
            (m.time or 0) // 10**6,
            float(m.value),
        )
        for m in sent
    }


async def test_prometheus_knows_counters(prometheus: Prometheus) -> None:
    """A cumulative sum has the suffix ``_total``, and a gauge has not."""
    sent = [*records("counted_bytes", 1, 2), *records("gauged_bytes", 1, 2)]
    assert await carry(Given(sent), to_prometheus(prometheus)) == []
    at = NOW / SECOND + 2
    assert len(prometheus.query("counted_bytes_total", at)) == 2
    assert len(prometheus.query("gauged_bytes", at)) == 2


async def test_point_that_prometheus_rejects_costs_no_other(tmp_path: Path) -> None:
    """It stores nothing of such a request: the bad one of 50 is found, and 49 are stored."""
    with prometheus_3(tmp_path / "prometheus", late=False) as store:
        sent = records("alone", 25, 1)
        old = Message("old", {"hostname": "n1"}, 1.0, NOW - 10**6 * SECOND)
        assert await carry(Given(records("first", 1, 1)), to_prometheus(store)) == []
        letters = await carry(Given([*sent[:20], old, *sent[20:]]), to_prometheus(store))
        assert [letter.original.split(b",")[0] for letter in letters] == [b"old"]
        assert "400 Bad Request" in letters[0].reason
        assert len(store.query("alone", NOW / SECOND + 1)) == len(sent) == 50


async def test_writes_continue_after_restart_of_prometheus(tmp_path: Path) -> None:
    """While it is down writes may be retried; then it gets the missing ones."""
    store = prometheus_3(tmp_path / "prometheus", late=True)
    source = Given(records("down", 1, 1), records("down", 1, 3))
    try:
        await carry_again(source, to_prometheus(store), store.start)
        found = store.query("down[1m]", NOW / SECOND + 10)
        assert [len(values) for _, values in found] == [3, 3]
    finally:
        store.stop()


async def test_disabled_receiver_is_reported(tmp_path: Path) -> None:
    """Prometheus's own text names the missing flag."""
    store = prometheus_3(tmp_path / "prometheus", late=False)
    store.command.remove("--web.enable-otlp-receiver")
    with store, pytest.raises(UnavailableError, match="needs to be enabled with --"):
        await to_prometheus(store).check()


async def test_victoriametrics_stores_points_of_all_nodes_once(
    victoriametrics: VictoriaMetrics,
) -> None:
    """With the attributes as they are; a repeated batch changes nothing."""
    await to_victoriametrics(victoriametrics).check()
    sent = records("stored")
    assert await carry(Given(sent, sent[:7], sent), to_victoriametrics(victoriametrics)) == []
    names = {"cluster": "hpc.cluster.name", "hostname": "host.name"}
    found = victoriametrics.samples("stored")
    assert found == {
        (
            "stored",
            frozenset(
                {"service.name": "ccpipe"}.items()
                | {names.get(key, key): text for key, text in m.tags.items()}.items()
            ),
            float(m.value),
            (m.time or 0) // 10**6,
        )
        for m in sent
    }


async def test_killed_bridges_and_killed_prometheus_lose_nothing(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """With the shipped recipe, while both are killed in turn: each sample is stored once."""
    store = prometheus_3(tmp_path / "prometheus", late=True)
    bridges = KilledBridges(
        "otlp", nats_server, tmp_path,
        CCPIPE_SINK__URL=store.url, CCPIPE_SINK__URL_PATH="/api/v1/otlp/v1/metrics",
    )  # fmt: skip
    kills = 0

    async def stored() -> Counter[int]:
        """Return how often each number is stored; between two questions the store may be killed."""
        nonlocal kills
        found = await asyncio.to_thread(store.query, "m[2d]", 1740052800 + 86400)
        numbers = Counter(int(float(value)) for _, values in found for _, value in values)
        if found and kills < 3:
            kills += 1
            store.process.kill()
            await asyncio.to_thread(store.process.wait)
            await asyncio.to_thread(store.start)
        return numbers

    with store:
        numbers = await bridges.run(5, stored)
    assert kills == 3
    assert numbers == dict.fromkeys(range(bridges.published), LINES)
