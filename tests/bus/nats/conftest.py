"""The real server, for all tests of this directory."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Bus, Site
from ccpipe.telemetry import Telemetry


@contextlib.asynccontextmanager
async def connected(bus: Bus, telemetry: Telemetry | None = None) -> AsyncIterator[Connection]:
    opened = Connection(bus, name="t", telemetry=telemetry or Telemetry(), forever=False)
    async with opened as connection:
        yield connection


@pytest.fixture
async def sink(site: Site) -> AsyncIterator[NatsSink]:
    async with NatsSink(site=site, telemetry=Telemetry()) as opened:
        yield opened
