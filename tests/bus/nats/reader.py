"""Metrics to publish, and a source that is read in the background."""

from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Site
from ccpipe.message import Message, metric
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
