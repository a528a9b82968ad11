"""Waiting for a killed, frozen or half-open broker ends on request."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from nats.js.errors import NotFoundError

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer, server_program
from ccpipe.config import Bus
from ccpipe.node.agent.spool import Spool
from ccpipe.telemetry import Telemetry
from tests.cli.command import command, environment
from tests.conftest import eventually, free_port, until_listening
from tests.processes import frozen

EX_UNAVAILABLE = 69

ACKNOWLEDGED = [
    b" ".join(b"$JS.ACK.s.c.1.%d.%d.1740000000000000000.0" % (i, i) for i in range(5000))
] * 20
"""More than nats-py sends without waiting for it to be taken."""


@contextlib.contextmanager
def broker(directory: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a nats-server that is not restarted, without waiting until it listens."""
    command = [server_program(), "-a", "127.0.0.1", "-p", f"{port}", "-js", "-sd", str(directory)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def frozen_broker(
    directory: Path,
) -> AsyncIterator[tuple["subprocess.Popen[bytes]", list["asyncio.Task[None]"]]]:
    """Send a frozen server more than it takes; yield it and the tasks that wait for that."""
    port = free_port()
    with broker(directory, port) as server:
        await until_listening(port, server, directory / "log")
        bus = Bus(servers=[f"nats://127.0.0.1:{port}"])
        async with (
            Connection(bus, name="t", telemetry=Telemetry()) as connection,
            frozen(server.pid),
        ):
            tasks = [
                asyncio.create_task(connection.publish_each(ACKNOWLEDGED, b"+ACK"))
                for _ in range(4)
            ]
            await asyncio.wait(tasks, timeout=1)
            waiting = [task for task in tasks if not task.done()]
            assert waiting
            yield server, waiting


async def test_senders_do_not_wait_for_killed_broker(tmp_path: Path) -> None:
    """Several wait to send acknowledgements: all return when it is killed."""
    async with frozen_broker(tmp_path) as (server, waiting):
        server.kill()
        _, stuck = await asyncio.wait(waiting, timeout=60)
        for task in stuck:
            task.cancel()
        assert not stuck


async def test_sender_to_frozen_broker_can_be_cancelled(tmp_path: Path) -> None:
    """nats-py drops a cancellation there, and the task would run forever."""
    async with frozen_broker(tmp_path) as (_, waiting):
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=60)
        assert all(task.cancelled() for task in waiting)


FROM_HTTP = """
[source]
use = "http"
listen = "127.0.0.1:{port}"
[sink]
use = "nats"
"""
FROM_NATS = """
[source]
use = "nats"
durable = "d"
subjects = ["metrics"]
drain_timeout = "600s"
[sink]
use = "null"
"""


@contextlib.contextmanager
def bridge(
    tmp_path: Path, recipe: str, broker_port: int, *arguments: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run ``ccpipe bridge``; it logs to ``bridge.log``."""
    (tmp_path / "r.toml").write_text(recipe)
    environ = environment(
        CCPIPE_BUS__SERVERS=f"nats://127.0.0.1:{broker_port}",
        CCPIPE_CLUSTER="c", XDG_STATE_HOME=str(tmp_path),
    )  # fmt: skip
    with (tmp_path / "bridge.log").open("wb") as log:
        process = subprocess.Popen(
            command("bridge", tmp_path / "r.toml", *arguments), env=environ, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until_logged(tmp_path: Path, text: str) -> None:
    await eventually(lambda: text in (tmp_path / "bridge.log").read_text())


async def until_reading(tmp_path: Path, connection: Connection) -> None:
    await until_logged(tmp_path, "the stream ccpipe-c stores")
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NotFoundError):
                if (await connection.jetstream().consumer_info("ccpipe-c", "d")).num_waiting:
                    return
            await asyncio.sleep(0.05)


async def ends(process: "subprocess.Popen[bytes]", *codes: int) -> None:
    await eventually(lambda: process.poll() is not None, 60)
    assert process.returncode in (codes or (0,))


@pytest.mark.parametrize("moment", ["always", "again"])
async def test_bridge_to_absent_broker_ends(tmp_path: Path, moment: str) -> None:
    """Absent from the start, and at SIGTERM still or again, while a request waits."""
    port, listen = free_port(), free_port()
    with bridge(tmp_path, FROM_HTTP.format(port=listen), port) as process:
        await until_listening(listen, process, tmp_path / "bridge.log")
        if moment == "again":
            with broker(tmp_path, port) as server:
                await until_listening(port, server, tmp_path / "log")
                assert await post(listen) == 204
            await until_logged(tmp_path, "is lost")
        sending = asyncio.create_task(post(listen))
        await asyncio.wait({sending}, timeout=1)
        process.terminate()
        await ends(process, 0, EX_UNAVAILABLE)  # 0 if the request was too late
        assert await sending == 503


async def post(port: int) -> int:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.post("/write", data=b"m,hostname=n1,type=node value=1 1740000000000000000") as got,
    ):
        return got.status


@pytest.mark.parametrize("moment", ["before", "at", "after"])
async def test_bridge_does_not_wait_for_killed_broker_to_drain(tmp_path: Path, moment: str) -> None:
    """The broker is killed before SIGTERM, at the same time, or during the drain."""
    port = free_port()
    with broker(tmp_path, port) as server:
        await until_listening(port, server, tmp_path / "log")
        bus = Bus(servers=[f"nats://127.0.0.1:{port}"])
        with bridge(tmp_path, FROM_NATS, port) as process:
            async with Connection(bus, name="t", telemetry=Telemetry()) as connection:
                await until_reading(tmp_path, connection)
            if moment == "after":
                async with frozen(server.pid):  # so that it goes on draining
                    process.terminate()
                    await asyncio.sleep(1)
                    server.kill()
            server.kill()
            if moment == "before":
                await until_logged(tmp_path, "is lost")
            if moment != "after":
                process.terminate()
            await ends(process)
            assert "its messages will be read later" in (tmp_path / "bridge.log").read_text()


async def test_bridge_with_duration_ends_without_broker(tmp_path: Path) -> None:
    """Connecting may take as long as ``--for`` says."""
    with bridge(tmp_path, FROM_NATS, free_port(), "--for", "1s") as process:
        await ends(process)


async def test_bridge_ends_with_acknowledgements_frozen_broker_does_not_read(
    tmp_path: Path,
) -> None:
    """For messages of one line; the broker is frozen among them and then killed."""
    port = free_port()
    with broker(tmp_path, port) as server:
        await until_listening(port, server, tmp_path / "log")
        bus = Bus(servers=[f"nats://127.0.0.1:{port}"])
        with bridge(tmp_path, FROM_NATS, port) as process:
            async with Connection(bus, name="t", telemetry=Telemetry()) as connection:
                await until_reading(tmp_path, connection)
                line = b"m,hostname=n1,type=node value=1 1740000000"
                for _ in range(20):
                    await connection.publish_each([b" ".join([b"c.metrics"] * 5000)], line)
                    await connection.flush()
            async with frozen(server.pid):
                process.terminate()
                await ends(process)


async def test_half_open_connection_is_detected_and_logged(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Though bytes wait that the server never reads; it continues when the server does."""
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


async def test_closing_does_not_wait_for_frozen_server(nats_server: NatsServer) -> None:
    """Unsent data are discarded: the records are safe elsewhere by then."""
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
async def test_process_ends_while_broker_is_frozen(
    nats_server: NatsServer, tmp_path: Path, name: str
) -> None:
    """On SIGTERM a publisher writes its records to the spool; a bridge leaves its to the next."""
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
