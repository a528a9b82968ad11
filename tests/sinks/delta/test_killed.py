"""Bridges and the storage are killed while they write: each row is in the table once."""

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.errors import UnavailableError
from ccpipe.formats.delta import DeltaAddress, TableNotFoundError
from tests.servers.s3 import BUCKET, minio
from tests.sinks.kills import LINES, KilledBridges

KILLS = 100
"""Of bridges; at every third one the storage is killed, too."""


def values(address: DeltaAddress) -> Counter[int]:
    """Return how often each number is stored; none while the storage is down."""
    try:
        with address.errors():
            rows = address.open().to_pyarrow_dataset().to_table(columns=["value"])
    except (UnavailableError, TableNotFoundError):
        return Counter()
    return Counter(map(int, rows["value"].to_pylist()))


async def test_killed_bridges_store_each_line_once(nats_server: NatsServer, tmp_path: Path) -> None:
    """With the recipe as shipped, each published line is in the table exactly once."""
    url = str(tmp_path / "table")
    bridges = KilledBridges("delta", nats_server, tmp_path, CCPIPE_SINK__URL=url)
    found = await bridges.run(2, partial(asyncio.to_thread, values, DeltaAddress(url)))
    assert found == Counter(dict.fromkeys(range(bridges.published), LINES))


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_table_has_each_row_once_when_bridges_and_storage_are_killed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Two bridges share the messages; no upload in parts stays open."""
    storage = await minio(tmp_path)
    address = storage.address("table")
    environ = {f"CCPIPE_SINK__{name.upper()}": text for name, text in storage.options.items()}
    bridges = KilledBridges(
        "delta", nats_server, tmp_path, CCPIPE_SINK__URL=f"s3://{BUCKET}/table", **environ
    )
    bridges.interval = 0.02

    async def kill_storage(turn: int) -> None:
        if turn % 3 == 0:
            storage.stop()
            await storage.start()

    try:
        found = await bridges.run(KILLS, partial(asyncio.to_thread, values, address), kill_storage)
        assert found == Counter(dict.fromkeys(range(bridges.published), LINES))
        assert storage.open_uploads() == []
    finally:
        storage.stop()
