"""nats-server implements MQTT 3.1.1: messages are delivered between both protocols."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from ccpipe.bus.mqtt.session import MqttBroker
from ccpipe.bus.mqtt.sink import MqttSink
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.bus.nats.server import server_program
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.process import child
from ccpipe.telemetry import Telemetry
from tests.bus.mqtt.conftest import metrics, remember, subscribed
from tests.conftest import eventually, free_port
from tests.reading import Reader
from tests.servers.nats.daemon import accepts


class Gateway:
    """A nats-server with an MQTT listener, configured as in docs/stores/mqtt.md."""

    def __init__(self, directory: Path) -> None:
        self.nats_port, self.mqtt_port = free_port(), free_port()
        self.config = directory / "nats.conf"
        self.config.write_text(f"""
listen: "127.0.0.1:{self.nats_port}"
server_name: "gateway"
jetstream {{ store_dir: "{directory}" }}
mqtt {{ listen: "127.0.0.1:{self.mqtt_port}", max_ack_pending: 1000 }}
""")
        url = f"nats://127.0.0.1:{self.nats_port}"
        self.site = Site(cluster="fox", hostname="n1", bus=Bus(servers=[url], jetstream=False))
        self.broker = MqttBroker(url=f"mqtt://127.0.0.1:{self.mqtt_port}", protocol="3.1.1")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    made = Gateway(tmp_path)
    command = [server_program(), "--config", str(made.config)]
    process = await child.start(command, output=asyncio.subprocess.DEVNULL)
    try:
        for port in (made.mqtt_port, made.nats_port):
            await accepts(port)
        yield made
    finally:
        await child.end(process, 5)


async def test_gateway_delivers_mqtt_to_nats(gateway: Gateway) -> None:
    """A topic's levels are a subject's tokens: the escaped name of a cluster stays one token."""
    site = Site(cluster="fox.test", hostname="n1", bus=gateway.site.bus)
    client = await nats.connect(gateway.site.bus.servers[0])
    subscription = await client.subscribe("fox%2Etest.metrics")
    await client.flush()
    async with MqttSink(site=site, broker=gateway.broker) as sink:
        await sink.write(to_lines(metrics(2)))
    message = await subscription.next_msg(30)
    await client.close()
    assert message.data.count(b"\n") == 2


async def test_gateway_delivers_nats_to_mqtt(gateway: Gateway) -> None:
    """Connected MQTT clients receive messages of NATS publishers."""
    site = Site(cluster="fox.test", hostname="n1", bus=gateway.site.bus)
    reading = MqttSource(site=site, telemetry=Telemetry(), broker=gateway.broker)
    async with Reader(reading) as reader:
        await subscribed(reading)
        async with NatsSink(site=site, telemetry=Telemetry()) as sink:
            await eventually(lambda: sink.bus.is_connected)
            await sink.write(to_lines(metrics(700)))
        await eventually(lambda: len(reader.records) == 700, 60)
    assert sorted(reader.values) == [float(i) for i in range(700)]


async def test_gateway_keeps_messages_for_durable_name(gateway: Gateway) -> None:
    """Messages published with QoS 1 are kept for a disconnected client."""
    site = Site(cluster="fox.test", hostname="n1", bus=gateway.site.bus)

    def durable() -> MqttSource:
        return MqttSource(site=site, telemetry=Telemetry(), broker=gateway.broker, durable="test")

    await remember(durable())
    async with MqttSink(site=site, broker=gateway.broker, max_lines=10) as sink:
        await sink.write(to_lines(metrics(100)))
    async with Reader(durable()) as reader:
        await eventually(lambda: len(reader.records) == 100, 60)
    assert reader.values == [float(i) for i in range(100)]
