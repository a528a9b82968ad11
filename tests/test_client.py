"""``ccpipe.connect``: publishing and receiving in Python, on a real nats-server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

import ccpipe
from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats import sonar
from tests.conftest import free_port

TIME = 1795168800000000007
ENVELOPE = sonar.decode(
    b'{"meta":{"producer":"sonar","version":"0.19.0"},"data":{"type":"sample","attributes":{'
    b'"time":"2026-11-20T10:00:00Z","cluster":"fritz","node":"f0101"}}}'
)[0]


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[ccpipe.BusClient]:
    async with ccpipe.connect(nats_server.url, cluster="fritz") as connected:
        yield connected


async def stored(server: NatsServer) -> int:
    client = await nats.connect(server.url)
    info = await client.jetstream().stream_info("ccpipe-fritz")
    await client.close()
    return info.state.messages


async def test_publish_returns_when_message_is_stored(
    bus: ccpipe.BusClient, nats_server: NatsServer
) -> None:
    await bus.publish("cpu_load", 1.5, hostname="f0101")
    assert await stored(nats_server) == 1
    await bus.publish("cpu_power", 20, time=TIME, type="socket", **{"type-id": 3})
    received = [each async for each in first(bus.subscribe(durable="test"), 2)]
    [load, power] = [message for lines in received for message in lines]
    assert load.tags == {"cluster": "fritz", "hostname": "f0101", "type": "node"}
    assert (load.name, load.value, load.kind) == ("cpu_load", 1.5, "metric")
    assert power.tags["type-id"] == "3"
    assert power.tags["hostname"]
    assert (power.value, power.time) == (20, TIME)


async def first(records: AsyncIterator[ccpipe.Lines], count: int) -> AsyncIterator[ccpipe.Lines]:
    async for lines in records:
        yield lines
        count -= len(lines)
        if count <= 0:
            return


async def test_publish_rejects_message_that_breaks_specification(bus: ccpipe.BusClient) -> None:
    with pytest.raises(ccpipe.EncodeError, match="load: a metric's value must be a number"):
        await bus.publish("load", "high")  # type: ignore[arg-type]
    with pytest.raises(ccpipe.EncodeError, match="tag type-id is missing"):
        await bus.publish("load", 1, type="core")
    with pytest.raises(ccpipe.EncodeError, match="tag loglevel is 'loud'"):
        await bus.publish_log("backup", "loud", "text")


async def test_client_uses_subject_of_kind(bus: ccpipe.BusClient, nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    subscription = await client.subscribe("fritz.>")
    await client.flush()
    tags = {"hostname": "f1", "type": "node"}
    await bus.publish_event("maintenance", "drain", "pump")
    await bus.publish_log("backup", "warn", "slow")
    await bus.publish_records(ccpipe.Message("load", tags, 1.0, 0))
    await bus.publish_records(ccpipe.Message("load", tags, float(i), 0) for i in range(2, 4))
    await bus.publish_records(ENVELOPE)
    await bus.publish_records(sonar.Envelopes([ENVELOPE]))
    found = [await subscription.next_msg(10) for _ in range(5)]
    await client.close()
    assert [(message.subject, message.data.count(b"\n")) for message in found] == [
        ("fritz.events.maintenance", 1),
        ("fritz.log.backup", 1),
        ("fritz.metrics", 1),
        ("fritz.metrics", 2),
        ("fritz.sonar.sample", 1),
    ]  # the broker stores an envelope that is published twice once


async def test_client_receives_sonar_as_envelopes(bus: ccpipe.BusClient) -> None:
    await bus.publish_records(ENVELOPE)
    async for envelopes in bus.subscribe("sonar", durable="test"):
        assert list(envelopes) == [ENVELOPE]
        break


async def test_undecodable_bytes_are_in_rejected(
    bus: ccpipe.BusClient, nats_server: NatsServer
) -> None:
    await bus.publish("load", 1)
    client = await nats.connect(nats_server.url)
    await client.jetstream().publish("fritz.metrics", b"broken\nload,hostname=a value=2 0\n")
    await client.close()
    received = [each async for each in first(bus.subscribe("metrics", durable="test"), 2)]
    assert [bad.original for lines in received for bad in lines.rejected] == [b"broken"]
    assert [message.value for lines in received for message in lines] == [1, 2]


async def test_records_are_acknowledged_when_next_ones_are_requested(
    bus: ccpipe.BusClient, nats_server: NatsServer
) -> None:
    """Records being processed when the program ends are delivered again."""
    await bus.publish("load", 1)
    records = bus.subscribe("metrics", durable="test")
    assert [each.value for each in await anext(records)] == [1]
    await bus.publish("load", 2)
    assert [each.value for each in await anext(records)] == [2]
    del records
    client = await nats.connect(nats_server.url)
    async with asyncio.timeout(60):
        while True:
            info = await client.jetstream().consumer_info("ccpipe-fritz", "test")
            if info.ack_floor and info.ack_floor.stream_seq == 1:
                break
    await client.close()
    assert info.num_ack_pending == 1


async def test_subscription_ends_with_its_loop_and_with_client(
    nats_server: NatsServer,
) -> None:
    """Without leaking a connection or a task, even if a task waits for its next records."""
    before = asyncio.all_tasks()
    async with ccpipe.connect(nats_server.url, cluster="fritz") as bus:
        await bus.publish("load", 1)
        async for _ in bus.subscribe("metrics", durable="left"):
            break
        suspended = bus.subscribe("metrics", durable="suspended")
        await anext(suspended)
        waiting = bus.subscribe("metrics")
        task = asyncio.create_task(_count(waiting))
        await asyncio.sleep(0)
    assert await task == 0
    assert asyncio.all_tasks() == before
    with pytest.raises(StopAsyncIteration):
        await anext(suspended)


async def _count(records: AsyncIterator[ccpipe.Lines]) -> int:
    return sum([len(lines) async for lines in records])


async def test_client_uses_configuration_of_site(nats_server: NatsServer, tmp_path: Path) -> None:
    config = tmp_path / "ccpipe.toml"
    (tmp_path / "password").write_text((nats_server.directory / "password").read_text())
    config.write_text(
        f'cluster = "fritz"\n[bus]\nservers = ["nats://127.0.0.1:{nats_server.port}"]\n'
        f'user = "ccpipe"\npassword_file = "{tmp_path}/password"\n'
    )
    async with ccpipe.connect(config=config) as bus:
        await bus.publish("load", 1)
    assert await stored(nats_server) == 1
    config.write_text('clustre = "fritz"\n')
    with pytest.raises(ccpipe.ConfigError, match="did you mean 'cluster'"):
        ccpipe.connect(config=config)


async def test_connect_fails_without_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpipe.bus.nats.connection.CONNECT_SECONDS", 0.2)
    address = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(ccpipe.UnavailableError, match=address):
        await ccpipe.connect(address).__aenter__()
