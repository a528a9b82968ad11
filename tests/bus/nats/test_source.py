"""The source: streams, plain subscriptions without one, and records of any type."""

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Bus, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import metric
from ccpipe.telemetry import Telemetry
from tests.bus.codecs.readings import SUBJECT, Readings, ReadingsCodec
from tests.bus.nats.reader import NOW, metrics, source
from tests.conftest import eventually
from tests.reading import Reader


async def test_a_plain_subscription_hears_without_jetstream(
    site: Site, nats_server: NatsServer
) -> None:
    """Sites without JetStream are served too: what is said while we listen is heard."""
    core = Site(cluster="c", bus=Bus(servers=[nats_server.url], jetstream=False))
    listening = source(core, durable="")
    async with NatsSink(site=core, telemetry=Telemetry()) as sink, Reader(listening) as reader:
        await listening.bus.flush()
        await sink.write(to_lines(metrics(3, start=1_760_000_000)))
        # The tag says fox.test, so that is where it travels: our own cluster hears nothing.
        await sink.write(
            to_lines([metric("m", 9.0, time=NOW, tags={"hostname": "n1", "type": "node"})])
        )
        await eventually(lambda: len(reader.values) == 1)
    assert reader.values == [9.0]


async def test_source_reads_a_new_type_of_records_from_given_subjects(site: Site) -> None:
    """A codec of somebody else's needs nothing in ccpipe but its subjects."""
    codec = ReadingsCodec()
    reader = source(site, codec=codec, subjects=[SUBJECT])
    async with (
        Reader(reader) as read,
        NatsSink(site=site, telemetry=Telemetry(), codec=codec) as to,
    ):
        await eventually(lambda: bool(reader.stream))
        await to.write(Readings([1, 2, 3]))
        await eventually(
            lambda: sorted(each for b in read.batches for each in b.records) == [1, 2, 3]
        )


def test_source_refuses_a_new_type_of_records_without_subjects(site: Site) -> None:
    """Only the records that ccpipe knows have default subjects, and an identity by subject."""
    with pytest.raises(ConfigError, match="subjects: missing; readings have no default subjects"):
        source(site, codec=ReadingsCodec())
    with pytest.raises(ConfigError, match="identity: .* not for readings"):
        source(site, codec=ReadingsCodec(), subjects=[SUBJECT], identity="subject")
