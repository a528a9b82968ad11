"""nats-py's client, made safe: the one file that uses its private names, which `PRIVATE` lists.

nats-py's read loop ends permanently at a subject that is not UTF-8 and at a malformed header, so
that one message would stop everything that this process receives. Here only that message is lost.
It is also faster: messages are passed from the socket to subscribers in lists, without a queue, a
task and a future for each. Nothing is sent before TLS, and a frozen server is not waited for.
"""

# ruff: noqa: SLF001 - see PRIVATE

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import nats.aio.client
import nats.errors
from nats.aio.client import Srv
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

from ccpipe.bus.nats.credentials import TlsError
from ccpipe.bus.nats.protocol.frames import (
    BrokenFrame,
    Delivery,
    Frame,
    MalformedMessageError,
    Receive,
)
from ccpipe.bus.nats.protocol.splitter import FrameSplitter
from ccpipe.process.background import end_tasks

if TYPE_CHECKING:
    from nats.js import JetStreamContext

log = logging.getLogger(__name__)

T = TypeVar("T")

PING_SECONDS = 8
UNANSWERED_PINGS = 2
"""Unanswered pings after which the connection is given up, at the next one: within 24 s."""
CLOSE_SECONDS = 2.0
"""Time limit for closing a connection, after which it is cut off."""

_PING = b"PING\r\n"

PRIVATE = {
    # Overridden
    "Client._process_info(info, initial_connection)": "the first line: refuse one without TLS",
    "Client._connect_to_server(s)": "a failed attempt leaves its connection open",
    "Client._attempt_reconnect()": "ends for good at an error that it does not expect",
    "Client._ping_interval()": "a task that fails leaves the connection silent",
    "Client._flusher()": "the same",
    "Client._read_loop()": "where our reader attaches to the socket",
    "Client._process_op_err(e)": "waits for a frozen server to read pending data",
    "Client._flush_pending(force_flush)": "drops a cancellation, may wait for ever",
    "Client._send_ping(future)": "overtakes what was published just before",
    "Client._close(status, do_cbs)": "leaves behind who waits for the flusher",
    # Replaced or called by our reader
    "Client._ps": "the parser, replaced by our reader",
    "Client._process_ping()": "a line of the server",
    "Client._process_pong()": "the same",
    "Client._process_err(err_msg)": "the same",
    "Client._process_msg(sid, subject, reply, data, headers)": "answers to nats-py's own requests",
    "Client._pongs": "futures of pings; one that was cancelled would break the next answer",
    "Client._subs": "subscriptions by the number in a frame",
    "Subscription._cb": "identifies ours",
    "Subscription._received": "counted by nats-py, for a maximum",
    # Writing and closing
    "Client._send_command(cmd, priority)": "raw commands, in order with what nats-py publishes",
    "Client._pending": "unsent data, which a direct write must not overtake",
    "Client._pending_data_size": "their size",
    "Client._flush_queue": "wakes the flusher",
    "Client._flusher_task": "whether it runs; ended with the others",
    "Client._reading_task": "nats-py sometimes swallows the cancellation with which it ends them",
    "Client._ping_interval_task": "the same",
    "Client._reconnection_task": "the same",
    "Client._pings_outstanding": "why a connection was given up",
    "Client._status": "an unexpected error leaves it as if connected",
    "Client._transport": "the connection: written to, read from and aborted",
    "TcpTransport._io_reader": "the stream that nats-py waits at",
    "TcpTransport._io_writer": "has the transport of the socket",
    "Client._server_info": "the server's version",
    "Client._current_server": "the scheme of its URL",
    # JetStream
    "JetStreamContext._api_request(req_subject, req, timeout)": "other methods drop unknown fields",
    "JetStreamContext._nc": "the server's version",
    "JetStreamContext._prefix": "prefix of the domain",
    "JetStreamContext._timeout": "timeout of the context",
}
"""Private names of nats-py by class, with parameters, and why they are used.

A test fails if one of them is another in the installed version; pyproject.toml allows only
versions in which they were tested.
"""


class Client(nats.aio.client.Client):
    """A connection with a `ProtocolReader`, which sends nothing before TLS if that is required."""

    requires_tls: bool = False
    """Whether to send nothing before TLS, not even credentials."""
    loss: str = ""
    """Why the connection was given up, if the server did not close it."""
    server_error = ""
    """The last error that the server sent, verbatim."""

    def __init__(self, report: Callable[[Exception], Awaitable[None]]) -> None:
        """Prepare; `report` gets errors that keep the connection."""
        super().__init__()
        self.reader = ProtocolReader(self, report)
        self._ps: Any = self.reader

    @property
    def server_version(self) -> str:
        """Version of the server that is connected, or was last; empty before."""
        return str(self._server_info.get("version", ""))

    async def subscribe_lists(self, subject: str, queue: str, receive: Receive) -> None:
        async def passed_by(_: Msg) -> None:
            """Only identifies the subscription: the reader calls `receive` itself."""

        self.reader.receivers[passed_by] = receive
        await self.subscribe(subject, queue, cb=passed_by)

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

    async def write_through(self, commands: Sequence[bytes]) -> None:
        """Send commands like ``write``; return when the server has received them."""
        received: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pongs.append(received)
        self.write([*commands, _PING])
        await received

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(info, initial_connection)
        if not (self.requires_tls and initial_connection) or self.options["tls_handshake_first"]:
            return
        assert self._current_server is not None
        scheme = self._current_server.uri.scheme
        if scheme != "wss":
            if info.get("tls_available") and scheme != "ws":
                info["tls_required"] = True  # optional TLS
            if not info.get("tls_required") or scheme == "ws":
                raise TlsError(
                    "TLS is required (bus.tls, bus.ca_file or tls:// in bus.servers) and the "
                    "server does not offer it; no credentials were sent"
                )

    async def _connect_to_server(self, s: Srv) -> None:
        self.abort()
        await super()._connect_to_server(s)

    async def _attempt_reconnect(self) -> None:
        level = logging.ERROR
        while True:
            try:
                await super()._attempt_reconnect()
            except Exception as error:
                log.log(level, "an error while reconnecting to NATS; retrying", exc_info=error)
                level = logging.DEBUG  # not every half a second
                self._status = Client.RECONNECTING
                await asyncio.sleep(self.options["reconnect_time_wait"])
            else:
                return

    async def _ping_interval(self) -> None:
        await self._or_reconnect(super()._ping_interval())

    async def _flusher(self) -> None:
        await self._or_reconnect(super()._flusher())

    async def _or_reconnect(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            log.exception("an unexpected error on the connection to NATS; reconnecting")
            await self._process_op_err(error)

    async def _read_loop(self) -> None:
        if isinstance(self._transport, TcpTransport):
            self.reader.attach(self._transport)
        await super()._read_loop()

    async def _process_op_err(self, e: Exception) -> None:
        self.loss = ""
        if self._pings_outstanding > UNANSWERED_PINGS:
            self.loss = f"it answered no ping for {PING_SECONDS * (UNANSWERED_PINGS + 1)} s"
        self.abort()
        await super()._process_op_err(e)
        self._release_senders()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Wake the flusher to send pending data; with `force_flush` wait until it has."""
        if self.is_connected and (self._flusher_task is None or self._flusher_task.done()):
            return await super()._flush_pending(force_flush)
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_connected:
            assert self._flush_queue is not None
            await self._flush_queue.put(sent)
            if force_flush and self.is_connected:
                await sent
        else:
            sent.set_result(None)
        return sent

    async def _send_ping(self, future: "asyncio.Future[bool] | None" = None) -> None:
        """Send a ping behind pending data, so that its answer confirms their arrival."""
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self.send(_PING)

    def _release_senders(self) -> None:
        """Release all that wait for the flusher: the connection is lost."""
        queue = self._flush_queue
        while queue is not None and not queue.empty():
            sent = queue.get_nowait()
            if not sent.done():
                sent.set_result(None)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        finally:
            self._release_senders()

    def abort(self) -> None:
        """Cut the connection; unsent data are discarded."""
        writer = getattr(self._transport, "_io_writer", None)  # websockets have none
        if writer is not None:
            writer.transport.abort()

    async def leave(self, *, flushed: bool) -> None:
        """Close the connection permanently; wait for the server only if `flushed`."""
        if not flushed:
            self._pending, self._pending_data_size = [], 0
            self.abort()
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.close()
        finally:
            self.abort()
            await end_tasks(
                (
                    self._reading_task,
                    self._ping_interval_task,
                    self._flusher_task,
                    self._reconnection_task,
                )
            )


class ProtocolReader:
    """Replaces a client's ``nats.protocol.parser.Parser``.

    Messages for subscribers with a callback in `receivers` are passed on directly. All others, and
    the server's other lines, take nats-py's usual path through its read loop.
    """

    def __init__(self, client: Client, report: Callable[[Exception], Awaitable[None]]) -> None:
        self.receivers: dict[Callable[[Msg], Awaitable[None]], Receive] = {}
        """By the callback registered with nats-py."""
        self._client: Any = client
        self._report = report
        self.reset()

    def reset(self) -> None:
        """Discard incomplete data: the connection is new."""
        self._inlet: _BufferedReader | None = None
        self._splitter = FrameSplitter()  # for data read from nats-py's stream
        self._left: deque[tuple[int, Any]] = deque()  # frames for nats-py's loop, and errors

    def attach(self, transport: TcpTransport) -> None:
        """Read from the socket directly; nats-py's stream only signals the connection's end."""
        assert transport._io_reader is not None
        assert transport._io_writer is not None
        self._inlet = _BufferedReader(self, transport._io_reader, transport._io_writer.transport)
        self._inlet.begin()

    async def parse(self, data: bytes = b"") -> None:
        """Handle the data that nats-py's read loop has read, or was woken up for.

        Raises ProtocolError if the server sent what is not its protocol: nats-py connects anew.
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

    def is_current(self, inlet: "_BufferedReader") -> bool:
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
            raise MalformedMessageError(message)
        subject, reply = message.subject.encode(), message.reply.encode()
        await self._client._process_msg(sid, subject, reply, message.payload, message.header)


class _BufferedReader(asyncio.BufferedProtocol):
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


async def api_request(
    jetstream: "JetStreamContext", subject: str, request: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Send a request of JetStream's API and return the whole answer."""
    prefix, timeout = jetstream._prefix, jetstream._timeout
    payload = json.dumps(request).encode() if request else b""
    return await jetstream._api_request(f"{prefix}.{subject}", payload, timeout=timeout)


def server_version(jetstream: "JetStreamContext") -> str:
    """Return the version of the server that is connected, or was last; empty before."""
    return str(jetstream._nc._server_info.get("version", ""))


def takes_batches(version: str) -> bool:
    """Return whether streams of a server of this version can store fast-ingest batches."""
    return [int(each) for each in version.split(".")[:2] if each.isdigit()] >= [2, 14]
