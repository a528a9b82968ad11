"""Streams and durable consumers on a real broker."""

import os
import signal
from collections.abc import AsyncIterator

import msgspec
import pytest
from nats.js import JetStreamContext, api

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.streams.jetstream import IDENTITY, consumer_of
from ccpipe.bus.nats.streams.stream import (
    DEAD_SECONDS,
    ensure_consumer,
    ensure_stream,
    refuse_others,
)
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually

METRICS = ["fox%2Etest.metrics"]


@pytest.fixture
async def jetstream(site: Site) -> AsyncIterator[JetStreamContext]:
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        yield bus.jetstream()


async def test_stream_stores_all_but_control_and_dead_letters(
    site: Site, jetstream: JetStreamContext
) -> None:
    """It is created within the configured bounds and found again; control is not stored."""
    for _ in range(2):
        name = await ensure_stream(jetstream, site.bus, Subjects.of(site), METRICS)
        assert name == "ccpipe-fox%2Etest"
    config = (await jetstream.stream_info(name)).config
    stored = "\n".join(config.subjects or [])
    assert all(subject in stored for subject in ("metrics", "events", "log", "sonar"))
    assert "control" not in stored
    assert "dead" not in stored
    assert (config.max_age, config.max_bytes) == (
        float(site.bus.stream_max_age),
        site.bus.stream_max_bytes,
    )


async def test_dead_letters_have_their_own_stream(site: Site, jetstream: JetStreamContext) -> None:
    subjects = Subjects.of(site)
    name = await ensure_stream(jetstream, site.bus, subjects, [subjects.dead()])
    config = (await jetstream.stream_info(name)).config
    assert name == "ccpipe-fox%2Etest-dead"
    assert config.subjects == [subjects.dead()]
    assert config.max_age == DEAD_SECONDS


async def test_stream_of_site_is_used_unchanged(site: Site, jetstream: JetStreamContext) -> None:
    await jetstream.add_stream(name="SITE", subjects=["fox%2Etest.>"])
    assert await ensure_stream(jetstream, site.bus, Subjects.of(site), METRICS) == "SITE"
    assert len(await jetstream.streams_info()) == 1


async def test_second_cluster_on_flat_subject_is_warned_of_unread_subjects(
    site: Site, jetstream: JetStreamContext, caplog: pytest.LogCaptureFixture
) -> None:
    """Its metrics are in the first cluster's stream, its events in its own: a bridge reads one."""
    flat = msgspec.structs.replace(site.bus, subjects={"metrics": "hpc-nats"})
    for cluster in ("fox", "owl"):
        subjects = Subjects.of(msgspec.structs.replace(site, cluster=cluster, bus=flat))
        for _ in range(2):
            patterns = subjects.patterns(["metrics", "events", "log"])
            assert await ensure_stream(jetstream, flat, subjects, patterns) == "ccpipe-fox"
    said = (
        "only the stream ccpipe-fox is read; ccpipe-owl stores owl.events.*, owl.log.*, which "
        "needs a bridge of its own (source.subjects)"
    )
    assert [record.getMessage() for record in caplog.records] == [said, said]
    for key in ("events", "log"):
        assert await ensure_stream(jetstream, flat, subjects, subjects.patterns([key])) == (
            "ccpipe-owl"
        )


async def test_missing_subjects_are_added_to_existing_stream(
    site: Site, jetstream: JetStreamContext
) -> None:
    """Its name is taken, so it is extended; it still stores its former subjects."""
    subjects = Subjects.of(site)
    name = await ensure_stream(jetstream, site.bus, subjects, METRICS)
    before = (await jetstream.stream_info(name)).config.subjects or []
    assert await ensure_stream(jetstream, site.bus, subjects, ["other.metrics"]) == name
    after = (await jetstream.stream_info(name)).config.subjects or []
    assert sorted(after) == sorted([*before, "other.metrics"])


async def test_consumer_keeps_its_identity_after_server_was_killed(
    site: Site, nats_server: NatsServer
) -> None:
    """Whenever its configuration changes, too; a recreated one has another identity."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        jetstream = bus.jetstream()
        name = await ensure_stream(jetstream, site.bus, Subjects.of(site), METRICS)
        first = await ensure_consumer(jetstream, name, "bridge", METRICS, 20)
        for turn in range(3):
            assert nats_server.pid is not None
            os.kill(nats_server.pid, signal.SIGKILL)
            await eventually(lambda before=turn: bus.connects > before)  # type: ignore[misc]
            for _ in range(2):
                again = await ensure_consumer(jetstream, name, "bridge", METRICS, 20 + turn)
                assert again == first
        await jetstream.delete_consumer(name, "bridge")
        assert await ensure_consumer(jetstream, name, "bridge", METRICS, 20) != first


async def test_consumer_of_earlier_version_keeps_its_identity(
    site: Site, jetstream: JetStreamContext
) -> None:
    """It was the time of its creation, by which files and tables identify its messages."""
    name = await ensure_stream(jetstream, site.bus, Subjects.of(site), METRICS)
    old = api.ConsumerConfig(
        durable_name="bridge", ack_policy=api.AckPolicy.EXPLICIT, filter_subjects=METRICS
    )
    await jetstream.add_consumer(name, old)
    made = await consumer_of(jetstream, name, "bridge")
    assert made is not None
    for _ in range(2):
        found = await ensure_consumer(jetstream, name, "bridge", METRICS, 20)
        assert found == f"{name} bridge {made.created:%Y-%m-%dT%H:%M:%S.%fZ}"
    metadata = (await jetstream.consumer_info(name, "bridge")).config.metadata or {}
    assert metadata[IDENTITY] == f"{made.created:%Y-%m-%dT%H:%M:%S.%fZ}"


async def test_consumer_refused_by_broker_is_configuration_error(
    site: Site, jetstream: JetStreamContext
) -> None:
    """Overlapping subjects never succeed: the error names the consumer and the broker's reason."""
    name = await ensure_stream(jetstream, site.bus, Subjects.of(site), METRICS)
    overlapping = [*METRICS, "fox%2Etest.*"]
    with pytest.raises(ConfigError, match=r"consumer 'bridge' of stream .*overlap"):
        await ensure_consumer(jetstream, name, "bridge", overlapping, 20)


async def test_consumer_of_another_owner_is_refused(
    site: Site, jetstream: JetStreamContext
) -> None:
    """Its own owner may continue, and an unused durable name is free."""
    name = await ensure_stream(jetstream, site.bus, Subjects.of(site), METRICS)
    await refuse_others(jetstream, name, "bridge")
    await ensure_consumer(jetstream, name, "bridge", METRICS, 20, owner="n1 pid 1")
    await refuse_others(jetstream, name, "bridge")  # without a reader
    await refuse_others(jetstream, name, "bridge", "n1 pid 1")
    with pytest.raises(ConfigError, match="in use by n1 pid 1"):
        await refuse_others(jetstream, name, "bridge", "n2 pid 2")


async def test_silent_broker_is_unavailable(site: Site) -> None:
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        jetstream = bus.jetstream()
    with pytest.raises(UnavailableError, match="looking for a stream"):
        await ensure_stream(jetstream, site.bus, Subjects.of(site), METRICS)


async def test_consumer_with_other_ack_policy_is_configuration_error(
    jetstream: JetStreamContext,
) -> None:
    """An existing consumer with another acknowledgement policy: no retry helps."""
    await jetstream.add_stream(name="s", subjects=["other.metrics"])
    theirs = api.ConsumerConfig(durable_name="bridge", ack_policy=api.AckPolicy.NONE)
    await jetstream.add_consumer("s", theirs)
    with pytest.raises(ConfigError, match="consumer 'bridge' of stream s"):
        await ensure_consumer(jetstream, "s", "bridge", ["other.metrics"], 20)
