"""Shared by the tests of Delta tables: one on a local path, and one on S3-compatible storage."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ccpipe.formats.delta import DeltaAddress
from tests.servers.s3 import BUCKET, Storage, moto


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    server = await moto(tmp_path)
    yield server
    server.stop()


@pytest.fixture(params=["path", "s3"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """The options of the sink of a table that does not exist."""
    if request.param == "path":
        yield {"url": str(tmp_path / "table")}
        return
    server = await moto(tmp_path)
    yield {"url": f"s3://{BUCKET}/site/table", **server.options}
    server.stop()


def rows_of(place: dict[str, Any]) -> pa.Table:
    """Return all rows, as readers find them."""
    return DeltaAddress(**place).open().to_pyarrow_table()


def stored(place: dict[str, Any]) -> Counter[int]:
    """Return how often each number is stored."""
    return Counter(map(int, rows_of(place)["value"].to_pylist()))
