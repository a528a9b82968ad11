"""Proxies before the broker: duplicated and reordered messages, failing handshakes."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from tests.servers.nats.proxy import read_frame

_LIMIT = 2**21
QUIET_SECONDS = 0.02
"""Time after which a delayed message is sent if no other arrives."""


class Muddle:
    """A proxy before the broker that duplicates and swaps the messages of one subject."""

    def __init__(self, port: int, subject: str, seed: int = 1) -> None:
        self.url = ""
        self.repeated = self.swapped = 0
        self._port = port
        self._subject = subject.encode()
        self._random = random.Random(seed)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Muddle"]:
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._port, limit=_LIMIT)
            for source, sink in ((reader, ours), (theirs, writer)):
                tasks.add(asyncio.create_task(self._copy(source, sink)))

        listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_LIMIT)
        self.url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listening.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        held = b""
        try:
            while True:
                waiting = asyncio.ensure_future(self._frame(source))
                if held and not (await asyncio.wait({waiting}, timeout=QUIET_SECONDS))[0]:
                    sink.write(held)
                    held = b""
                is_ours, frame = await waiting
                if not is_ours:
                    sink.write(frame)
                elif held:
                    sink.write(frame + held)
                    self.swapped += 1
                    held = b""
                elif self._random.random() < 0.3:
                    held = frame
                elif self._random.random() < 0.3:
                    sink.write(frame + frame)
                    self.repeated += 1
                else:
                    sink.write(frame)
        except (OSError, asyncio.IncompleteReadError):
            sink.write(held)
        finally:
            sink.close()

    async def _frame(self, source: asyncio.StreamReader) -> tuple[bool, bytes]:
        words, frame, payload = await read_frame(source)
        return bool(payload) and words[1] == self._subject, frame


class Handshakes:
    """A proxy that can cut all connections, and answers TLS handshakes meanwhile by itself."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.failed = 0
        self._port = port
        self._fails = False
        self._open: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Handshakes"]:
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"wss://localhost:{listening.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listening.close()
            self._cut()

    async def fail(self, count: int) -> None:
        self._fails, self.failed = True, 0
        self._cut()
        async with asyncio.timeout(60):
            while self.failed < count:
                await asyncio.sleep(0.02)
        self._fails = False

    def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fails:
            await reader.read(100)
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
            writer.close()
            self.failed += 1
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._copy(reader, ours), self._copy(theirs, writer))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        self._open.add(sink)
        with contextlib.suppress(OSError):
            while data := await source.read(2**16):
                sink.write(data)
                await sink.drain()
        self._open.discard(sink)
        sink.close()
