"""Reads what the NATS server sends, in place of nats-py's own parser.

nats-py's read loop ends permanently at a subject that is not UTF-8 and at a malformed header, so
that one message would stop everything that this process receives. Here only that message is lost.
It is also faster: messages are passed from the socket to subscribers in lists, without a queue, a
task and a future for each.
"""

# ruff: noqa: SLF001 - nats-py has no interface for another parser

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

from ccpipe.bus.nats.protocol.frames import BrokenFrame, Delivery, Frame
from ccpipe.bus.nats.protocol.splitter import FrameSplitter
from ccpipe.errors import DataError

log = logging.getLogger(__name__)

T = TypeVar("T")

Receive = Callable[[list[Delivery]], None]
"""Called with messages in the order in which they arrived."""
Callback = Callable[[Msg], Awaitable[None]]
"""The callback that nats-py calls with a message."""


class RobustClient(Client):
    """nats-py's client with a `ProtocolReader`; `report` gets errors that keep the connection."""

    def __init__(self, report: Callable[[Exception], Awaitable[None]]) -> None:
        """Prepare; connects like nats-py's client."""
        super().__init__()
        self.reader = ProtocolReader(self, report)
        self.server_error = ""
        """The last error that the server sent, verbatim."""
        self._ps: Any = self.reader

    async def send(self, commands: bytes) -> None:
        """Send raw commands, in order with other published data."""
        await self._send_command(commands)
        await self._flush_pending()

    def write(self, commands: Sequence[bytes]) -> None:
        """Send commands like ``send``, but immediately if nothing else is pending."""
        if isinstance(self._transport, TcpTransport) and not self._pending:
            self._transport.writelines(list(commands))  # type: ignore[no-untyped-call]
            return
        assert self._flush_queue is not None
        self._pending += commands
        self._pending_data_size += sum(map(len, commands))
        with contextlib.suppress(asyncio.QueueFull):  # it will send pending data anyway
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    async def _read_loop(self) -> None:
        """Read until the connection ends, like nats-py, but bypassing its stream."""
        if isinstance(self._transport, TcpTransport):
            self.reader.attach(self._transport)
        await super()._read_loop()


class ProtocolReader:
    """Replaces a client's ``nats.protocol.parser.Parser``.

    Messages for subscribers with a callback in `receivers` are passed on directly. All others, and
    the server's other lines, take nats-py's usual path through its read loop.
    """

    def __init__(self, client: Client, report: Callable[[Exception], Awaitable[None]]) -> None:
        """Read for a client."""
        self.receivers: dict[Callback, Receive] = {}
        """By the callback registered with nats-py."""
        self._client: Any = client
        self._report = report
        self.reset()

    def reset(self) -> None:
        """Discard incomplete data: the connection is new."""
        self._inlet: _Inlet | None = None
        self._splitter = FrameSplitter()  # for data read from nats-py's stream
        self._left: deque[tuple[int, Any]] = deque()  # frames for nats-py's loop, and errors

    def attach(self, transport: TcpTransport) -> None:
        """Read from the socket directly; nats-py's stream only signals the connection's end."""
        assert transport._io_reader is not None
        assert transport._io_writer is not None
        self._inlet = _Inlet(self, transport._io_reader, transport._io_writer.transport)
        self._inlet.begin()

    async def parse(self, data: bytes = b"") -> None:
        """Handle the data that nats-py's read loop has read, or was woken up for.

        Raises
        ------
        ProtocolError
            if the server sent what is not its protocol: nats-py connects anew.

        """
        if self._inlet is None:
            self.take(self._splitter.feed, data)
        while self._left:
            try:
                await self._handle(*self._left.popleft())
            except (OSError, nats.errors.ProtocolError):
                raise
            except BrokenFrame as error:
                log.warning("NATS: %s; reconnecting", error)
                raise nats.errors.ProtocolError from error
            except Exception as error:  # noqa: BLE001 - no error may end the read loop
                await self._report(error)

    def take(self, split: Callable[[T], list[Frame]], data: T) -> bool:
        """Pass on the messages in the data; return whether the read loop has work to do."""
        try:
            frames = split(data)
        except BrokenFrame as error:
            self.report(error)
            return True
        for sid, content in frames:
            if not sid:
                self._left.append((0, content))
            elif not self._is_received(sid, content):
                self._left.extend((sid, message) for message in content)
        return bool(self._left)

    def report(self, error: Exception) -> None:
        """Report an error from the read loop, which can await."""
        self._left.append((0, error))

    def is_current(self, inlet: "_Inlet") -> bool:
        """Return whether an inlet belongs to the current connection."""
        return self._inlet is inlet

    def _is_received(self, sid: int, messages: Any) -> bool:
        """Pass messages to one of `receivers`; false if nats-py must handle them."""
        subscription = self._client._subs.get(sid)
        if subscription is None:
            return True  # unsubscribed
        receive = self.receivers.get(subscription._cb)
        if receive is None:
            return False
        subscription._received += len(messages)
        try:
            receive(messages)
        except Exception as error:  # noqa: BLE001 - reported, like nats-py's callback errors
            self.report(error)
        return True

    async def _handle(self, sid: int, content: Any) -> None:
        """Handle a frame like nats-py's own parser."""
        client = self._client
        if isinstance(content, BrokenFrame):
            raise content
        if isinstance(content, Exception):
            await self._report(content)
        elif sid:
            await self._pass_on(sid, content)
        else:
            kind, _, rest = content.partition(b" ")
            match kind.upper():
                case b"PING":
                    await client._process_ping()
                case b"PONG":
                    if client._pongs and client._pongs[0].done():  # the waiter has timed out
                        client._pongs[0] = client._pongs[0].get_loop().create_future()
                    await client._process_pong()
                case b"+OK" | b"":
                    pass
                case b"-ERR":
                    client.server_error = rest.strip().decode(errors="replace")
                    await client._process_err(client.server_error.lower())
                case b"INFO":
                    await client._process_info(json.loads(rest))
                case _:
                    raise BrokenFrame(f"not the protocol of NATS: {content!r:.120}")

    async def _pass_on(self, sid: int, message: Delivery) -> None:
        if message.flaw:
            raise FlawedMessage(message)
        subject, reply = message.subject.encode(), message.reply.encode()
        await self._client._process_msg(sid, subject, reply, message.payload, message.header)


class FlawedMessage(DataError):  # noqa: N818 - named for what happened
    """A message was dropped because it violates the protocol."""

    def __init__(self, message: Delivery) -> None:
        """Take the message with its flaw."""
        super().__init__(f"a message on {ascii(message.subject)[:200]} was dropped: {message.flaw}")


class _Inlet(asyncio.BufferedProtocol):
    """Protocol between the socket and a `ProtocolReader`; nats-py handles the connection's end.

    nats-py waits at its stream, so one byte is fed to it when there is work for its loop.
    """

    def __init__(
        self,
        reader: ProtocolReader,
        stream: asyncio.StreamReader,
        transport: asyncio.WriteTransport,
    ) -> None:
        self._reader = reader
        self._stream: Any = stream
        self._transport = transport
        self._protocol: Any = transport.get_protocol()
        self._splitter = FrameSplitter()

    def begin(self) -> None:
        early = bytes(self._stream._buffer)  # data that arrived with the server's last answer
        self._stream._buffer.clear()
        self._transport.set_protocol(self)
        self._take(self._splitter.feed, early)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._splitter.free()

    def buffer_updated(self, nbytes: int) -> None:
        self._take(self._splitter.filled, nbytes)

    def _take(self, split: Callable[[T], list[Frame]], data: T) -> None:
        reader = self._reader
        if reader.is_current(self) and reader.take(split, data) and not self._stream._buffer:
            self._stream.feed_data(b"\n")

    def eof_received(self) -> bool:
        return bool(self._protocol.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
