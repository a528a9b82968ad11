"""A sink on the real server, for all tests of this folder."""

from collections.abc import AsyncIterator

import pytest

from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.telemetry import Telemetry


@pytest.fixture
async def sink(site: Site) -> AsyncIterator[NatsSink]:
    """Open a sink on the real server."""
    async with NatsSink(site=site, telemetry=Telemetry()) as opened:
        yield opened
