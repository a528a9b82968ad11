"""What JetStream has stored: which streams are read, and what the starts of jobs say."""

import json
from collections.abc import Sequence

import pytest

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.bus.nats.publisher import Publisher
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.tail.jobs import JobNodes
from ccpipe.cli.tail.options import Options
from ccpipe.cli.tail.stored import StoredReader
from ccpipe.config import Site
from ccpipe.telemetry import Telemetry

METRICS, EVENTS = "fox%2Etest.metrics", "fox%2Etest.events.job"
START = json.dumps(json.dumps({"jobId": 7, "resources": [{"hostname": "e3"}]}))
EVENT = f"job,cluster=fox.test,function=start_job,hostname=a event={START} 1740027951\n".encode()


class Reader:
    """Keeps what is handed over."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def __call__(self, _: Sequence[str], delivery: Delivery) -> None:
        """Keep a payload."""
        self.payloads.append(delivery.payload)


async def test_only_what_no_stream_stores_is_left_to_subscribe_to(site: Site) -> None:
    """What a stream stores is read from it, and is not received a second time."""
    reader = Reader()
    async with Connection(site.bus, name="t", telemetry=Telemetry(), forever=False) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing.of(METRICS, b"m value=1 1\n")])
        stored = StoredReader(bus, site, Options(all_=True, follow=False), reader, None)
        assert await stored.begin([METRICS, "nowhere.>"]) == ["nowhere.>"]
        await stored.run()
    assert reader.payloads == [b"m value=1 1\n"]


async def test_without_a_history_everything_is_subscribed_to(site: Site) -> None:
    """And what is stored is not read."""
    reader = Reader()
    async with Connection(site.bus, name="t", telemetry=Telemetry(), forever=False) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing.of(METRICS, b"m value=1 1\n")])
        stored = StoredReader(bus, site, Options(), reader, None)
        assert await stored.begin([METRICS]) == [METRICS]
    assert reader.payloads == []


async def test_starts_of_jobs_are_looked_for_first(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job may have started long ago; bad events do not disturb; one that is unknown is said."""
    async with Connection(site.bus, name="t", telemetry=Telemetry(), forever=False) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing.of(EVENTS, b"\xff broken"), Outgoing.of(EVENTS, EVENT)])
        jobs = JobNodes([7])
        await StoredReader(bus, site, Options(job=[7]), Reader(), jobs).begin([METRICS])
        assert jobs.nodes == {"e3"}
        assert capsys.readouterr().err == ""
        await StoredReader(bus, site, Options(job=[8]), Reader(), JobNodes([8])).begin([METRICS])
        assert "no start of job 8 was found" in capsys.readouterr().err
