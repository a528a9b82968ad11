"""Metrics to publish, and a source that is read in the background."""

import asyncio
from typing import Any, Self

from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Site
from ccpipe.message import Message, metric
from ccpipe.pipeline import Batch, Scope
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually

TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
SECOND = 10**9
NOW = 1_740_000_000 * SECOND


def metrics(count: int, start: int = 1_740_000_000) -> list[Message]:
    return [metric("m", float(i), time=(start + i) * SECOND, tags=TAGS) for i in range(count)]


class Reader:
    """Reads a source in the background and keeps what came."""

    def __init__(
        self, source: NatsSource, *, acknowledge: bool = True, scope: Scope = Scope.RECORD
    ) -> None:
        self.source = source
        self.acknowledge = acknowledge
        self.scope = scope
        self.batches: list[Batch[Any]] = []
        self.is_open = False

    @property
    def values(self) -> list[object]:
        return [record.value for batch in self.batches for record in batch.records]

    @property
    def origins(self) -> set[str]:
        return {origin for batch in self.batches for origin in batch.records.provenance.origins}

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.read())
        await eventually(lambda: self.is_open or self.task.done())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.source.stop()
        await asyncio.wait_for(self.task, 60)

    async def read(self) -> None:
        async with self.source:
            self.is_open = True
            async for batch in self.source.batches(self.scope):
                self.batches.append(batch)
                if self.acknowledge and batch.ack:
                    await batch.ack()


def source(site: Site, **options: object) -> NatsSource:
    return NatsSource(
        site=site,
        telemetry=Telemetry(),
        **{"durable": "test", **options},  # type: ignore[arg-type]
    )
