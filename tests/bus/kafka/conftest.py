"""One broker for all tests of this directory, which keep their clusters' names apart."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.kafka.broker import KafkaBroker
from ccpipe.bus.kafka.sink import KafkaSink
from ccpipe.bus.kafka.source import KafkaSource
from ccpipe.config import Site
from ccpipe.pipeline import Sink, run
from ccpipe.records import Records
from ccpipe.telemetry import Telemetry
from tests.servers.kafka import Kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    server = Kafka(tmp_path_factory.mktemp("kafka"))
    asyncio.run(server.start())
    yield server
    server.stop()


SECOND = 10**9
NOON = 1_740_052_800 * SECOND


class Enough(Sink[Any]):
    """Keeps records and stops the pipe when there are enough; may fail at one of the writes."""

    def __init__(self, source: KafkaSource, stop: asyncio.Event, enough: int) -> None:
        self.takes = source.gives
        self.stop, self.enough = stop, enough
        self.records: list[Any] = []
        self.dies = False

    async def write(self, records: Records) -> None:
        if self.dies:
            raise RuntimeError("killed")
        self.records += records
        if len(self.records) >= self.enough:
            self.stop.set()


async def read(kafka: Kafka, site: Site, enough: int, *, dies: bool = False, **options: Any) -> Any:
    return await read_from(kafka.broker, site, enough, dies=dies, **options)


async def read_from(
    broker: KafkaBroker, site: Site, enough: int, *, dies: bool = False, **options: Any
) -> Any:
    stop = asyncio.Event()
    source = KafkaSource(site=site, telemetry=Telemetry(), broker=broker, **options)
    sink = Enough(source, stop, enough)
    sink.dies = dies
    await asyncio.wait_for(run(source, sink, stop=stop), 60)
    return sink.records


def lines_to(kafka: Kafka, site: Site, **options: Any) -> KafkaSink:
    return KafkaSink(site=site, broker=kafka.broker, codec=LineCodec(), **options)
