"""Shipped recipes as real processes that are killed while they write."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats

from ccpipe.bus.nats.server import NatsServer
from tests.paths import ROOT

CLUSTER = "fox"
LINES = 5
"""Of each message."""


async def nothing(_: int) -> None:
    """Kill nothing else."""


class KilledBridges:
    """Bridges of one recipe, on a real server; they share the work."""

    interval = 0.002
    """Seconds between two messages."""

    def __init__(self, recipe: str, server: NatsServer, directory: Path, **options: str) -> None:
        """Prepare; `options` are added to the environment, as a site sets them."""
        self.server = server
        self.command = [sys.executable, "-m", "ccpipe", "bridge", f"{ROOT}/bridges/{recipe}.toml"]
        self.log = directory / "bridges.log"
        self.environment = os.environ | {
            "CCPIPE_BUS__SERVERS": server.url,
            "CCPIPE_CLUSTER": CLUSTER,
            "CCPIPE_SOURCE__ACK_WAIT": "1s",
            "CCPIPE_BATCH__MAX_WAIT": "100ms",
            **options,
        }
        self.published = 0
        self.is_publishing = True

    async def start(self) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self.command, env=self.environment, stdout=log, stderr=log
            )

    async def run(
        self,
        kills: int,
        stored: Callable[[], Awaitable[Counter[int]]],
        also: Callable[[int], Awaitable[None]] = nothing,
    ) -> Counter[int]:
        """Publish while two bridges are killed in turn; return what is stored in the end.

        `also` is called at each turn, with its number, while one of the bridges is down.
        """
        chance = random.Random()
        bridges = [await self.start() for _ in range(2)]
        publishing = asyncio.create_task(self.publish())
        try:
            for turn in range(kills):
                before = sum((await stored()).values())
                await self.until(stored, lambda found, at=before: found.total() > at)  # type: ignore[misc]
                await asyncio.sleep(chance.random() * 0.3)  # the time is random
                victim = bridges[turn % 2]
                victim.kill()
                assert await victim.wait() == -signal.SIGKILL
                await also(turn)
                bridges[turn % 2] = await self.start()
        finally:
            self.is_publishing = False
            await publishing
        try:
            await self.until(stored, lambda found: len(found) >= self.published)
        finally:
            for bridge in bridges:
                bridge.terminate()
            codes = [await bridge.wait() for bridge in bridges]
        # One that has only just begun ends by the signal itself.
        assert set(codes) <= {0, -signal.SIGTERM}, self.log.read_text()
        return await stored()

    async def until(
        self,
        stored: Callable[[], Awaitable[Counter[int]]],
        is_enough: Callable[[Counter[int]], bool],
    ) -> None:
        async with asyncio.timeout(180):
            while not is_enough(await stored()):
                await asyncio.sleep(0.05)

    async def publish(self) -> None:
        connection = await nats.connect(self.server.url)
        try:
            stream = connection.jetstream()
            await stream.add_stream(name="site", subjects=[f"{CLUSTER}.>"])
            while self.is_publishing:
                number = self.published
                lines = [
                    f"m,cluster={CLUSTER},hostname=n{number % 7},type=node,row={row} "
                    f"value={number} {1740052800 + number}"
                    for row in range(LINES)
                ]
                await stream.publish(f"{CLUSTER}.metrics", "\n".join(lines).encode())
                self.published += 1
                await asyncio.sleep(self.interval)
        finally:
            await connection.close()
