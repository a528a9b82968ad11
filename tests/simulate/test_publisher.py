"""A simulated cluster on a real broker."""

import time

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.errors import CcpipeError
from ccpipe.simulate import Payload, SimulatedCluster, SimulationOptions
from ccpipe.simulate.jobs import SECOND
from ccpipe.simulate.publisher import PayloadPublisher, Times
from ccpipe.telemetry import Telemetry


async def publish(site: Site, payloads: list[Payload]) -> int:
    async with Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus:
        async with PayloadPublisher(bus, site, Subjects.of(site), run="t") as publisher:
            for payload in payloads:
                await publisher.publish(payload)
        assert publisher.messages == len(payloads)
        streams = await bus.jetstream().streams_info()
        return sum(stream.state.messages for stream in streams)


async def test_broker_has_every_message_at_end(site: Site) -> None:
    made = SimulatedCluster(
        SimulationOptions(nodes=300, metrics=2), Subjects.of(site), start=1_790_000_000 * SECOND
    )
    payloads = [payload for _ in range(10) for payload in made.sample()]
    assert await publish(site, payloads) == len(payloads)


async def test_times_are_recorded_by_sequence_in_stream(site: Site) -> None:
    """Each is between the beginning and the end."""
    subjects, times, began = Subjects.of(site), Times(), time.time_ns()
    payload = Payload(subjects.patterns(["metrics"])[0], b"x value=1\n", 1)
    async with (
        Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus,
        PayloadPublisher(bus, site, subjects, run="t", times=times) as publisher,
    ):
        for _ in range(20):
            await publisher.publish(payload)
    assert sorted(times.sequences) == list(range(1, 21))
    assert began <= min(times.published) <= max(times.published) <= time.time_ns()


async def test_rejected_message_is_error(site: Site) -> None:
    with pytest.raises(CcpipeError):
        await publish(site, [Payload("nobody.stores.this", b"x value=1\n", 1)])


async def test_core_nats_acknowledges_nothing(nats_server: NatsServer) -> None:
    site = Site(cluster="c", hostname="n", bus=Bus(servers=[nats_server.url], jetstream=False))
    assert await publish(site, [Payload("c.metrics", b"x value=1\n", 1)] * 10) == 0
