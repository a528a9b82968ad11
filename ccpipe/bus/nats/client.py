"""nats-py's client, hardened: sends nothing before TLS, does not wait for a frozen server."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Coroutine, Iterable
from typing import Any

import nats.errors
from nats.aio.client import Srv

from ccpipe.bus.nats.protocol.reader import RobustClient

log = logging.getLogger(__name__)

PING_SECONDS = 8
UNANSWERED_PINGS = 2
"""Unanswered pings after which the connection is given up, at the next one: within 24 s."""


_PING = b"PING\r\n"

CLOSE_SECONDS = 2.0
"""Time limit for closing a connection, after which it is cut off."""


class TlsError(nats.errors.Error):
    """TLS is required and the server does not offer it; nothing was sent."""


class Client(RobustClient):
    """A connection that sends nothing unencrypted if TLS is required, and can be aborted."""

    requires_tls: bool = False
    """Whether to send nothing before TLS, not even credentials."""
    loss: str = ""
    """Why the connection was given up, if the server did not close it."""

    @property
    def server_version(self) -> str:
        """Version of the server that is connected, or was last; empty before."""
        return str(self._server_info.get("version", ""))

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Refuse a server without TLS: called with its first line, before CONNECT."""
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
        self.abort()  # left over from a failed attempt
        await super()._connect_to_server(s)

    async def _attempt_reconnect(self) -> None:
        """Connect anew, whatever error occurs: nats-py ends at one that it does not expect."""
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
        """Connect anew if one of nats-py's tasks fails, without which the connection is silent."""
        try:
            await work
        except Exception as error:
            log.exception("an unexpected error on the connection to NATS; reconnecting")
            await self._process_op_err(error)

    async def _process_op_err(self, e: Exception) -> None:
        """Give up the connection; do not wait for an unresponsive server to read pending data."""
        self.loss = ""
        if self._pings_outstanding > UNANSWERED_PINGS:
            self.loss = f"it answered no ping for {PING_SECONDS * (UNANSWERED_PINGS + 1)} s"
        self.abort()
        await super()._process_op_err(e)
        self._release_senders()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Wake the flusher to send pending data; with `force_flush` wait until it has.

        nats-py's own method drops a cancellation, and waits forever for a flusher that ended with
        its connection.
        """
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
        """Send a ping behind pending data, so that its answer confirms their arrival.

        nats-py's own ping overtakes what was published just before.
        """
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(_PING)
        await self._flush_pending()

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


async def end_tasks(tasks: Iterable["asyncio.Task[Any] | None"]) -> None:
    """Cancel tasks until they have ended: nats-py sometimes swallows a cancellation.

    It does so where Python 3.11's ``asyncio.wait_for`` does: if what it waits for, such as a
    refused connection, ends at the same moment. A cancellation of the caller waits for the tasks.
    """
    cancelled = None
    left = {task for task in tasks if task is not None and task is not asyncio.current_task()}
    while left := {task for task in left if not task.done()}:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=0.1)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def tls_problem(error: BaseException) -> str:
    """Describe a TLS error; empty for an error of another kind."""
    if isinstance(error.__cause__, ssl.SSLError):  # aiohttp's, which lacks the attributes
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"TLS: the server's certificate is refused: {error.verify_message.rstrip('.')} "
            "(its authority is bus.ca_file, else one of the system's)"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        hint = " (bus.cert_file)" if "certificate" in reason else ""
        return f"TLS: the handshake failed: {reason}{hint}"
    return str(error) if isinstance(error, TlsError) else ""
