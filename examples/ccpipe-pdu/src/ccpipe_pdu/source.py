"""Datagrams of PDUs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Self

from ccpipe import Batch, ConfigError, Source
from ccpipe_pdu.readings import Readings, decode

log = logging.getLogger(__name__)


class PduSource(Source[Readings]):
    """Receives the datagrams that rack PDUs send."""

    gives = Readings

    def __init__(self, *, host: str = "127.0.0.1", port: int = 5170, queue: int = 1000) -> None:
        """Take the options.

        Parameters
        ----------
        host, port
            Address to receive datagrams on.
        queue
            Maximum number of datagrams that wait; others are dropped.

        Raises
        ------
        ConfigError
            if the queue is empty.

        """
        if queue < 1:
            raise ConfigError("queue: must be at least 1")
        self.host, self.port = host, port
        self._datagrams: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue(queue)
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Open the port."""
        loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await loop.create_datagram_endpoint(
                lambda: _Receiver(self._datagrams), local_addr=(self.host, self.port)
            )
        except OSError as error:
            raise ConfigError(f"port: {self.host}:{self.port}: {error.strerror}") from None
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the port."""
        self._transport.close()

    async def batches(self) -> AsyncIterator[Batch[Readings]]:
        """Yield the readings of each datagram."""
        async for payload, sender in self._received():
            yield Batch(decode(payload), origin=sender)

    def stop(self) -> None:
        """End after the datagrams that wait."""
        self._stopped.set()

    async def _received(self) -> AsyncIterator[tuple[bytes, str]]:
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            while not (stopped.done() and self._datagrams.empty()):
                datagram = asyncio.ensure_future(self._datagrams.get())
                await asyncio.wait({stopped, datagram}, return_when=asyncio.FIRST_COMPLETED)
                if datagram.done():
                    yield datagram.result()
                else:
                    datagram.cancel()
        finally:
            stopped.cancel()


class _Receiver(asyncio.DatagramProtocol):
    """Puts datagrams into a queue."""

    def __init__(self, datagrams: asyncio.Queue[tuple[bytes, str]]) -> None:
        self._datagrams = datagrams

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        try:
            self._datagrams.put_nowait((data, f"{addr[0]}:{addr[1]}"))
        except asyncio.QueueFull:
            log.warning("a datagram from %s was dropped: the queue is full", addr[0])
