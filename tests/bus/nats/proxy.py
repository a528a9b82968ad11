"""A proxy between a client and the real server, which changes what the server says."""

import asyncio
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from ccpipe.bus.nats.server import Server
from ccpipe.config import Bus


class Proxy:
    """Stands between a client and the real server, and may put in bytes of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clients: list[asyncio.StreamWriter] = []
        self.change: Callable[[bytes], bytes] = bytes
        """What becomes of the bytes that the server sends."""
        self.speaks = asyncio.Event()
        """While it is not set, the server's bytes wait."""
        self.speaks.set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def bus(self) -> Bus:
        """A configuration that goes through here."""
        address = urlsplit(self.server.url)
        port = self._listening.sockets[0].getsockname()[1]
        user = f"{address.username}:{address.password}"
        return Bus(servers=[f"nats://{user}@127.0.0.1:{port}"])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients.append(writer)
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.server.port)
        for source, sink, is_changed in ((reader, ours, False), (theirs, writer, True)):
            task = asyncio.create_task(self._copy(source, sink, is_changed=is_changed))
            self._tasks.add(task)

    async def _copy(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_changed: bool
    ) -> None:
        try:
            while data := await source.read(2**16):
                if is_changed:
                    await self.speaks.wait()
                    data = self.change(data)
                sink.write(data)
        finally:
            sink.close()
