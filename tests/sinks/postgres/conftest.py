"""A real PostgreSQL for the tests of this directory."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests of a worker; each takes a database of its own.

    Its directory is not below pytest's, which only we may enter.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ccpipe-postgres-") as directory,
        Server(Path(directory)) as server,
    ):
        yield server
