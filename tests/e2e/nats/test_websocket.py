"""A websocket with TLS and a real server: failed handshakes do not end the connection."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection, check
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.config import Bus
from ccpipe.errors import DeniedError
from ccpipe.telemetry import Telemetry
from tests.certificates import Certificates, certificates
from tests.conftest import eventually, free_port
from tests.servers.nats.daemon import accepts, nats_daemon

pytestmark = pytest.mark.filterwarnings("ignore:parameter 'timeout' of type:DeprecationWarning")
"""nats-py passes aiohttp's older argument."""


@contextlib.asynccontextmanager
async def websocket_server(directory: Path, tls: Certificates, port: int) -> AsyncIterator[None]:
    """Run a server that accepts ``wss://`` at a port."""
    block = f'listen: "127.0.0.1:{port}", tls {{ cert_file: "{tls.cert}", key_file: "{tls.key}" }}'
    async with nats_daemon(directory, f"websocket {{ {block} }}"):
        await accepts(port)
        yield


@contextlib.asynccontextmanager
async def failing_handshakes(port: int) -> AsyncIterator[asyncio.Semaphore]:
    count = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        writer.close()
        count.release()

    async with await asyncio.start_server(serve, "127.0.0.1", port, reuse_address=True):
        yield count


async def test_websocket_reconnects_after_failed_tls_handshakes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a proxy that accepts connections before the server behind it."""
    tls, port = certificates(tmp_path), free_port()
    bus = Bus(servers=[f"wss://localhost:{port}"], ca_file=str(tls.ca))
    seen: list[Delivery] = []
    async with contextlib.AsyncExitStack() as stack:
        async with websocket_server(tmp_path, tls, port):
            connection = Connection(bus, name="t", telemetry=Telemetry())
            await stack.enter_async_context(connection)
            await connection.subscribe("a", seen.append)
            await connection.flush()
        async with failing_handshakes(port) as failed, asyncio.timeout(60):
            for _ in range(3):
                await failed.acquire()
        async with websocket_server(tmp_path, tls, port):
            await eventually(lambda: connection.is_connected)
            await connection.publish("a", b"after")
            await eventually(lambda: [each.payload for each in seen] == [b"after"])
            await stack.aclose()
    assert "TLS: the handshake failed" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_websocket_with_failing_first_handshake_is_error(tmp_path: Path) -> None:
    """At the start it is a configuration that cannot work, as over ``tls://``."""
    tls, port = certificates(tmp_path), free_port()
    bus = Bus(servers=[f"wss://localhost:{port}"], ca_file=str(tls.ca))
    async with failing_handshakes(port):
        with pytest.raises(DeniedError, match="TLS: the handshake failed: "):
            await check(bus, Telemetry())
    other = certificates_of_another(tmp_path)
    async with websocket_server(tmp_path, other, port):
        with pytest.raises(DeniedError, match="TLS: the server's certificate is refused: .*ca_fi"):
            await check(bus, Telemetry())


def certificates_of_another(directory: Path) -> Certificates:
    (directory / "other").mkdir()
    return certificates(directory / "other")
