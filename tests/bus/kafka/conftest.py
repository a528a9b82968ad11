"""One broker for all tests of this folder, which keep their clusters' names apart."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.servers.kafka import Kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    server = Kafka(tmp_path_factory.mktemp("kafka"))
    asyncio.run(server.start())
    yield server
    server.stop()
