"""A server with given responses, for what real stores cannot be made to do."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web


@contextlib.asynccontextmanager
async def served(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Answer every request at an address, which is given."""
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Answers:
    """Keeps its requests."""

    def __init__(self) -> None:
        self.status, self.text, self.silent = 204, "", False
        self.headers: dict[str, str] = {}
        self.pages: dict[str, str] = {}
        """Texts of paths that are answered with 200."""
        self.seconds = 0.0
        """How long each answer takes."""
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.read())  # aiohttp has unpacked it
        if self.silent:
            assert request.transport is not None
            request.transport.abort()
        await asyncio.sleep(self.seconds)
        if request.path in self.pages:
            return web.Response(text=self.pages[request.path])
        is_redirect = self.status in (301, 307)
        headers = self.headers | ({"Location": "/elsewhere"} if is_redirect else {})
        return web.Response(status=self.status, text=self.text, headers=headers)
