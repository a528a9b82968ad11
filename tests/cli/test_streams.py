"""``ccpipe streams``: the real command on a real broker."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.nats.streams.reconcile import apply, survey
from ccpipe.bus.nats.streams.stream import ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.cli.command import Ended, ccpipe


async def run(
    *arguments: object, server: NatsServer, size: str = "1GiB", compression: str = "none"
) -> Ended:
    where = ("--server", server.url, "--cluster", "fritz")
    return await asyncio.to_thread(
        lambda: ccpipe(
            *arguments, *where,
            CCPIPE_BUS__STREAM_MAX_BYTES=size, CCPIPE_BUS__STREAM_COMPRESSION=compression,
        )
    )  # fmt: skip


async def test_streams_show_prints_limits_of_applied_streams(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """And how long a bridge may be down without losing messages."""
    made = await run("streams", "apply", "-o", "json", server=nats_server)
    assert made.code == 0
    assert {each["now"] for each in json.loads(made.out)} == {"absent"}
    shown = await run("streams", "show", server=nats_server)
    assert "1 GiB" in shown.out
    assert "fritz.metrics" in shown.out
    assert "24 h" in shown.out
    assert "one replica" in shown.err
    again = await run("streams", "apply", "--dry-run", server=nats_server)
    assert (again.code, again.out) == (0, "")
    assert "everything is as configured" in again.err


async def test_streams_apply_changes_limits(nats_server: NatsServer) -> None:
    """``validate`` reports them until they are applied; a dry run changes nothing."""
    site = Site(cluster="fritz", bus=Bus(servers=[nats_server.url]))
    async with connected(site.bus) as bus:
        await ensure_stream(bus.jetstream(), site.bus, Subjects.of(site), ["fritz.metrics"])
    shown = await run("streams", "show", "-o", "json", server=nats_server, size="5GiB")
    report = json.loads(shown.out)
    assert report["streams"][0]["headroom_seconds"] == 86400
    [size, _] = report["differences"]
    assert (size["now"], size["wanted"]) == ("1GiB", "5GiB")
    dry = await run("streams", "apply", "--dry-run", server=nats_server, size="5GiB")
    assert "5GiB" in dry.out
    assert (await run("streams", "apply", server=nats_server, size="5GiB")).code == 0
    after = await run("streams", "show", "-o", "json", server=nats_server, size="5GiB")
    assert json.loads(after.out)["differences"] == []


async def test_streams_apply_notes_that_compression_needs_restart(nats_server: NatsServer) -> None:
    created = await run("streams", "apply", server=nats_server)
    assert "restarted" not in created.err
    changed = await run("streams", "apply", server=nats_server, compression="s2")
    assert "compression of a stream when it is restarted" in changed.err
    again = await run("streams", "apply", server=nats_server, compression="s2")
    assert "everything is as configured" in again.err


async def test_streams_show_prints_reader_of_each_partition(nats_server: NatsServer) -> None:
    """The process, with the number of partitions; a subject shared by all nodes is named."""
    bus = Bus(servers=[nats_server.url], stream_partitions=2)
    site = Site(cluster="fritz", hostname="h1", bus=bus)
    async with connected(site.bus) as opened:
        await apply(opened, site, await survey(opened, site), drop=False)
        reader = NatsSource(site=site, telemetry=Telemetry(), durable="d", subjects=["metrics"])
        async with reader:
            await reader.start()
            owners: dict[str, str] = {}
            async with asyncio.timeout(60):
                while len(owners) < 2:
                    owners = (await survey(opened, site)).owners
                    await asyncio.sleep(0.05)
            shown = await run("streams", "show", server=nats_server)
            report = json.loads(
                (await run("streams", "show", "-o", "json", server=nats_server)).out
            )
    assert shown.out.count(f"h1 pid {os.getpid()}") == 2
    assert "PARTITIONS" in shown.out
    assert "put {hostname} into bus.subjects.metrics" in shown.err
    [stream] = [each for each in report["streams"] if each["name"] == "ccpipe-fritz"]
    assert stream["partitions"] == 2
    owned = {each["name"]: each["owner"] for each in report["consumers"]}
    assert {name: owned[name] for name in owners} == owners


async def test_validate_rejects_configuration_that_differs_from_stream(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """With exit code 78."""
    site = Site(cluster="fritz", bus=Bus(servers=[nats_server.url]))
    file = tmp_path / "c.toml"
    text = f'cluster = "fritz"\n[bus]\nservers = ["{nats_server.url}"]\n'
    file.write_text(text)
    async with connected(site.bus) as bus:
        await ensure_stream(bus.jetstream(), site.bus, Subjects.of(site), ["fritz.metrics"])
    assert (await asyncio.to_thread(ccpipe, "validate", file)).code == 0
    file.write_text(text + 'stream_max_bytes = "5GiB"\n')
    bad = await asyncio.to_thread(ccpipe, "validate", file)
    assert bad.code == 78
    assert "max_bytes is 1GiB, not 5GiB" in bad.out
