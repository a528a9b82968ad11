"""Metrics to publish, and sources that read them."""

import msgspec

from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, metric
from ccpipe.pipeline import Scope
from ccpipe.telemetry import Telemetry

TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
SECOND = 10**9
NOW = 1_740_000_000 * SECOND


def metrics(count: int, start: int = 1_740_000_000) -> list[Message]:
    return [metric("m", float(i), time=(start + i) * SECOND, tags=TAGS) for i in range(count)]


def source(site: Site, **options: object) -> NatsSource:
    return NatsSource(
        site=site,
        telemetry=Telemetry(),
        **{"durable": "test", **options},  # type: ignore[arg-type]
    )


async def read_to_the_end(endless: NatsSource, scope: Scope = Scope.RECORD) -> None:
    async with endless:
        async for _ in endless.batches(scope):
            pass


def partitioned(site: Site, count: int, **more: object) -> Site:
    subjects = {"metrics": "{cluster}.metrics.{hostname}"}
    bus: Bus = msgspec.structs.replace(site.bus, stream_partitions=count, subjects=subjects, **more)
    return msgspec.structs.replace(site, bus=bus)


NODES = 24


def samples(start: int, count: int = 1) -> list[Message]:
    return [
        metric(
            "m", float(number), time=(1_740_000_000 + number) * SECOND,
            tags={"cluster": "fox.test", "hostname": f"n{node}", "type": "node"},
        )
        for number in range(start, start + count)
        for node in range(NODES)
    ]  # fmt: skip


async def publish(site: Site, start: int, count: int = 1) -> None:
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        for number in range(start, start + count):
            await sink.write(to_lines(samples(number)))
