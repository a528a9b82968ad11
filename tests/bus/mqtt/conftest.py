"""A broker and a site for all tests of this folder."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.mqtt.session import MqttBroker
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.config import Site
from ccpipe.telemetry import Telemetry
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
