"""A leaf node with a JetStream domain of its own, and a hub whose stream gets the leaf's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.streams.reconcile import apply, check_streams, survey
from ccpipe.config import Bus, Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.bus.nats.reader import metrics, source
from tests.conftest import eventually, free_port
from tests.reading import Reader
from tests.servers.nats.daemon import nats_daemon

JETSTREAM = 'server_name: {name}\njetstream {{ domain: {name}, store_dir: "{directory}/{name}" }}\n'


def at(port: int, **bus: object) -> Site:
    servers = [f"nats://127.0.0.1:{port}"]
    return Site(
        cluster="fox.test", hostname="n1", bus=msgspec.convert({"servers": servers, **bus}, Bus)
    )


@contextlib.asynccontextmanager
async def hub_server(directory: Path, port: int, leaves: int) -> AsyncIterator[int]:
    """Run the hub, to which leaf nodes connect."""
    configuration = JETSTREAM.format(name="hub", directory=directory)
    configuration += f'leafnodes {{ listen: "127.0.0.1:{leaves}" }}\n'
    async with nats_daemon(directory, configuration, port) as opened:
        yield opened


@contextlib.asynccontextmanager
async def leaf_server(directory: Path, name: str, leaves: int) -> AsyncIterator[int]:
    """Run a leaf node; the hub need not be there."""
    remote = (
        f'leafnodes {{ reconnect: "1s", remotes: [{{ url: "nats-leaf://127.0.0.1:{leaves}" }}] }}\n'
    )
    configuration = JETSTREAM.format(name=name, directory=directory) + remote
    async with nats_daemon(directory, configuration) as opened:
        yield opened


async def until_reachable(port: int) -> None:
    """Wait until the hub sees the leaf node: a stream that finds none tries again much later."""
    site = at(port, domain="rack1")
    async with connected(site.bus) as bus, asyncio.timeout(60):
        while True:
            try:
                await survey(bus, site)
            except UnavailableError:
                await asyncio.sleep(0.2)
            else:
                return


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "upstream",
    [
        {"stream_sources": ["rack1"]},
        {"stream_sources": ["rack1"], "stream_partitions": 4},
        {"stream_mirror": "rack1/ccpipe-fox%2Etest"},
    ],
    ids=["sources", "partitions", "mirror"],
)
async def test_leaf_node_stores_while_hub_is_down(
    tmp_path: Path, upstream: dict[str, object]
) -> None:
    """Messages published at the leaf until then reach a bridge at the hub, once."""
    port, leaves = free_port(), free_port()
    new = {float(n) for n in range(700, 1000)}
    async with (
        leaf_server(tmp_path, "rack1", leaves) as leaf,
        NatsSink(site=at(leaf), telemetry=Telemetry()) as sink,
    ):
        await sink.write(to_lines(metrics(700)))
        async with hub_server(tmp_path, port, leaves):
            wanted = at(port, **upstream)
            await until_reachable(port)
            async with connected(wanted.bus) as bus:
                await apply(bus, wanted, await survey(bus, wanted), drop=False)
                await check_streams(bus, wanted)
            async with Reader(source(wanted)) as reader:
                await eventually(lambda: len(reader.values) == 700)
        await sink.write(to_lines(metrics(1000)[700:]))
        async with hub_server(tmp_path, port, leaves), Reader(source(wanted)) as again:
            await eventually(lambda: new <= set(again.values))
    assert sorted(map(str, reader.values)) == sorted(str(float(n)) for n in range(700))
    assert reader.origins == {"fox%2Etest.metrics"}


async def test_program_at_hub_uses_leafs_domain(tmp_path: Path) -> None:
    """With `domain` the stream is created, and read, at the leaf."""
    port, leaves = free_port(), free_port()
    async with hub_server(tmp_path, port, leaves), leaf_server(tmp_path, "rack1", leaves) as leaf:
        async with NatsSink(site=at(leaf), telemetry=Telemetry()) as sink:
            await sink.write(to_lines(metrics(10)))
            async with Reader(source(at(port, domain="rack1"))) as reader:
                await eventually(lambda: len(reader.values) == 10)
        async with connected(at(port).bus) as bus:
            assert not (await survey(bus, at(port))).streams
