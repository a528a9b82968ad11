"""A live state on a real broker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.live.feed import LiveFeed
from ccpipe.live.state import LiveState
from ccpipe.telemetry import Telemetry


@dataclass
class Live:
    """A running feed and a connection to publish with."""

    feed: LiveFeed
    bus: Connection
    site: Site

    @property
    def state(self) -> LiveState:
        return self.feed.state

    async def say(self, subject: str, *lines: str) -> None:
        payload = "".join(f"{line}\n" for line in lines).encode()
        await self.bus.publish(f"fox%2Etest.{subject}", payload)
        await self.bus.flush()


@contextlib.asynccontextmanager
async def fed(feed: LiveFeed) -> AsyncIterator[Live]:
    """Open a feed, and wait until it is subscribed and has read what was stored."""
    async with (
        Connection(feed.site.bus, name="test", telemetry=Telemetry()) as bus,
        feed,
        asyncio.timeout(60) as limit,
    ):
        [subject, *_] = Subjects.of(feed.site).patterns(["metrics"])
        while not feed.state.health.payloads:
            await bus.publish(subject, b"# a comment is no line\n")
            await asyncio.sleep(0.05)
        limit.reschedule(None)
        yield Live(feed, bus, feed.site)


@pytest.fixture
async def live(site: Site) -> AsyncIterator[Live]:
    async with fed(LiveFeed(site, Telemetry(), name="dashboard")) as live:
        yield live
