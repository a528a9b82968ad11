"""Reading a real Mosquitto: nothing is acknowledged before it is safe."""

from collections.abc import Callable
from typing import Any

import pytest

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.mqtt.session import MqttBroker
from ccpipe.bus.mqtt.sink import MqttSink
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.config import Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.pipeline import Scope
from ccpipe.telemetry import Telemetry
from tests.bus.codecs.readings import Readings, ReadingsCodec
from tests.bus.mqtt.conftest import metrics, remember, subscribed
from tests.conftest import eventually
from tests.reading import Reader
from tests.servers.mosquitto import Mosquitto

BOTH = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


@BOTH
async def test_source_redelivers_unacknowledged_messages(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site, protocol: Any
) -> None:
    """A process that ends without acknowledging leaves everything to the next one."""
    await remember(source(protocol, durable="test"))
    async with MqttSink(site=fox, broker=mosquitto.broker, max_lines=1) as sink:
        await sink.write(to_lines(metrics(10)))
    async with Reader(source(protocol, durable="test"), acknowledge=False) as first:
        await eventually(lambda: len(first.records) == 10, 60)
        assert first.batches[0].ack
        await first.batches[0].ack()
    done = len(first.batches[0].records)
    async with Reader(source(protocol, durable="test")) as second:
        await eventually(lambda: len(second.records) == 10 - done, 60)
    assert second.values == first.values[done:]


async def test_source_and_sink_survive_restart_of_broker(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """The source waits for it and continues; the sink reports that the write may be retried."""
    from ccpipe.errors import UnavailableError

    durable = source(durable="test")
    async with MqttSink(site=fox, broker=mosquitto.broker) as sink, Reader(durable) as reader:
        await subscribed(durable)
        await sink.write(to_lines(metrics(3)))
        await eventually(lambda: len(reader.records) == 3, 60)
        mosquitto.stop()
        with pytest.raises(UnavailableError, match=mosquitto.url):
            await sink.write(to_lines(metrics(3, 3)))
        await mosquitto.start()
        await subscribed(durable)
        await sink.write(to_lines(metrics(3, 3)))
        await eventually(lambda: set(reader.values) == {0, 1, 2, 3, 4, 5}, 60)


async def test_source_sends_no_acknowledgement_after_reconnect(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """The number may belong to another message by then; unacknowledged ones are redelivered."""
    durable = source(durable="test")
    async with Reader(durable, acknowledge=False) as reader:
        await subscribed(durable)
        async with MqttSink(site=fox, broker=mosquitto.broker) as sink:
            await sink.write(to_lines(metrics(1)))
        await eventually(lambda: reader.values == [0.0], 60)
        mosquitto.stop()
        await mosquitto.start()
        await eventually(lambda: reader.values == [0.0, 0.0], 60)
        assert reader.batches[0].ack
        await reader.batches[0].ack()
        assert reader.batches[1].ack
        await reader.batches[1].ack()
    async with Reader(source(durable="test")) as after:
        await subscribed(after.source)
        async with MqttSink(site=fox, broker=mosquitto.broker) as sink:
            await sink.write(to_lines(metrics(1, 7)))
        await eventually(lambda: after.values == [7.0], 60)


async def test_sources_of_one_queue_share_messages(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    first, second = [source(queue="q", prefix="hpc/x") for _ in range(2)]
    async with Reader(first) as one, Reader(second) as two:
        for each in (first, second):
            await subscribed(each)
        async with MqttSink(site=fox, broker=mosquitto.broker, max_lines=1, prefix="hpc/x") as sink:
            await sink.write(to_lines(metrics(40)))
        await eventually(lambda: len(one.records) + len(two.records) >= 40, 60)
    assert sorted(one.values + two.values) == [float(i) for i in range(40)]
    assert one.records
    assert two.records


async def test_source_refuses_queue_if_all_messages_must_be_seen(
    source: Callable[..., MqttSource],
) -> None:
    """A stateful translator would see only a part of them."""
    async with source(queue="q") as shared:
        with pytest.raises(ConfigError, match="queue: a translator"):
            await anext(shared.batches(Scope.NODE))


def test_source_refuses_invalid_options(fox: Site) -> None:
    with pytest.raises(ConfigError, match="max_in_flight: 0"):
        MqttSource(site=fox, telemetry=Telemetry(), max_in_flight=0)
    with pytest.raises(ConfigError, match="queue: only MQTT 5"):
        MqttSource(site=fox, telemetry=Telemetry(), broker=MqttBroker(protocol="3.1.1"), queue="q")
    with pytest.raises(ConfigError, match="prefix: 'a/#'"):
        MqttSink(site=fox, prefix="a/#")
    with pytest.raises(ConfigError, match="latest: only metrics"):
        MqttSink(site=fox, latest=True, codec=SonarCodec())


def test_source_topics_are_names_of_subjects_or_filters(source: Callable[..., MqttSource]) -> None:
    """One class of events has the topic that the sink publishes it on."""
    topics = ["metrics", "events.job", "sensors/+/events.job"]
    assert source(topics=topics).filters == [
        "fox%2Etest/metrics",
        "fox%2Etest/metrics/+",
        "fox%2Etest/events/job",
        "sensors/+/events.job",
    ]


async def test_source_reads_new_type_of_records_from_given_topics(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """A third-party codec needs nothing in ccpipe but its topics."""
    codec = ReadingsCodec()
    reader = source(codec=codec, topics=["#"])
    async with Reader(reader) as read:
        await subscribed(reader)
        async with MqttSink(site=fox, broker=mosquitto.broker, codec=codec) as sink:
            await sink.write(Readings([1, 2, 3]))
        await eventually(lambda: sorted(read.records) == [1, 2, 3], 60)
    with pytest.raises(ConfigError, match="topics: missing; readings have no default topics"):
        source(codec=codec)
