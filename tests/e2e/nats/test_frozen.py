"""A broker that is there and does not answer: a stopped process, a connection that is half open."""

import asyncio
from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus
from ccpipe.node.agent.spool import Spool
from ccpipe.telemetry import Telemetry
from tests.cli.command import command, environment
from tests.conftest import eventually
from tests.processes import frozen


async def test_a_half_open_connection_is_noticed_and_told(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Though bytes wait that the server never takes; and it goes on when the server does."""
    monkeypatch.setattr("ccpipe.bus.nats.connection.PING_SECONDS", 0.2)
    telemetry = Telemetry()
    async with Connection(Bus(servers=[nats_server.url]), name="t", telemetry=telemetry) as bus:
        async with frozen(nats_server.pid):
            for _ in range(64):  # more than the kernel buffers
                async with asyncio.timeout(60):
                    await bus.publish("a", b"x" * 2**18)
                if not bus.is_connected:
                    break
            await eventually(lambda: not bus.is_connected, 60)
        assert "is lost (it answered no ping for" in caplog.text
        await eventually(lambda: bus.is_connected, 60)
        await bus.flush()


async def test_leaving_does_not_wait_for_a_frozen_server(nats_server: NatsServer) -> None:
    """What could not be sent is given up: the records are safe elsewhere by then."""
    connection = Connection(Bus(servers=[nats_server.url]), name="t", telemetry=Telemetry())
    await connection.__aenter__()
    async with frozen(nats_server.pid):
        for _ in range(4):
            await connection.publish("a", b"x" * 2**18)
        async with asyncio.timeout(60):
            await connection.__aexit__(None, None, None)
    assert not connection.is_connected


@pytest.mark.long
@pytest.mark.parametrize("name", ["publish", "bridge"])
async def test_a_process_ends_though_the_broker_is_frozen(
    nats_server: NatsServer, tmp_path: Path, name: str
) -> None:
    """SIGTERM: a publisher's spool has what it held; a bridge leaves it to its successor."""
    recipe = tmp_path / "r.toml"
    out = tmp_path / "out"
    recipe.write_text(f"""
[source]
use = "nats"
durable = "b"
[sink]
use = "file"
path = "{out}"
""")
    environ = environment(
        CCPIPE_BUS__SERVERS=nats_server.url,
        XDG_STATE_HOME=str(tmp_path), CCPIPE_CLUSTER="c",
    )  # fmt: skip
    arguments = {"publish": ["--interval", "100ms"], "bridge": [str(recipe)]}[name]
    process = await asyncio.create_subprocess_exec(
        *command(name, *arguments), env=environ, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while b"the stream ccpipe-c stores" not in await process.stderr.readline():
                pass
        await asyncio.sleep(1)
        async with frozen(nats_server.pid):
            await asyncio.sleep(1)
            process.terminate()
            async with asyncio.timeout(60):
                await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    if name == "publish":
        spool = Spool(tmp_path / "ccpipe" / "spool", size=2**30, age=86400)
        spool.open()
        spool.close()
        assert spool.messages > 0
