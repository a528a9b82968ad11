"""The dashboard over HTTP: the page's files, a WebSocket of frames, history, and access control."""

import asyncio
import contextlib
import gzip
import hashlib
import importlib.resources
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ccpipe import __version__
from ccpipe.dashboard.access import (
    AccessError,
    Role,
    Viewer,
    check_role,
    current_viewer,
    public,
    requires,
    role_required_by,
    set_viewer,
)  # fmt: skip
from ccpipe.dashboard.jobs_api import JobsApi
from ccpipe.dashboard.nodes_api import SilentNodes
from ccpipe.dashboard.queries import answer, check_access, job_key, read_query
from ccpipe.dashboard.sign_in import SESSION_SECONDS, SignIn, is_loopback, read_address
from ccpipe.dashboard.views import view_of
from ccpipe.errors import ConfigError, MissingExtra, UnavailableError, UsageError, system_reason
from ccpipe.history.interfaces import History
from ccpipe.listening import ConnectionLimits, listen, peer_of
from ccpipe.live.feed import LiveFeed

try:
    from aiohttp import WSCloseCode, WSMsgType, web
except ImportError:
    raise MissingExtra("aiohttp", "dashboard") from None

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_PAGES = 64
MAX_QUERY = 64 * 2**10
SEND_SECONDS = 30.0
"""Time after which a page that does not accept frames is disconnected."""

FORBIDDEN = 4403
"""Closes the WebSocket of a page that requests what its viewer may not see."""
SIGNED_OUT = 4401
"""Closes the WebSocket of a page whose viewer must sign in, or be authenticated again."""
SOCKET_SECONDS = 3600.0
"""Time after which a page must connect again, so that a proxy notices that a user signed out."""

TYPES = {
    ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
}  # fmt: skip

SECURITY = {
    # No inline script or style, nothing from elsewhere, no frames, no forms.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page, in memory."""

    body: bytes
    compressed: bytes
    """The body as gzip."""
    type: str
    tag: str


def page_files() -> dict[str, File]:
    """Return the page's files by their paths; they are part of the package."""
    found: dict[str, File] = {}
    top = importlib.resources.files("ccpipe.dashboard") / "static"
    for directory, prefix in ((top, ""), (top / "vendor", "vendor/"), (top / "pages", "pages/")):
        for each in directory.iterdir():
            suffix = "." + each.name.rpartition(".")[2]
            if suffix in TYPES:
                body = each.read_bytes()
                tag = hashlib.sha256(body).hexdigest()[:16]
                found[f"{prefix}{each.name}"] = File(
                    body, gzip.compress(body, mtime=0), TYPES[suffix], tag
                )
    return found


class DashboardServer:
    """Serves the page until it is left; an async context manager."""

    def __init__(
        self,
        feed: LiveFeed,
        *,
        listen: str | None = None,
        sign_in: SignIn | None = None,
        history: History | None = None,
        silent_nodes: Path | None = None,
    ) -> None:
        """Listen at `listen`, or at the address of the options; raises ConfigError.

        Other machines may be listened to only with access control. The file `silent_nodes` keeps
        silent nodes over restarts.
        """
        self.sign_in = sign_in or SignIn()
        address = listen or self.sign_in.options.listen
        self.host, self.port = read_address("dashboard.listen", address)
        if self.sign_in.is_open and not is_loopback(self.host):
            raise ConfigError(
                f"the dashboard needs a token or a proxy's user header to listen on {self.host}"
            )
        self.feed = feed
        self.history = history
        self.jobs = JobsApi(feed, history)
        self.silent_nodes = SilentNodes(feed, silent_nodes)
        self._files = page_files()
        self._pages: set[web.WebSocketResponse] = set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.sign_in.options.base_path}/"

    async def __aenter__(self) -> Self:
        """Listen; raises ConfigError if the address is taken."""
        app = self.application()
        self.limits = ConnectionLimits("dashboard")
        try:
            self._runner = await listen(
                app, self.host, self.port, self.limits, shutdown_seconds=1.0
            )
        except OSError as error:
            reason = system_reason(error)
            raise UnavailableError(f"cannot listen on {self.host}:{self.port}: {reason}") from None
        if not self.port:
            self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        for page in set(self._pages):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await page.close(code=WSCloseCode.GOING_AWAY)
        await self._runner.cleanup()

    def application(self) -> web.Application:
        """Return what is served; a handler without a rule is refused."""
        app = web.Application(middlewares=[self._guard], client_max_size=MAX_QUERY)
        app.cleanup_ctx.append(self.jobs.run)
        base = self.sign_in.options.base_path
        if base:
            app.router.add_get(base, self._to_page)
        for prefix in dict.fromkeys((base, "")):  # proxies may remove the prefix
            app.add_routes(
                [
                    web.get(f"{prefix}/health", self._health),
                    web.get(f"{prefix}/ready", self._ready),
                    web.get(f"{prefix}/api/about", self._about),
                    web.post(f"{prefix}/api/login", self._login),
                    web.get(f"{prefix}/api/live", self._live),
                    web.post(f"{prefix}/api/history", self._history),
                    web.post(f"{prefix}/api/nodes/acknowledge", self.silent_nodes.acknowledge),
                    *self.jobs.routes(prefix),
                    web.get(f"{prefix}/{{path:.*}}", self._file),
                ]
            )
        app.on_response_prepare.append(_add_headers)
        app.cleanup_ctx.append(self.silent_nodes.run)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse whom the handler's rule does not admit, and requests of foreign pages."""
        try:
            self.sign_in.check(request)
            if not self._is_admitted(request):
                return self._unauthenticated()
            response = await handler(request)
        except AccessError as error:
            return _refused(403, str(error))
        except UsageError as error:
            return _refused(400, str(error))
        except UnavailableError as error:
            return _refused(503, str(error))
        if isinstance(response, web.Response) and response.content_type == "application/json":
            response.enable_compression()
        return response

    def _unauthenticated(self) -> web.Response:
        if self.sign_in.tokens is None:
            return _refused(401, "the proxy passes no user: sign in there")
        refusal = _refused(401, "you are not signed in, or the token is wrong")
        refusal.headers["WWW-Authenticate"] = 'Bearer realm="ccpipe"'
        return refusal

    def _is_admitted(self, request: web.Request) -> bool:
        """Apply the handler's rule; return False if the viewer must sign in first."""
        if request.match_info.http_exception is not None:
            return True  # there is no such route
        required = role_required_by(request.match_info.handler)
        if required == Role.PUBLIC:
            return True
        viewer = self._viewer(request)
        if viewer is None:
            return False
        check_role(viewer, required)
        set_viewer(viewer)
        return True

    def _viewer(self, request: web.Request) -> Viewer | None:
        return self.sign_in.viewer(request, self._cookie())

    def _cookie(self) -> str:
        return f"ccpipe-dashboard-{self.port}"  # cookies do not distinguish ports

    @public
    async def _login(self, request: web.Request) -> web.Response:
        """Exchange a token for a cookie that scripts cannot read."""
        given = (await request.read()).decode(errors="replace")
        session = self.sign_in.session_of(given.strip())
        if session is None:
            await asyncio.sleep(0.2)
            return _refused(401, "the token is wrong")
        response = web.Response(status=204)
        response.set_cookie(
            self._cookie(), session, httponly=True, samesite="Strict",
            path=f"{self.sign_in.options.base_path}/", max_age=SESSION_SECONDS,
            secure=self.sign_in.is_secure(request),
        )  # fmt: skip
        return response

    @public
    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    @public
    async def _ready(self, _: web.Request) -> web.Response:
        """Answer as telemetry does, without the reason: it names the broker."""
        reason = self.feed.bus.telemetry.why_not_ready()
        return web.Response(text="not ready\n" if reason else "ok\n", status=503 if reason else 200)

    @requires(Role.USER)
    async def _about(self, _: web.Request) -> web.Response:
        viewer = current_viewer()
        return web.json_response(
            {
                "version": __version__,
                "history": self.history is not None,
                "cluster": self.feed.site.cluster,
                "user": viewer.user,
                "role": viewer.role.name.lower(),
            }
        )

    @public
    async def _to_page(self, _: web.Request) -> web.Response:
        """Add the slash without which the page's relative links would be others."""
        base = self.sign_in.options.base_path
        return web.Response(status=308, headers={"Location": f"{base}/"})

    @public
    async def _file(self, request: web.Request) -> web.Response:
        file = self._files.get(request.match_info["path"] or "index.html")
        if file is None:
            return _refused(404, "page not found")
        headers = {
            "ETag": f'W/"{file.tag}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding",
        }  # fmt: skip
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        body = file.body
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = file.compressed, "gzip"
        return web.Response(body=body, content_type=file.type, charset="utf-8", headers=headers)

    @requires(Role.USER)
    async def _history(self, request: web.Request) -> web.Response:
        if self.history is None:
            raise UsageError("no store to read history from: start with --history")
        query = read_query(await request.read())
        self.limits.keep(peer_of(request))  # the query limits its time
        key = job_key(query)
        job = await self.jobs.job(key) if key is not None else None
        check_access(current_viewer(), self.feed, query, job)
        found = await answer(self.feed, self.history, self.jobs.indexer, query, job)
        return web.Response(body=found)

    @requires(Role.USER)
    async def _live(self, request: web.Request) -> web.StreamResponse:
        """Send frames of the view last requested by the page, one per second."""
        if len(self._pages) >= MAX_PAGES:
            return _refused(503, "too many pages are open")
        self.limits.keep(peer_of(request))  # until the page is closed or answers no heartbeat
        socket = web.WebSocketResponse(heartbeat=20, max_msg_size=MAX_QUERY, compress=False)
        await socket.prepare(request)
        self._pages.add(socket)
        sender: asyncio.Task[None] | None = None
        until = asyncio.get_running_loop().time() + SOCKET_SECONDS
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
                if sender is not None:
                    sender.cancel()
                    await asyncio.gather(sender, return_exceptions=True)
                try:
                    view = view_of(self.feed, message.data, current_viewer())
                except AccessError as error:
                    await _close(socket, FORBIDDEN, error)
                    break
                except UsageError as error:
                    await _close(socket, WSCloseCode.POLICY_VIOLATION, error)
                    break
                sender = asyncio.create_task(self._send(request, socket, view.frame, until))
        finally:
            self._pages.discard(socket)
            if sender is not None:
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
        return socket

    async def _send(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        frame: Callable[[], bytes],
        until: float,
    ) -> None:
        """Send a frame at once and then every second; a slow page gets fewer."""
        clock = asyncio.get_running_loop().time
        try:
            while self._viewer(request) == current_viewer() and clock() < until:
                async with asyncio.timeout(SEND_SECONDS):
                    await socket.send_bytes(frame())
                async with self.feed.ticked:
                    await self.feed.ticked.wait()
            await socket.close(code=SIGNED_OUT)
        except AccessError as error:
            await _close(socket, FORBIDDEN, error)
        except (TimeoutError, ConnectionError):
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
        except Exception:
            log.exception("internal error of the dashboard")
            await socket.close(code=WSCloseCode.INTERNAL_ERROR)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SECURITY)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Server"] = "ccpipe"


async def _close(socket: web.WebSocketResponse, code: int, error: Exception) -> None:
    await socket.close(code=code, message=str(error).encode()[:120])


def _refused(status: int, reason: str) -> web.Response:
    return web.Response(status=status, text=f"{reason}\n")
