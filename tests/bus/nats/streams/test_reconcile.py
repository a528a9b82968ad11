"""Streams compared with the configuration, on a real broker."""

import os
import signal

import msgspec
import pytest
from nats.js import JetStreamContext

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.streams.reconcile import apply, check_streams, survey
from ccpipe.bus.nats.streams.stream import ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Duration, Site, Size
from ccpipe.errors import ConfigError
from tests.bus.nats.conftest import connected
from tests.conftest import eventually

NAME = "ccpipe-fox%2Etest"


def larger(site: Site) -> Site:
    bus = msgspec.structs.replace(
        site.bus,
        stream_max_bytes=Size(5 * 2**30),
        stream_max_age=Duration(7200),
        stream_discard="new",
    )
    return msgspec.structs.replace(site, bus=bus)


async def restart(server: NatsServer, bus: Connection) -> None:
    connects = bus.connects
    assert server.pid is not None
    os.kill(server.pid, signal.SIGTERM)
    await eventually(lambda: bus.connects > connects)


def size_on_disk(server: NatsServer) -> int:
    return sum(path.stat().st_size for path in server.directory.glob("**/*.blk"))


async def make(jetstream: JetStreamContext, site: Site) -> None:
    subjects = Subjects.of(site)
    await ensure_stream(jetstream, site.bus, subjects, ["fox%2Etest.metrics"])
    await ensure_stream(jetstream, site.bus, subjects, [subjects.dead()])


async def test_stream_created_by_bridge_matches_configuration(site: Site) -> None:
    """There is nothing to change or report, also before a stream exists."""
    async with connected(site.bus) as bus:
        await check_streams(bus, site)
        assert {each.now for each in (await survey(bus, site)).differences} == {"absent"}
        await make(bus.jetstream(), site)
        found = await survey(bus, site)
        assert [stream.name for stream in found.streams] == [NAME, f"{NAME}-dead"]
        assert found.differences == []
        await check_streams(bus, site)


async def test_stream_of_older_server_allows_batches_when_applied(site: Site) -> None:
    """It was made before nats-server 2.14; its messages stay."""
    async with connected(site.bus) as bus:
        await make(bus.jetstream(), site)
        await bus.jetstream().publish("fox%2Etest.metrics", b"kept")
        config = (await bus.jetstream().stream_info(NAME)).config
        assert config.allow_batched
        await bus.jetstream().update_stream(config.evolve(allow_batched=None))
        with pytest.raises(ConfigError, match=f"{NAME}: allow_batched is off, not on"):
            await check_streams(bus, site)
        await apply(bus, site, await survey(bus, site), drop=False)
        info = await bus.jetstream().stream_info(NAME)
        assert (info.config.allow_batched, info.state.messages) == (True, 1)


async def test_changed_limits_are_reported_and_applied(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """A starting bridge and ``validate`` report them; ``apply`` changes the stream."""
    async with connected(site.bus) as bus:
        await make(bus.jetstream(), site)
        await bus.jetstream().publish("fox%2Etest.metrics", b"kept")
        wanted = larger(site)
        await make(bus.jetstream(), wanted)
        assert "max_bytes is 1GiB, not 5GiB (bus.stream_max_bytes)" in caplog.text
        with pytest.raises(ConfigError, match="max_age is 1d, not 2h"):
            await check_streams(bus, wanted)
        await apply(bus, wanted, await survey(bus, wanted), drop=False)
        await check_streams(bus, wanted)
        info = await bus.jetstream().stream_info(NAME)
        assert (info.config.max_bytes, info.config.max_age) == (5 * 2**30, 7200)
        assert info.config.discard == "new"
        assert info.state.messages == 1
        dead = (await bus.jetstream().stream_info(f"{NAME}-dead")).config
        assert (dead.discard, dead.max_age) == ("old", 30 * 86400)


async def test_apply_compresses_existing_stream(site: Site, nats_server: NatsServer) -> None:
    """Later blocks take less space on disk, once the server has been restarted.

    nats-server 2.15 accepts the change, and applies it when it opens the stream. Messages that were
    stored before can be read.
    """
    compressed = msgspec.structs.replace(site.bus, stream_compression="s2")
    wanted = msgspec.structs.replace(site, bus=compressed)
    payload = b"cpu_load,hostname=n1,type=node value=0.5 1740052800\n" * 15_000
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await make(jetstream, site)
        await jetstream.publish("fox%2Etest.metrics", payload)
        found = await survey(bus, wanted)
        assert {(d.setting, d.now, d.wanted) for d in found.differences} == {
            ("compression", "none", "s2")
        }
        await apply(bus, wanted, found, drop=False)
        await check_streams(bus, wanted)
        await restart(nats_server, bus)
        for _ in range(40):
            await jetstream.publish("fox%2Etest.metrics", payload)
        state = (await jetstream.stream_info(NAME)).state
        assert (state.messages, state.bytes > 41 * len(payload)) == (41, True)
        await eventually(lambda: size_on_disk(nats_server) < 0.6 * state.bytes)
        assert (await jetstream.get_msg(NAME, 1)).data == payload
        assert (await jetstream.get_msg(NAME, 5)).data == payload


async def test_apply_creates_streams_and_adds_subjects(site: Site) -> None:
    """Before the first bridge runs, and after a site's subjects have changed."""
    async with connected(site.bus) as bus:
        await apply(bus, site, await survey(bus, site), drop=False)
        flat = msgspec.structs.replace(site.bus, subjects={"metrics": "hpc-nats"})
        changed = msgspec.structs.replace(site, bus=flat)
        with pytest.raises(ConfigError, match="hpc-nats"):
            await check_streams(bus, changed)
        await apply(bus, changed, await survey(bus, changed), drop=False)
        await check_streams(bus, changed)
        subjects = (await bus.jetstream().stream_info(NAME)).config.subjects or []
        assert {"hpc-nats", "fox%2Etest.metrics"} <= set(subjects)


async def test_apply_refuses_limit_that_deletes_messages(site: Site) -> None:
    """A limit below the stored size is refused unless ``drop`` is given."""
    async with connected(site.bus) as bus:
        await make(bus.jetstream(), site)
        for number in range(20):
            await bus.jetstream().publish("fox%2Etest.metrics", b"%d" % number * 1000)
        small = msgspec.structs.replace(site.bus, stream_max_bytes=Size(8192))
        wanted = msgspec.structs.replace(site, bus=small)
        found = await survey(bus, wanted)
        with pytest.raises(ConfigError, match="--drop"):
            await apply(bus, wanted, found, drop=False)
        await apply(bus, wanted, found, drop=True)
        assert (await bus.jetstream().stream_info(NAME)).state.bytes <= 8192


async def test_bridge_creates_stream_for_subjects_sites_stream_lacks(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """It is used as it is; the other subjects get a stream of ours, and the bridge logs that."""
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await jetstream.add_stream(name="SITE", subjects=["fox%2Etest.metrics"])
        subjects = Subjects.of(site)
        patterns = subjects.patterns(["metrics", "events", "log"])
        assert await ensure_stream(jetstream, site.bus, subjects, patterns) == "SITE"
        assert (
            f"only the stream SITE is read; {NAME} stores fox%2Etest.metrics.*, fox%2Etest.events.*"
        ) in caplog.text
        await jetstream.publish("fox%2Etest.events.job", b"kept")
        assert (await jetstream.stream_info(NAME)).state.messages == 1
        found = await survey(bus, site)
        assert [each.stream for each in found.differences] == [f"{NAME}-dead"]


async def test_partly_stored_subjects_are_refused(site: Site) -> None:
    """No second stream may store the rest: the error names the subjects and the stream."""
    async with connected(site.bus) as bus:
        await bus.jetstream().add_stream(name="JOBS", subjects=["fox%2Etest.events.job"])
        found = await survey(bus, site)
        [overlap] = found.overlaps
        assert overlap.startswith("fox%2Etest.events.* is stored in part only")
        assert overlap.endswith("the stream JOBS stores fox%2Etest.events.job")
        with pytest.raises(ConfigError, match="in part only"):
            await check_streams(bus, site)
        await apply(bus, site, found, drop=False)
        stored = (await bus.jetstream().stream_info(NAME)).config.subjects or []
        assert "fox%2Etest.metrics" in stored
        assert "fox%2Etest.events.*" not in stored
