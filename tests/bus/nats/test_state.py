"""The broker's streams and their durable consumers."""

from nats.js import api

from ccpipe.bus.nats.state import streams_and_consumers
from ccpipe.config import Site
from tests.bus.nats.conftest import connected


async def test_durable_consumers_of_all_streams_are_found(site: Site) -> None:
    """Those without a name are readers that come and go: no bridge."""
    async with connected(site.bus) as bus:
        assert await streams_and_consumers(bus) == ([], [])
        jetstream = bus.jetstream()
        for name in ("one", "two"):
            await jetstream.add_stream(api.StreamConfig(name=name, subjects=[name]))
        await jetstream.add_consumer("one", api.ConsumerConfig(durable_name="bridge"))
        await jetstream.add_consumer("one", api.ConsumerConfig(inactive_threshold=60))
        streams, consumers = await streams_and_consumers(bus)
    assert sorted(str(stream.config.name) for stream in streams) == ["one", "two"]
    assert [(each.stream_name, each.name) for each in consumers] == [("one", "bridge")]
