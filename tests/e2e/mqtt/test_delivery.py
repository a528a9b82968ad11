"""Records through a real Mosquitto: nothing is acknowledged before it is safe."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import aiomqtt
import pytest

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.mqtt.session import Broker
from ccpipe.bus.mqtt.sink import MqttSink
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.config import Site
from ccpipe.errors import ConfigError
from ccpipe.message import Message, event, metric
from ccpipe.pipeline import Batch
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.e2e.nats.test_sonar_delivery import JOBS, SAMPLE
from tests.servers.mosquitto import Mosquitto

SECOND = 10**9
NOON = 1_740_052_800 * SECOND
TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}
BOTH = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


def metrics(count: int, start: int = 0) -> list[Message]:
    """Make metrics one second apart; the value says which is which."""
    return [
        metric("m", float(i), time=NOON + i * SECOND, tags=TAGS)
        for i in range(start, start + count)
    ]


class Reader:
    """Reads a source in the background and keeps what came."""

    def __init__(self, source: MqttSource, *, acknowledge: bool = True) -> None:
        self.source, self.acknowledge = source, acknowledge
        self.batches: list[Batch] = []
        self.records: list[Any] = []

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.source.stop()
        await asyncio.wait_for(self.task, 30)

    async def read(self) -> None:
        """Keep what comes until the source ends."""
        async with self.source:
            async for batch in self.source:
                self.batches.append(batch)
                self.records += batch.records
                if self.acknowledge:
                    await batch.ack()

    @property
    def values(self) -> list[float]:
        """The values so far."""
        return [record.value for record in self.records]


async def subscribed(source: MqttSource) -> None:
    """Wait until the broker knows what a source listens to."""
    await eventually(lambda: source._session is not None and source._session.is_subscribed, 60)


@pytest.fixture
def source(mosquitto: Mosquitto, fox: Site) -> Callable[..., MqttSource]:
    """Return a function that makes sources."""

    def make(protocol: Any = "5", **options: Any) -> MqttSource:
        broker = Broker(url=mosquitto.url, protocol=protocol)
        return MqttSource(site=fox, telemetry=Telemetry(), broker=broker, **options)

    return make


async def remember(source: MqttSource) -> None:
    """Let the broker learn a durable name."""
    async with Reader(source):
        await subscribed(source)


@BOTH
async def test_what_is_written_is_what_comes(
    mosquitto: Mosquitto, fox: Site, source: Callable[..., MqttSource], protocol: Any
) -> None:
    """Metrics and events, whole and in order, over either version of MQTT."""
    durable = source(protocol, durable="test")
    await remember(source(protocol, durable="test"))
    start = event("job", "start_job", '{"a": 1}', time=NOON, tags=TAGS)
    async with MqttSink(site=fox, broker=Broker(url=mosquitto.url, protocol=protocol)) as sink:
        await sink.write([*metrics(1200), start])
    async with Reader(durable) as reader:
        await eventually(lambda: len(reader.records) == 1201, 60)
    assert [r.value for r in reader.records if r.name == "m"] == [float(i) for i in range(1200)]
    assert {batch.origin for batch in reader.batches} >= {"fox%2Etest/events/job"}
    assert [(r.name, r.value) for r in reader.records if r.name == "job"] == [("job", '{"a": 1}')]


@BOTH
async def test_what_was_not_acknowledged_comes_again(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site, protocol: Any
) -> None:
    """A process that ends without acknowledging leaves everything to the next one."""
    await remember(source(protocol, durable="test"))
    async with MqttSink(site=fox, broker=mosquitto.broker, lines=1) as sink:
        await sink.write(metrics(10))
    async with Reader(source(protocol, durable="test"), acknowledge=False) as first:
        await eventually(lambda: len(first.records) == 10, 60)
        await first.batches[0].ack()
    done = len(first.batches[0].records)
    async with Reader(source(protocol, durable="test")) as second:
        await eventually(lambda: len(second.records) == 10 - done, 60)
    assert second.values == first.values[done:]


async def test_a_broker_that_goes_and_comes_back(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """The source waits for it and goes on; the sink says that the write may be tried again."""
    from ccpipe.errors import UnavailableError

    durable = source(durable="test")
    async with MqttSink(site=fox, broker=mosquitto.broker) as sink, Reader(durable) as reader:
        await subscribed(durable)
        await sink.write(metrics(3))
        await eventually(lambda: len(reader.records) == 3, 60)
        mosquitto.stop()
        with pytest.raises(UnavailableError, match=mosquitto.url):
            await sink.write(metrics(3, 3))
        await mosquitto.start()
        await subscribed(durable)
        await sink.write(metrics(3, 3))
        await eventually(lambda: set(reader.values) == {0, 1, 2, 3, 4, 5}, 60)


async def test_an_acknowledgement_after_a_lost_connection_is_not_sent(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """The number may mean another message by then: what is in doubt is delivered again."""
    durable = source(durable="test")
    async with Reader(durable, acknowledge=False) as reader:
        await subscribed(durable)
        async with MqttSink(site=fox, broker=mosquitto.broker) as sink:
            await sink.write(metrics(1))
        await eventually(lambda: reader.values == [0.0], 60)
        mosquitto.stop()
        await mosquitto.start()
        await eventually(lambda: reader.values == [0.0, 0.0], 60)
        await reader.batches[0].ack()
        await reader.batches[1].ack()
    async with Reader(source(durable="test")) as after:
        await subscribed(after.source)
        async with MqttSink(site=fox, broker=mosquitto.broker) as sink:
            await sink.write(metrics(1, 7))
        await eventually(lambda: after.values == [7.0], 60)


async def test_envelopes(source: Callable[..., MqttSource], mosquitto: Mosquitto) -> None:
    """The codec is composed: Sonar's envelopes travel as they do on NATS."""
    site = Site(cluster="fox.no", hostname="n1")
    reading = MqttSource(
        site=site, telemetry=Telemetry(), broker=mosquitto.broker, codec=SonarCodec(), prefix="hpc"
    )
    async with Reader(reading) as reader:
        await subscribed(reading)
        sink = MqttSink(site=site, broker=mosquitto.broker, codec=SonarCodec(), prefix="hpc")
        async with sink:
            await sink.write([SAMPLE, JOBS])
        await eventually(lambda: len(reader.records) == 2, 60)
    assert reader.records == [SAMPLE, JOBS]
    assert [b.origin for b in reader.batches] == [
        "hpc/fox%2Eno/sonar/sample",
        "hpc/fox%2Eno/sonar/job",
    ]


async def test_latest_values_are_retained(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """Who subscribes later sees the newest value of each series at once, and no older one."""
    core = metric("m", 9.0, time=NOON, tags=TAGS | {"type": "core", "type-id": "1"})
    async with MqttSink(site=fox, broker=mosquitto.broker, latest=True) as sink:
        await sink.write([*reversed(metrics(5)), core])
    seen: dict[str, bytes] = {}
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
        await client.subscribe("fox%2Etest/#")
        async for message in client.messages:
            assert message.retain
            seen[str(message.topic)] = bytes(message.payload)
            if len(seen) == 2:
                break
    node = b"m,cluster=fox.test,hostname=n1,type="
    assert seen == {
        "fox%2Etest/latest/n1/m": node + b"node value=4.0 1740052804\n",
        "fox%2Etest/latest/n1/m/core/1": node + b"core,type-id=1 value=9.0 1740052800\n",
    }
    reading = source(topics=["fox%2Etest/latest/#"], retained=True)
    async with Reader(reading) as reader:
        await eventually(lambda: sorted(reader.values) == [4.0, 9.0], 60)
    reading = source(topics=["fox%2Etest/latest/#"])
    async with Reader(reading) as without:
        await subscribed(reading)
        async with MqttSink(site=fox, broker=mosquitto.broker, latest=True) as sink:
            await sink.write(metrics(1, 6))
        await eventually(lambda: without.values == [6.0], 60)


async def test_bridges_of_one_queue_share_the_messages(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """Each message goes to one of them."""
    first, second = source(queue="q"), source(queue="q")
    async with Reader(first) as one, Reader(second) as two:
        for each in (first, second):
            await subscribed(each)
        async with MqttSink(site=fox, broker=mosquitto.broker, lines=1) as sink:
            await sink.write(metrics(40))
        await eventually(lambda: len(one.records) + len(two.records) >= 40, 60)
    assert sorted(one.values + two.values) == [float(i) for i in range(40)]
    assert one.records
    assert two.records


async def test_a_queue_is_refused_where_all_messages_must_be_seen(
    source: Callable[..., MqttSource],
) -> None:
    """A stateful translator would see a part of them."""
    shared = source(queue="q")
    shared.exclusive = True
    with pytest.raises(ConfigError, match="queue: a translator"):
        async with shared:
            pass


def test_options_that_cannot_be(fox: Site) -> None:
    """A wrong option is named before anything starts."""
    with pytest.raises(ConfigError, match="in_flight: 0"):
        MqttSource(site=fox, telemetry=Telemetry(), in_flight=0)
    with pytest.raises(ConfigError, match="queue: only MQTT 5"):
        MqttSource(site=fox, telemetry=Telemetry(), broker=Broker(protocol="3.1.1"), queue="q")
    with pytest.raises(ConfigError, match="prefix: 'a/#'"):
        MqttSink(site=fox, prefix="a/#")
    with pytest.raises(ConfigError, match="latest: only metrics"):
        MqttSink(site=fox, latest=True, codec=SonarCodec())
