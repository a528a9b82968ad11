"""A simulated cluster on a real broker."""

import time
from array import array

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.publisher import BATCH
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.errors import CcpipeError
from ccpipe.simulate import Payload, SimulatedCluster, SimulationOptions
from ccpipe.simulate.jobs import SECOND
from ccpipe.simulate.publisher import PayloadPublisher
from ccpipe.telemetry import Telemetry


async def publish(site: Site, payloads: list[Payload]) -> int:
    async with Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus:
        async with PayloadPublisher(bus, site, Subjects.of(site), run="t") as publisher:
            await publisher.publish(payloads)
        assert publisher.messages == len(payloads)
        streams = await bus.jetstream().streams_info()
        return sum(stream.state.messages for stream in streams)


async def test_broker_has_every_message_at_end(site: Site) -> None:
    made = SimulatedCluster(
        SimulationOptions(nodes=300, metrics=2), Subjects.of(site), start=1_790_000_000 * SECOND
    )
    payloads = [payload for _ in range(10) for payload in made.sample()]
    assert await publish(site, payloads) == len(payloads)


async def test_broker_stores_messages_in_their_order(site: Site) -> None:
    """Whatever their subjects, in batches of any size; the time of each is recorded."""
    subjects, times, began = Subjects.of(site), array("q"), time.time_ns()
    subject = subjects.patterns(["metrics"])[0]
    payloads = [Payload(subject, b"x value=%d\n" % n, 1) for n in range(BATCH + 20)]
    async with Connection(site.bus, name="test", telemetry=Telemetry(), forever=False) as bus:
        async with PayloadPublisher(bus, site, subjects, run="t", times=times) as publisher:
            for count in (0, 1, 2, BATCH + 17):
                await publisher.publish(payloads[:count])
                payloads = payloads[count:]
        stream = (await bus.jetstream().streams_info())[0].config.name or ""
        for number in (1, 2, 4, BATCH + 20):
            stored = await bus.jetstream().get_msg(stream, number)
            assert stored.data == b"x value=%d\n" % (number - 1)
    assert len(times) == BATCH + 20
    assert list(times) == sorted(times)
    assert began <= times[0] <= times[-1] <= time.time_ns()


async def test_rejected_message_is_error(site: Site) -> None:
    """Of a batch that was sent already, at the latest at the end."""
    subject = Subjects.of(site).patterns(["metrics"])[0]
    with pytest.raises(CcpipeError, match="max_payload"):
        await publish(site, [Payload(subject, bytes(2**20 + 1), 1)])


async def test_core_nats_acknowledges_nothing(nats_server: NatsServer) -> None:
    site = Site(cluster="c", hostname="n", bus=Bus(servers=[nats_server.url], jetstream=False))
    assert await publish(site, [Payload("c.metrics", b"x value=1\n", 1)] * 10) == 0
