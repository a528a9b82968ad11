"""A broker and a site for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.config import Site
from tests.servers.mosquitto import Mosquitto


@pytest.fixture
async def mosquitto(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    """Run a real Mosquitto on a free loopback port."""
    broker = Mosquitto(tmp_path / "mosquitto")
    await broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def fox() -> Site:
    """Return a cluster whose name holds a dot, as real ones do."""
    return Site(cluster="fox.test", hostname="n1")
