"""Silent nodes: kept in a file over restarts, until somebody acknowledges them.

``POST /api/nodes/acknowledge`` takes nodes out of the lists until they send again. Nothing is
published on the bus.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ccpipe.atomic_file import replace_content
from ccpipe.dashboard.access import Role, requires
from ccpipe.errors import MissingExtra, UsageError, system_reason
from ccpipe.live.feed import LiveFeed
from ccpipe.live.node import MAX_INTERVAL, MAX_TEXT
from ccpipe.live.nodes import MAX_SILENT
from ccpipe.process.background import background, end_tasks

try:
    from aiohttp import web
except ImportError:
    raise MissingExtra("aiohttp", "dashboard") from None

log = logging.getLogger(__name__)

SAVE_SECONDS = 10.0
MAX_FILE = 16 * 2**20


class SilentNode(NamedTuple):
    """A row of the file."""

    cluster: str
    hostname: str
    seen: float
    """When its last metrics arrived, in seconds since the epoch."""
    interval: float
    """Seconds between its payloads."""


class Acknowledgement(msgspec.Struct, forbid_unknown_fields=True):
    """The nodes to take out of the lists, as cluster and hostname."""

    nodes: list[tuple[str, str]]


class SilentNodes:
    """The silent nodes of a dashboard."""

    def __init__(self, feed: LiveFeed, path: Path | None) -> None:
        """Keep them in the file `path`; None keeps them in memory only."""
        self.feed = feed
        self.path = path
        self._saved: list[SilentNode] = []

    @requires(Role.SUPPORT)
    async def acknowledge(self, request: web.Request) -> web.Response:
        """Return the number of nodes that were silent and are no longer listed."""
        try:
            asked = msgspec.json.decode(await request.read(), type=Acknowledgement)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UsageError(f"not an acknowledgement: {error}") from None
        nodes = self.feed.state.nodes
        done = [id_ for id_ in asked.nodes if nodes.dismiss(id_)]
        if done:
            log.info("%d silent nodes acknowledged, the first is %s", len(done), "/".join(done[0]))
            await self.save()
        return web.json_response({"acknowledged": len(done)})

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Restore the nodes of the file, and save them while the dashboard runs."""
        self.restore()
        saving = background(self._save_regularly(), "ccpipe-silent-nodes")
        yield
        await end_tasks([saving])
        await self.save()

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self.save()

    def restore(self) -> None:
        """Read the file; one that cannot be read is logged and later replaced."""
        if self.path is None or not self.path.exists():
            return
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_FILE)
            rows = msgspec.json.decode(content, type=list[SilentNode])
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            log.warning("%s: silent nodes of the last run are not shown: %s", self.path, error)
            return
        self._saved = rows[:MAX_SILENT]
        for row in self._saved:
            id_ = (row.cluster[:MAX_TEXT], row.hostname[:MAX_TEXT])
            self.feed.state.nodes.restore(id_, row.seen, min(max(row.interval, 0.0), MAX_INTERVAL))

    async def save(self) -> None:
        """Write the file if the silent nodes have changed."""
        rows = [
            SilentNode(*node.id, node.seen, node.interval) for node in self.feed.state.nodes.silent
        ]
        if self.path is None or rows == self._saved:
            return
        self._saved = rows
        content = msgspec.json.encode(rows)
        try:
            await asyncio.to_thread(_write, self.path, content)
        except OSError as error:
            log.warning("%s: silent nodes are not saved: %s", self.path, system_reason(error))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_content(path, content, 0o600)
