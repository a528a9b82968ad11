"""From a real broker into the model of ``top``."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.bus.nats.publisher import Publisher
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.top.feed import ModelFeed
from ccpipe.cli.top.model import Model
from ccpipe.config import Bus, Site
from ccpipe.telemetry import Telemetry
from tests.cli.top.test_model import NODE, job_event
from tests.conftest import eventually


@contextlib.asynccontextmanager
async def fed(site: Site, *stored: Outgoing) -> AsyncIterator[tuple[Model, Connection]]:
    """Open a feed that found messages already stored."""
    model = Model()
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        if stored:
            await Publisher(bus, site.bus, Subjects.of(site)).publish(stored)
        task = asyncio.create_task(ModelFeed(site, model).run())
        try:
            yield model, bus
        finally:
            task.cancel()
            await asyncio.wait({task})


async def said(bus: Connection, model: Model, subject: str, payload: bytes) -> None:
    """Publish until the model has something: nobody knows when a feed is listening."""
    before = (len(model.nodes), len(model.errors))
    async with asyncio.timeout(60):
        while (len(model.nodes), len(model.errors)) == before:
            await bus.publish(subject, payload)
            await asyncio.sleep(0.05)


async def test_jobs_that_run_already_are_known_from_what_is_stored(site: Site) -> None:
    """Their starts may be long ago."""
    start = job_event("start_job", resources=[{"hostname": "e1"}], startTime=1740027951)
    async with fed(site, Outgoing.of("fox%2Etest.events.job", start)) as (model, _):
        await eventually(lambda: len(model.jobs) == 1)


async def test_lines_of_all_clusters_come_into_the_model(site: Site) -> None:
    """Whatever their subjects say."""
    async with fed(site) as (model, bus):
        await said(bus, model, "fritz.metrics", NODE)
        assert {node.name for node in model.nodes.values()} == {"e1", "e2"}


async def test_a_dead_letter_is_an_error_of_its_cluster(site: Site) -> None:
    """With its reason; its bytes are not taken for lines."""
    async with fed(site) as (model, bus):
        await said(bus, model, "fritz.dead", b"m,hostname=x value=1 1740027951\n")
        assert not model.nodes
        assert any("no reason given" in str(error) for error in model.errors)


async def test_overlapping_subjects_are_counted_once(nats_server: object, site: Site) -> None:
    """A site may have all kinds on one subject: each message counts once."""
    flat = Site(
        cluster=site.cluster,
        bus=Bus(servers=site.bus.servers, subjects={"metrics": "all", "events": "all"}),
    )
    async with fed(flat) as (model, bus):
        await said(bus, model, "all", NODE)
        await bus.flush()
        lines = len(NODE.splitlines())
        assert sum(node.lines for node in model.nodes.values()) % lines == 0
