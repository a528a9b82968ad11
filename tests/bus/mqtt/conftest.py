"""A broker and a site for all tests of this directory, metrics, and a source that is read."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.mqtt.session import MqttBroker
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.config import Site
from ccpipe.message import Message, metric
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.reading import Reader
from tests.servers.mosquitto import Mosquitto


@pytest.fixture
async def mosquitto(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    async with Mosquitto(tmp_path / "mosquitto") as broker:
        yield broker


@pytest.fixture
def fox() -> Site:
    return Site(cluster="fox.test", hostname="n1")


@pytest.fixture
def source(mosquitto: Mosquitto, fox: Site) -> Callable[..., MqttSource]:
    def make(protocol: Any = "5", **options: Any) -> MqttSource:
        broker = MqttBroker(url=mosquitto.url, protocol=protocol)
        return MqttSource(site=fox, telemetry=Telemetry(), broker=broker, **options)

    return make


SECOND = 10**9
NOON = 1_740_052_800 * SECOND
TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}


def metrics(count: int, start: int = 0) -> list[Message]:
    return [
        metric("m", float(i), time=NOON + i * SECOND, tags=TAGS)
        for i in range(start, start + count)
    ]


async def subscribed(source: MqttSource) -> None:
    await eventually(lambda: source._session is not None and source._session.is_subscribed, 60)


async def remember(source: MqttSource) -> None:
    async with Reader(source):
        await subscribed(source)
