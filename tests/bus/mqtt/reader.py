"""A source that is read in the background, and metrics to send to it."""

import asyncio
from typing import Any, Self

from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.message import Message, metric
from ccpipe.pipeline import Batch
from tests.conftest import eventually

SECOND = 10**9
NOON = 1_740_052_800 * SECOND
TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}


def metrics(count: int, start: int = 0) -> list[Message]:
    return [
        metric("m", float(i), time=NOON + i * SECOND, tags=TAGS)
        for i in range(start, start + count)
    ]


class Reader:
    """Reads a source in the background and keeps what came."""

    def __init__(self, source: MqttSource, *, acknowledge: bool = True) -> None:
        self.source, self.acknowledge = source, acknowledge
        self.batches: list[Batch[Any]] = []
        self.records: list[Any] = []

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.source.stop()
        await asyncio.wait_for(self.task, 30)

    async def read(self) -> None:
        async with self.source:
            async for batch in self.source.batches():
                self.batches.append(batch)
                self.records += batch.records
                if self.acknowledge:
                    assert batch.ack
                    await batch.ack()

    @property
    def values(self) -> list[float]:
        return [record.value for record in self.records]


async def subscribed(source: MqttSource) -> None:
    await eventually(lambda: source._session is not None and source._session.is_subscribed, 60)


async def remember(source: MqttSource) -> None:
    async with Reader(source):
        await subscribed(source)
