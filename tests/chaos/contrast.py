"""The same faults done to a plain nats-py publisher and subscriber."""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.account import Account, in_file
from tests.chaos.faults import LINES, RATE, Fault
from tests.chaos.lab import Lab, Process, numbered
from tests.conftest import eventually
from tests.paths import ROOT


async def _flow(
    folder: Path, rounds: int, act: Callable[[Lab, Process], Awaitable[None]]
) -> Account:
    chance = random.Random(rounds)
    lines = folder / "lines.lp"
    lines.write_bytes(numbered(LINES * rounds))
    stored = folder / "stored.lp"
    async with Lab(folder).open() as lab:

        def plain(name: str, *arguments: object) -> Process:
            words = [sys.executable, "-m", "tests.chaos.plain", name, *map(str, arguments)]
            process = Process(name, *words, log=folder / f"{name}.log", PYTHONPATH=str(ROOT))
            lab.processes.append(process)
            return process

        subscriber = plain("subscribe", lab.broker.url, stored)
        publisher = plain("publish", lab.broker.url, lines, RATE)
        await subscriber.start()
        await eventually(Path(f"{stored}.ready").exists, 60)
        await publisher.start()
        for _ in range(rounds):
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            await act(lab, subscriber)
        await publisher.wait(120)
        await asyncio.sleep(1)
        await subscriber.end()
        return Account.of(range(LINES * rounds), in_file(stored))


async def kill_subscriber(folder: Path, rounds: int) -> Account:
    """What comes while it is away goes to nobody."""

    async def act(_: Lab, subscriber: Process) -> None:
        await subscriber.kill()
        await subscriber.start()

    return await _flow(folder, rounds, act)


async def kill_broker(folder: Path, rounds: int) -> Account:
    """What it had not passed on is gone with it."""

    async def act(lab: Lab, _: Process) -> None:
        await lab.broker.kill()
        await asyncio.sleep(0.3)
        await lab.broker.start()

    return await _flow(folder, rounds, act)


CONTRAST: dict[str, Fault] = {
    "SIGKILL of the subscriber": kill_subscriber,
    "SIGKILL of the broker": kill_broker,
}
