"""The shipped recipes of Slurm, replaying captured snapshots onto a real bus."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Site
from ccpipe.telemetry import Telemetry
from tests.bridges.recipes import changed, completed
from tests.paths import TEST_DATA

SNAPSHOTS = TEST_DATA / "slurm" / "snapshots"
POLLS = 14
CHANGES = 12
"""Polls with jobs that have changed."""
EVENTS = 51


async def run_bridge(name: str, directory: Path, server: NatsServer, site: Site) -> None:
    replay = f'use = "slurm"\nreplay_dir = "{SNAPSHOTS}"\nreplay_speed = 0\n#'
    recipe = changed(name, directory, {'use = "slurm"': replay})
    env = {"CCPIPE_BUS__SERVERS": server.url, "CCPIPE_CLUSTER": site.cluster}
    await completed("bridge", recipe, **env)


async def collect(source: NatsSource, count: int) -> list[Any]:
    found: list[Any] = []
    async with source, asyncio.timeout(60):
        async for batch in source.batches():
            assert not batch.records.rejected
            found += batch.records
            assert batch.ack
            await batch.ack()
            if len(found) >= count:
                break
    return found


async def test_slurm_recipe_publishes_envelopes(
    tmp_path: Path, nats_server: NatsServer, site: Site
) -> None:
    """One envelope of the cluster for each poll, one of jobs for each with changes."""
    source = NatsSource(site=site, telemetry=Telemetry(), codec=SonarCodec(), durable="test")
    collecting = asyncio.create_task(collect(source, POLLS + CHANGES))
    await run_bridge("slurm.toml", tmp_path, nats_server, site)
    kinds = Counter(envelope.data.type for envelope in await collecting)
    assert kinds["cluster"] == POLLS
    assert kinds["job"] == CHANGES


async def test_slurm_recipe_publishes_events(
    tmp_path: Path, nats_server: NatsServer, site: Site
) -> None:
    """Starts, stops, the states of nodes, and pending jobs."""
    source = NatsSource(site=site, telemetry=Telemetry(), subjects=["events"], durable="test")
    collecting = asyncio.create_task(collect(source, EVENTS))
    await run_bridge("slurm-jobs.toml", tmp_path, nats_server, site)
    functions = Counter(message.tags["function"] for message in await collecting)
    assert functions["nodestate"] == POLLS
    assert functions["start_job"] == functions["stop_job"] > 0
    assert functions["jobpending"] > 0
