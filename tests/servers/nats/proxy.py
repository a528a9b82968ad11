"""A proxy between a client and the real server, which changes the server's messages."""

import asyncio
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus


class Proxy:
    """Runs between a client and the real server, and can inject bytes."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.clients: list[asyncio.StreamWriter] = []
        self._open: list[asyncio.StreamWriter] = []
        self.change: Callable[[bytes], bytes] = bytes
        """Applied to the bytes that the server sends."""
        self.speaks = asyncio.Event()
        """While it is not set, the server's bytes wait."""
        self.speaks.set()
        self.refuses: set[bytes] = set()
        """Payloads that the server is not given; each is refused once, as by a stream."""

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**21)
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        tasks = list(self._tasks)
        self.cut()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break all connections; buffered bytes are lost."""
        for task in self._tasks:
            task.cancel()
        for writer in self._open:  # a task that has not begun closes nothing
            writer.close()
        self._tasks.clear()
        self._open.clear()
        self.speaks.set()

    @property
    def bus(self) -> Bus:
        address = urlsplit(self.server.url)
        port = self._listening.sockets[0].getsockname()[1]
        user = f"{address.username}:{address.password}"
        return Bus(servers=[f"nats://{user}@127.0.0.1:{port}"])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients.append(writer)
        self._open.append(writer)
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.server.port)
        self._open.append(ours)
        for copying in (self._from_client(reader, ours, writer), self._to_client(theirs, writer)):
            self._tasks.add(asyncio.create_task(copying))

    async def _to_client(self, source: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(2**16):
                await self.speaks.wait()
                client.write(self.change(data))
        finally:
            client.close()

    async def _from_client(
        self,
        source: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        inboxes: dict[bytes, bytes] = {}  # the subscription of each, by what it begins with
        try:
            while True:
                words, frame, payload = await read_frame(source)
                if words[0] == b"SUB" and words[1].endswith(b".>"):
                    inboxes[words[1][:-1]] = words[-1]
                if payload in self.refuses:
                    self.refuses.remove(payload)
                    inbox = next(
                        sid for start, sid in inboxes.items() if words[2].startswith(start)
                    )
                    client.write(b"MSG %s %s %d\r\n%s\r\n" % (words[2], inbox, len(_NO), _NO))
                else:
                    server.write(frame)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the client has disconnected
        finally:
            server.close()


_NO = b'{"error": {"code": 503, "err_code": 10077, "description": "refused by the proxy"}}'


async def read_frame(source: asyncio.StreamReader) -> tuple[list[bytes], bytes, bytes]:
    """Return the words of the next command of NATS's protocol, the whole of it, and its payload."""
    line = await source.readuntil(b"\r\n")
    words = line.split()
    if words[0] not in (b"PUB", b"HPUB", b"MSG", b"HMSG"):
        return words, line, b""
    text = await source.readexactly(int(words[-1]) + 2)
    headers = int(words[-2]) if words[0].startswith(b"H") else 0
    return words, line + text, text[headers:-2]
