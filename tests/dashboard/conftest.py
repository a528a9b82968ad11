"""A dashboard on a real broker, and a browser to look at it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.config import Site
from ccpipe.dashboard.feed import DashboardFeed
from ccpipe.dashboard.lake import Lake
from ccpipe.dashboard.server import DashboardServer
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually, program
from tests.dashboard.browser import Page, chromium


@dataclass
class Live:
    """A running dashboard and a connection to publish with."""

    feed: DashboardFeed
    server: DashboardServer
    bus: Connection
    site: Site
    subject: str = field(default="fox%2Etest.metrics")

    async def say(self, subject: str, *lines: str) -> None:
        """Publish lines on a subject below the cluster's."""
        payload = "".join(f"{line}\n" for line in lines).encode()
        await self.bus.publish(f"fox%2Etest.{subject}", payload)
        await self.bus.flush()


@pytest.fixture
async def live(site: Site, tmp_path: Path) -> AsyncIterator[Live]:
    """Start a dashboard that listens to the real broker."""
    async with AsyncExitStack() as stack:
        telemetry = Telemetry()
        bus = await stack.enter_async_context(
            Connection(site.bus, name="test", telemetry=telemetry)
        )
        feed = await stack.enter_async_context(DashboardFeed(site, telemetry))
        lake = Lake(tmp_path / "lake")
        server = DashboardServer(feed, listen="127.0.0.1:0", lake=lake)
        await stack.enter_async_context(server)
        await eventually(lambda: feed.is_live, 60)
        yield Live(feed, server, bus, site)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Start a real Chromium with an empty page."""
    async with chromium(program("chromium", "chromium")) as page:
        await page.size(1280, 800)
        yield page
