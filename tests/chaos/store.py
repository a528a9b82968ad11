"""An unreliable HTTP store: it fails, hangs, closes, and answers like a login page."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from aiohttp import web

from tests.chaos.account import in_lines
from tests.sinks.answers import served


class LyingStore:
    """Accepts lines as VictoriaMetrics does, now and then, and keeps them in `stored`.

    With `seconds` it accepts everything, but answers that much later.
    """

    def __init__(self, seed: int = 1, *, seconds: float = 0) -> None:
        self.stored: list[int] = []
        self.url = ""
        self.is_honest = bool(seconds)
        self.seconds = seconds
        self._random = random.Random(seed)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["LyingStore"]:
        async with served(self._answer) as self.url:
            yield self

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        payload = await request.read()
        fault = "none" if self.is_honest else self._random.choice(_FAULTS)
        if fault == "login page":
            return web.Response(text="<html>Please log in</html>")
        if fault == "500":
            return web.Response(status=500)
        if fault == "hang":
            await asyncio.sleep(3)
            return web.Response(status=504)
        if fault == "close" and request.transport is not None:
            request.transport.close()
        if fault in ("none", "stored, then 503"):
            self.stored += in_lines(payload)
            await asyncio.sleep(self.seconds)
        return web.Response(status=503 if fault == "stored, then 503" else 204)


_FAULTS = ["none", "none", "login page", "500", "hang", "close", "stored, then 503"]
