"""nats-py's client, made safe where it matters: nothing before TLS, no wait for a frozen server."""

import contextlib
import ssl
from typing import Any

import nats.errors
from nats.aio.client import Srv

from ccpipe.bus.nats.reader import RobustClient

PING_SECONDS = 8
UNANSWERED_PINGS = 2
"""A connection is given up at the ping after so many that were not answered: within 24 s."""


class TlsError(nats.errors.Error):
    """TLS is asked for and the server offers none; nothing was sent to it."""


class Client(RobustClient):
    """A connection that sends nothing in clear where TLS is required, and can be cut off."""

    requires_tls: bool = False
    """Whether to send nothing before TLS, not even credentials."""
    loss: str = ""
    """Why the connection was given up, where it was not closed by the server."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Refuse a server without TLS: this is called before CONNECT, with its first line."""
        await super()._process_info(info, initial_connection)
        if not (self.requires_tls and initial_connection) or self.options["tls_handshake_first"]:
            return
        assert self._current_server is not None
        scheme = self._current_server.uri.scheme
        if scheme != "wss":
            if info.get("tls_available") and scheme != "ws":
                info["tls_required"] = True  # it need not, but can
            if not info.get("tls_required") or scheme == "ws":
                raise TlsError(
                    "TLS is required (bus.tls, bus.ca_file or tls:// in bus.servers) and the "
                    "server does not offer it; no credentials were sent"
                )

    async def _connect_to_server(self, s: Srv) -> None:
        self.abort()  # what is left of an attempt that failed
        await super()._connect_to_server(s)

    async def _process_op_err(self, e: Exception) -> None:
        """Give the connection up without waiting until a server that is gone takes what is left."""
        self.loss = ""
        if isinstance(e, nats.errors.StaleConnectionError):
            self.loss = f"it answered no ping for {PING_SECONDS * (UNANSWERED_PINGS + 1)} s"
        self.abort()
        await super()._process_op_err(e)

    def abort(self) -> None:
        """Cut the connection off; what was not sent yet is discarded."""
        writer = getattr(self._transport, "_io_writer", None)  # websockets have none
        if writer is not None:
            writer.transport.abort()

    async def leave(self, *, flushed: bool) -> None:
        """Close the connection for good; without waiting for the server unless it is `flushed`."""
        if not flushed:
            self._pending, self._pending_data_size = [], 0
            self.abort()
        with contextlib.suppress(ConnectionError):
            await self.close()


def tls_problem(error: BaseException) -> str:
    """Say in words what is wrong with TLS; empty for an error of another kind."""
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
