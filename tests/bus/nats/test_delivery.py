"""End to end: from the sink through a real broker to the source."""

import asyncio
import os
import signal

import pytest

from ccpipe.bus.nats.server import Server
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Message, event, log
from tests.bus.nats.reader import NOW, TAGS, Reader, metrics, source
from tests.conftest import eventually


async def test_what_is_written_before_a_bridge_exists_reaches_it(
    site: Site, sink: NatsSink
) -> None:
    """The stream keeps messages for bridges that come later, in order."""
    await sink.write(metrics(1200))
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == 1200)
    assert reader.values == [float(i) for i in range(1200)]
    assert {batch.origin for batch in reader.batches} == {"fox%2Etest.metrics"}


async def test_events_metrics_and_logs_share_the_stream(site: Site, sink: NatsSink) -> None:
    """One durable consumer reads all categories, each from its own subject."""
    records = [
        *metrics(1),
        event("job", "start_job", '{"jobId": 1}', time=NOW, tags=TAGS),
        log("ccb", "info", 'said "x"\n', time=NOW + 1, tags=TAGS),
    ]
    await sink.write(records)
    async with Reader(source(site)) as reader:
        await eventually(lambda: len(reader.values) == len(records))
    read = [record for batch in reader.batches for record in batch.records]
    assert sorted(encode(read, precision="ns").splitlines()) == sorted(
        encode(records, precision="ns").splitlines()
    )
    assert len({batch.origin for batch in reader.batches}) == 3


async def test_a_killed_server_costs_nothing(
    nats_server: Server, site: Site, sink: NatsSink
) -> None:
    """The sink says it is unavailable until the server is back; source and sink then go on."""
    async with Reader(source(site)) as reader:
        await sink.write(metrics(3))
        await eventually(lambda: len(reader.values) == 3)
        assert nats_server.pid is not None
        os.kill(nats_server.pid, signal.SIGKILL)
        await _insist(sink, metrics(3, start=1_750_000_000))
        await eventually(lambda: len(reader.values) >= 6)
    assert set(reader.values) == {0.0, 1.0, 2.0}
    assert len(reader.values) == 6


async def _insist(sink: NatsSink, records: list[Message]) -> None:
    for _ in range(100):
        try:
            await sink.write(records)
        except UnavailableError:
            await asyncio.sleep(0.1)
        else:
            return
    pytest.fail("the sink never became available again")
