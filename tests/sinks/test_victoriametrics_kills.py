"""``VictoriaMetricsSink`` with `durable`: what it acknowledges survives a SIGKILL of the store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Interval
from ccpipe.errors import ConfigError, DeniedError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.pipeline import Batch, Limits, run
from ccpipe.sinks.victoriametrics import VictoriaMetricsSink
from tests.conftest import eventually
from tests.servers.victoriametrics import VictoriaMetrics
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, SECOND, Given, metric

BATCH = 100


class Flow(Given):
    """Yields batches until it is stopped; `acknowledged` has the numbers of those that are safe."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = asyncio.Event()
        self.number = 0

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        while not self.stopped.is_set():
            number, self.number = self.number, self.number + 1
            times = range(number * BATCH, (number + 1) * BATCH)

            async def ack(number: int = number) -> None:
                self.acknowledged.append(number)

            records = to_lines(metric(float(i), time=NOON + i * SECOND) for i in times)
            yield Batch(records, ack, "flow")
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        self.stopped.set()


def restart(store: VictoriaMetrics) -> None:
    store.process.kill()
    store.process.wait(60)
    store.start()


async def test_killed_store_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Killed while rows arrive, while they wait, and right after the last acknowledgement."""
    source = Flow()
    with VictoriaMetrics(tmp_path / "data") as store:
        sink = VictoriaMetricsSink(url=store.url, durable=True)
        running = asyncio.create_task(run(source, sink, limits=Limits(age=0.2, backoff=0.2)))
        for count in (20, 40):
            # Waiting for each batch to be safe before the next one is written would take minutes.
            await eventually(lambda count=count: source.number >= count or running.done(), 120)  # type: ignore[misc]
            await asyncio.to_thread(restart, store)
        source.stop()
        await running
        await asyncio.to_thread(restart, store)
        assert source.acknowledged == list(range(source.number))
        stored = {int(value) for _, _, value, _ in store.samples("cpu_load")}
        assert stored == set(range(source.number * BATCH))


@pytest.mark.parametrize(
    "page",
    [
        "<html>a login</html>",
        "vm_app_uptime_seconds 100\nvmagent_rows_inserted_total 5\n",
        'vm_rows{type="storage/small"} 5\n',
    ],
)
async def test_only_the_metrics_of_a_single_node_store_are_accepted(
    answers: Answers, page: str
) -> None:
    """An agent, a cluster's inserter or another server says nothing about a disk."""
    answers.pages["/metrics"] = page
    with pytest.raises(ConfigError, match="durable: .*/metrics is not that of a single-node"):
        await VictoriaMetricsSink(url=answers.url, durable=True).check()
    await VictoriaMetricsSink(url=answers.url).check()


async def test_metrics_that_we_may_not_read_end_the_bridge_before_it_starts(tmp_path: Path) -> None:
    """A store may protect them by a key of their own."""
    with VictoriaMetrics(tmp_path / "data", "-metricsAuthKey=secret") as store:
        async with VictoriaMetricsSink(url=store.url):
            pass
        with pytest.raises(DeniedError, match=r"/metrics: 401 .*needed by durable"):
            await VictoriaMetricsSink(url=store.url, durable=True).__aenter__()


def test_flush_interval_determines_when_rows_are_acknowledged() -> None:
    """Two intervals and a few seconds; at once without `durable`."""
    assert VictoriaMetricsSink(durable=True).safe_after == 13
    assert VictoriaMetricsSink(durable=True, flush_interval=Interval(1)).safe_after == 5
    assert VictoriaMetricsSink(flush_interval=Interval(1)).safe_after == 0
