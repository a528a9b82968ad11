"""Writing records to a real Mosquitto by each version of MQTT, and retained values."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec
import pytest

from ccpipe.bus.mqtt.session import MqttBroker
from ccpipe.bus.mqtt.sink import MqttSink
from ccpipe.bus.mqtt.source import MqttSource
from ccpipe.config import Duration, Site
from ccpipe.errors import TimedOutError
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.message import Message, event, metric
from tests.bus.mqtt.conftest import NOON, TAGS, metrics, remember, subscribed
from tests.conftest import eventually
from tests.processes import frozen
from tests.reading import Reader
from tests.servers.mosquitto import Mosquitto
from tests.sinks.conftest import Given, carry

BOTH = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


@BOTH
async def test_subscriber_receives_what_sink_wrote(
    mosquitto: Mosquitto, fox: Site, source: Callable[..., MqttSource], protocol: Any
) -> None:
    """Metrics and events, complete and in order, with either version of MQTT."""
    durable = source(protocol, durable="test")
    await remember(source(protocol, durable="test"))
    start = event("job", "start_job", '{"a": 1}', time=NOON, tags=TAGS)
    async with MqttSink(site=fox, broker=MqttBroker(url=mosquitto.url, protocol=protocol)) as sink:
        await sink.write(to_lines([*metrics(1200), start]))
    async with Reader(durable) as reader:
        await eventually(lambda: len(reader.records) == 1201, 60)
    assert [r.value for r in reader.records if r.name == "m"] == [float(i) for i in range(1200)]
    origins = [batch.records.provenance.origins for batch in reader.batches]
    assert "fox%2Etest/events/job" in chain.from_iterable(origins)
    assert [(r.name, r.value) for r in reader.records if r.name == "job"] == [("job", '{"a": 1}')]


async def test_sink_retains_latest_values(
    source: Callable[..., MqttSource], mosquitto: Mosquitto, fox: Site
) -> None:
    """A later subscriber receives the latest value of each series at once, and no older one."""
    core = metric("m", 9.0, time=NOON, tags=TAGS | {"type": "core", "type-id": "1"})
    async with MqttSink(site=fox, broker=mosquitto.broker, latest=True) as sink:
        await sink.write(to_lines([*reversed(metrics(5)), core]))
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
            await sink.write(to_lines(metrics(1, 6)))
        await eventually(lambda: without.values == [6.0], 60)


async def test_sink_sends_all_messages_to_broker_slower_than_time_limit(
    fox: Site, mosquitto: Mosquitto, source: Callable[..., MqttSource]
) -> None:
    """A timed-out write is reported to the pipe, and its rest does not delay the next write."""
    durable = source(durable="test")
    await remember(source(durable="test"))
    broker = msgspec.structs.replace(mosquitto.broker, timeout=Duration(0.5))
    async with MqttSink(site=fox, broker=broker) as sink:
        assert sink.time_limit == 0.5
        async with frozen(mosquitto.process.pid):
            with pytest.raises(TimedOutError, match="not acknowledged within 0.5 s"):
                await sink.write(to_lines(metrics(3)))
        sink.time_limit = 60.0
        await sink.write(to_lines(metrics(1, 3)))
    async with Reader(durable) as reader:
        await eventually(lambda: 3.0 in reader.values, 60)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("max_packet_size 100000", {}),  # announced to clients of MQTT 5
        ("max_packet_size 100000", {"max_message_bytes": 90_000}),
        ("message_size_limit 100000", {"max_message_bytes": 90_000}),
        ("message_size_limit 100000", {}),  # closes the connection of clients of MQTT 5
    ],
)
async def test_sink_rejects_record_beyond_brokers_limit(
    fox: Site, tmp_path: Path, line: str, options: dict[str, Any]
) -> None:
    async with Mosquitto(tmp_path / "limited", "allow_anonymous true", line) as broker:
        topic = "fox%2Etest/log/syslog"
        async with aiomqtt.Client("127.0.0.1", broker.port) as client:
            await client.subscribe("fox%2Etest/#")
            good = metrics(4)
            log = Message("syslog", {**TAGS, "loglevel": "err"}, "x" * 200_000, NOON, "log")
            sink = MqttSink(site=fox, broker=broker.broker, max_lines=1, **options)
            letters = await carry(Given([*good[:2], log, good[2]], [good[3]]), sink)
            received = set[Any]()
            async for message in client.messages:
                assert str(message.topic) != topic
                received |= {each.value for each in decode(bytes(message.payload))}
                if len(received) == len(good):
                    break
        assert [len(letter.original) > 200_000 for letter in letters] == [True]
