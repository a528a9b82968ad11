"""The recipe as shipped, with bridges that are killed: nothing lost, nothing twice."""

from collections import Counter
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from tests.servers.postgres import Server
from tests.sinks.kills import LINES, KilledBridges


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
async def test_killed_bridges(
    server: Server, nats_server: NatsServer, tmp_path: Path, kills: int
) -> None:
    """However often bridges are killed, each line that was published is stored exactly once."""
    database = await server.database()
    bridges = KilledBridges(
        "postgres",
        nats_server,
        tmp_path,
        CCPIPE_SINK__URL=server.url(database),
        CCPIPE_SINK__PASSWORD_FILE=str(server.secret),
    )

    async def stored() -> Counter[int]:
        if (await server.ask(database, "SELECT to_regclass('delivered') IS NULL")) == [(True,)]:
            return Counter()
        rows = await server.ask(database, "SELECT value, count(*) FROM messages GROUP BY 1")
        return Counter({int(value): count for value, count in rows})

    found = await bridges.run(kills, stored)
    assert found == dict.fromkeys(range(bridges.published), LINES)
    assert bridges.published > 100
