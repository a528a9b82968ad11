"""A server that answers as it is told: what no real store can be made to do."""

import asyncio

from aiohttp import web


class Answers:
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.text, self.silent = 204, "", False
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
        headers = {"Location": "/elsewhere"} if self.status in (301, 307) else {}
        return web.Response(status=self.status, text=self.text, headers=headers)
