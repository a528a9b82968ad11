"""For contrast: the publisher and the subscriber of nats-py's own examples, without ccpipe.

``python -m tests.chaos.plain publish URL FILE RATE`` and ``... subscribe URL FILE``.
"""

import asyncio
import signal
import sys
from pathlib import Path

import nats
from nats.aio.msg import Msg

BATCH = 100
"""Lines in a message."""


async def _quiet(_: Exception) -> None:
    """Do not report an unreachable broker."""


async def publish(url: str, path: Path, rate: int) -> None:
    """Publish the lines of a file; while the broker is down, nats-py buffers them."""
    client = await nats.connect(url, max_reconnect_attempts=-1, error_cb=_quiet)
    lines = path.read_bytes().splitlines(keepends=True)
    for start in range(0, len(lines), BATCH):
        await client.publish("c.metrics", b"".join(lines[start : start + BATCH]))
        await asyncio.sleep(BATCH / rate)
    while client.is_reconnecting:
        await asyncio.sleep(0.1)
    await client.drain()


async def subscribe(url: str, path: Path) -> None:
    client = await nats.connect(url, max_reconnect_attempts=-1, error_cb=_quiet)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    with path.open("ab") as file:

        async def write(message: Msg) -> None:
            file.write(message.data)
            file.flush()

        await client.subscribe("c.metrics", cb=write)
        await client.flush()
        Path(f"{path}.ready").touch()
        await ended.wait()
        await client.drain()


if __name__ == "__main__":
    role, address, file_, *rest = sys.argv[1:]
    work = (
        publish(address, Path(file_), int(rest[0]))
        if role == "publish"
        else subscribe(address, Path(file_))
    )
    asyncio.run(work)
