"""A dashboard on a real broker, and a browser to look at it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccpipe.config import Site
from ccpipe.dashboard.server import DashboardServer
from ccpipe.history.open import open_history
from ccpipe.live.feed import LiveFeed, averaged_metrics
from ccpipe.telemetry import Telemetry
from tests.conftest import program
from tests.dashboard.browser import Page, chromium
from tests.live.conftest import Live, fed


@dataclass
class Served(Live):
    """A running dashboard, with Parquet files, and a connection to publish with."""

    server: DashboardServer
    parquet: Path


@pytest.fixture
async def live(site: Site, tmp_path: Path) -> AsyncIterator[Served]:
    history = open_history(str(tmp_path / "parquet"), averaged_metrics)
    async with (
        fed(LiveFeed(site, Telemetry(), name="dashboard")) as live,
        DashboardServer(live.feed, listen="127.0.0.1:0", history=history) as server,
    ):
        yield Served(live.feed, live.bus, site, server, tmp_path / "parquet")


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with chromium(program("chromium", "chromium")) as page:
        await page.size(1280, 800)
        yield page
