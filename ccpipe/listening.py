"""Connections of the servers that listen: limited in number and time for all clients.

A client occupies a connection before it has shown a credential. `ConnectionLimits` limits the open
connections, in all and from one address, and their duration. It closes the one that has waited
longest rather than refuse a new one, so that clients that send their request at once are answered
while others keep theirs open. Some of the process's file descriptors are left to the rest of the
program.

HTTP servers on asyncio use `listen`, others `ConnectionLimits.admit` for each connection.
"""

import asyncio
import contextlib
import errno
import hmac
import logging
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ccpipe.process.background import background

if TYPE_CHECKING:
    import ssl

    from aiohttp import web

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
"""Maximum number of open connections of a server; fewer if the process has few descriptors."""
REQUEST_SECONDS = 30.0
"""Time limit for a request and its response, and for an idle connection."""
LOG_SECONDS = 60.0
"""Interval at which errors of clients are logged again."""
SHARE = 4
"""A server uses at most one part in this many of the process's file descriptors."""
RESERVE = 8
"""One part in this many of the descriptors is left to the rest of the program."""
BACKLOG = 64
"""Connections that the kernel queues for a server, and that asyncio accepts at once."""


class AcceptedSocket(socket.socket):
    """An admitted connection; it is released when it is closed."""

    limits: "ConnectionLimits"
    peer: Any
    deadline: float | None
    """When it is closed, unless a request begins or ends; None if it may last."""

    def close(self) -> None:
        self.limits.forget(self)
        super().close()


class ConnectionLimits:
    """The open connections of one server."""

    def __init__(
        self, name: str, *, connections: int = MAX_CONNECTIONS, seconds: float = REQUEST_SECONDS
    ) -> None:
        """Limit a server, named in the log, to some connections and to a time for a request."""
        self.name, self.seconds = name, seconds
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if self._descriptors == resource.RLIM_INFINITY:
            self._descriptors = SHARE * connections + RESERVE
        self.connections = max(2, min(connections, self._descriptors // SHARE))
        self.per_address = max(1, self.connections // 2)
        self._open: dict[Any, AcceptedSocket] = {}  # by peer, the longest without a request first
        self._lock = threading.RLock()
        self._reported: dict[str, tuple[float, int]] = {}

    def admit(self, accepted: socket.socket, peer: Any) -> tuple[AcceptedSocket, Any]:
        """Return the connection and its peer; close another one if there are too many.

        Raises ConnectionAbortedError if no other one can be closed; this one then is.
        """
        with self._lock:
            self.expire()
            same = [each for each in self._open.values() if each.peer[0] == peer[0]]
            is_admitted = True
            if len(same) >= self.per_address:
                is_admitted = self._close_oldest(same, f"too many connections from {peer[0]}")
            elif len(self._open) >= self.connections:
                is_admitted = self._close_oldest(list(self._open.values()), "too many connections")
            if accepted.fileno() >= self._descriptors - self._descriptors // RESERVE:
                # The kernel hands out the lowest free number: nearly all are in use.
                self.report("too few file descriptors", "a connection was closed")
                is_admitted = False
            if not is_admitted:
                accepted.close()
                raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
            connection = AcceptedSocket(
                accepted.family, accepted.type, accepted.proto, accepted.detach()
            )
            connection.limits, connection.peer = self, peer
            connection.deadline = time.monotonic() + self.seconds
            self._open[peer] = connection
            return connection, peer

    def _close_oldest(self, crowd: list[AcceptedSocket], reason: str) -> bool:
        for each in crowd:
            if each.deadline is not None:
                self.report(reason, "the one that waited longest for its request was closed")
                self._shut(each)
                return True
        self.report(reason, "a new one was refused")
        return False

    def _shut(self, connection: AcceptedSocket) -> None:
        """Shut a connection down; the task that reads or writes it sees that and closes it."""
        self.forget(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def restart(self, peer: Any) -> None:
        """Allow a connection the whole time again: a request began or ended."""
        self._set(peer, time.monotonic() + self.seconds)

    def keep(self, peer: Any) -> None:
        """Let a connection last until `restart`: its request has been let in."""
        self._set(peer, None)

    def _set(self, peer: Any, deadline: float | None) -> None:
        with self._lock:
            if connection := self._open.pop(peer, None):
                connection.deadline = deadline
                self._open[peer] = connection  # last: it is the youngest

    def expire(self) -> None:
        """Close connections whose time is over; call it regularly."""
        now = time.monotonic()
        with self._lock:
            for each in list(self._open.values()):
                if each.deadline is not None and each.deadline < now:
                    self._shut(each)

    def forget(self, connection: AcceptedSocket) -> None:
        with self._lock:
            if self._open.get(connection.peer) is connection:
                del self._open[connection.peer]

    def __len__(self) -> int:
        return len(self._open)

    def report(self, kind: str, what: str) -> None:
        """Log what a client did, once a minute for each kind, with the number of times."""
        now = time.monotonic()
        before, count = self._reported.get(kind, (-LOG_SECONDS, 0))
        if now - before < LOG_SECONDS:
            self._reported[kind] = before, count + 1
            return
        if len(self._reported) > MAX_CONNECTIONS:
            self._reported.clear()  # kinds name addresses, of which there are many
        self._reported[kind] = now, 0
        more = f" ({count} more since the last report)" if count else ""
        log.warning("%s: %s: %s%s", self.name, kind, what, more)


class ListeningSocket(socket.socket):
    """A socket whose `accept` keeps to limits."""

    limits: ConnectionLimits

    def accept(self) -> tuple[AcceptedSocket, Any]:
        return self.limits.admit(*super().accept())


def _bind(host: str, port: int, limits: ConnectionLimits) -> list[ListeningSocket]:
    """Return sockets for all addresses of a host; raises OSError."""
    bound: list[ListeningSocket] = []
    with contextlib.ExitStack() as on_error:
        for family, kind, proto, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                sock = ListeningSocket(family, kind, proto)
            except OSError:  # a machine without IPv6, though `localhost` has such an address
                continue
            on_error.callback(sock.close)
            sock.limits = limits
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setblocking(False)
            sock.bind(address)
            bound.append(sock)
        on_error.pop_all()
    if not bound:
        raise OSError(errno.EAFNOSUPPORT, "no address of a known family")
    return bound


async def listen(
    app: "web.Application",
    host: str,
    port: int,
    limits: ConnectionLimits,
    *,
    tls: "ssl.SSLContext | None" = None,
    shutdown_seconds: float = 60.0,
) -> "web.AppRunner":
    """Serve an application of aiohttp at an address, within limits; raises OSError.

    A handler that needs longer than the limit calls ``limits.keep(peer_of(request))`` when it has
    authenticated the client, and limits its time itself.
    """
    from aiohttp import web

    @web.middleware
    async def restart(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        peer = peer_of(request)
        limits.restart(peer)
        try:
            return await handler(request)
        except web.RequestPayloadError as error:
            limits.report("malformed request", f"body from {request.remote}: {error}")
            return web.Response(status=400, text="the body is malformed\n")
        finally:
            limits.restart(peer)

    async def expire() -> None:
        while True:
            await asyncio.sleep(min(1.0, limits.seconds / 4))
            limits.expire()

    async def expiring(_: web.Application) -> AsyncIterator[None]:
        task = background(expire(), "ccpipe-connections")
        yield
        task.cancel()

    app.middlewares.insert(0, restart)
    app.cleanup_ctx.append(expiring)
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        shutdown_timeout=shutdown_seconds,
        lingering_time=1.0,
        logger=_RequestLog(limits),
    )
    await runner.setup()
    try:
        for sock in _bind(host, port, limits):
            await web.SockSite(runner, sock, ssl_context=tls, backlog=BACKLOG).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


def peer_of(request: "web.Request") -> Any:
    """Return the peer of a request, which identifies its connection."""
    return request.transport and request.transport.get_extra_info("peername")


def is_same_secret(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    pair = [text.encode(errors="surrogatepass") for text in (given, wanted)]
    return hmac.compare_digest(*pair)


class _RequestLog(logging.LoggerAdapter[logging.Logger]):
    """Logs errors of aiohttp's server; a malformed request is the client's, and one line."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(log)
        self._limits = limits

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        from aiohttp.http_exceptions import HttpProcessingError

        error = more.get("exc_info")
        if isinstance(error, HttpProcessingError):
            client = args[0] if args else "?"
            self._limits.report("malformed request", f"from {client}: {type(error).__name__}")
        else:
            super().log(level, msg, *args, **more)
