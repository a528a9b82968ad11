"""Publish numbered lines until all are stored; each is published again until the broker has it.

python tests/site/numbered.py CONFIGURATION FIRST COUNT RATE
"""

import asyncio
import sys
from collections.abc import Awaitable
from pathlib import Path

from ccpipe import connect
from ccpipe.errors import UnavailableError
from ccpipe.message import metric

NAME = "numbered"
BEGIN = 1_790_000_000
"""Time of the first line in seconds; the others are a second apart."""
MESSAGE = 10
"""Lines of a message."""


async def publish(config: Path, first: int, count: int, rate: int) -> None:
    async with connect(config=config) as bus:
        tags = {"cluster": "local", "hostname": "n1", "type": "node"}
        for start in range(first, first + count, MESSAGE):
            lines = [
                metric(NAME, float(number), time=(BEGIN + number) * 10**9, tags=tags)
                for number in range(start, start + MESSAGE)
            ]
            while not await is_stored(bus.publish_records(lines)):
                await asyncio.sleep(0.2)
            await asyncio.sleep(MESSAGE / rate)


async def is_stored(publishing: Awaitable[None]) -> bool:
    try:
        await publishing
    except UnavailableError:
        return False
    return True


if __name__ == "__main__":
    config, *numbers = sys.argv[1:]
    asyncio.run(publish(Path(config), *map(int, numbers)))
