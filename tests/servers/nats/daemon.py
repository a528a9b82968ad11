"""A nats-server with a configuration of the test's own."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from ccpipe.bus.nats.server import server_program
from tests.conftest import free_port


async def started(conf: Path, **environ: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        server_program(), "-c", str(conf), env={**os.environ, **environ},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def accepts(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                return
            await asyncio.sleep(0.02)


def placed(configuration: str, directory: Path) -> str:
    """Return a site's configuration without its ports, and with its data in a directory."""
    for text, other in (
        ('listen: "0.0.0.0:4222"', ""),
        ('http: "127.0.0.1:8222"', ""),
        ('"/var/lib/nats"', f'"{directory / "js"}"'),
    ):
        assert text in configuration
        configuration = configuration.replace(text, other)
    return configuration


@contextlib.asynccontextmanager
async def nats_daemon(
    directory: Path, configuration: str, port: int | None = None, **environ: str
) -> AsyncIterator[int]:
    """Run a server with a piece of configuration, at a loopback port, which is given."""
    port = port or free_port()
    conf = directory / f"nats-{port}.conf"
    conf.write_text(f'listen: "127.0.0.1:{port}"\n{configuration}')
    server = await started(conf, **environ)
    try:
        await accepts(port)
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.wait()
