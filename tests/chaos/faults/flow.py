"""Lines that flow from a publisher through a bridge into a store while something is done."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats.errors
from nats.js.api import ConsumerInfo

from tests.chaos.account import Account, in_file, in_stream, is_in_order
from tests.chaos.lab import Lab, Process, numbered

Fault = Callable[[Path, int], Awaitable[Account]]
Act = Callable[[Lab, Process], Awaitable[None]]
FAULTS: dict[str, Fault] = {}
"""By what the page calls them; `rounds` is how often each is repeated."""

LINES = 3000
"""Lines that are published in each round."""
RATE = 2000
"""Lines per second."""


def fault(name: str) -> Callable[[Fault], Fault]:
    def register(function: Fault) -> Fault:
        FAULTS[name] = function
        return function

    return register


async def drained(lab: Lab, durable: str = "chaos", seconds: float = 90) -> None:
    await _consumer(
        lab, durable, seconds, lambda info: not info.num_pending and not info.num_ack_pending
    )


async def connected(lab: Lab, durable: str = "chaos", seconds: float = 90) -> None:
    await _consumer(lab, durable, seconds, lambda info: bool(info.num_waiting))


async def _consumer(
    lab: Lab, durable: str, seconds: float, condition: Callable[[ConsumerInfo], bool]
) -> None:
    client = await lab.connect()
    jetstream = client.jetstream(timeout=10)
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    stream = await jetstream.find_stream_name_by_subject(lab.subject)
                    info = await jetstream.consumer_info(stream, durable)
                    if condition(info):
                        return
                except (nats.errors.Error, TimeoutError):
                    pass  # it is being elected, or made
                await asyncio.sleep(0.2)
    finally:
        await client.close()


async def dead_letters(lab: Lab) -> list[int]:
    client = await lab.connect()
    try:
        return await in_stream(client)
    finally:
        await client.close()


async def sent(lab: Lab) -> None:
    sender = lab.process("send")
    assert sender is not None
    assert await sender.wait(180) == 0, sender.text()


async def flowing(
    lab: Lab, sink: str, lines: bytes, *, translate: str = "", **environ: str
) -> Process:
    """Start a bridge into a sink, and publish lines; return the bridge."""
    bridge = lab.bridge(sink, translate=translate, **environ)
    sender = lab.send(lines, rate=RATE, **environ)
    await bridge.start()
    await sender.start()
    return bridge


async def finished(lab: Lab, bridge: Process) -> list[int]:
    """Wait until everything is published and acknowledged; return the ids of dead letters."""
    await sent(lab)
    await drained(lab)
    assert await bridge.end() == 0, bridge.text()
    return await dead_letters(lab)


async def repeated(directory: Path, rounds: int, act: Act) -> Account:
    """Send numbered lines from a publisher through a bridge into a file; run `act` meanwhile."""
    async with Lab(directory).open() as lab:
        bridge = lab.bridge(f'use = "file"\npath = "{directory}/stored.lp"')
        await meanwhile(lab, bridge, rounds, act)
        dead = await finished(lab, bridge)
        stored = in_file(directory / "stored.lp")
        assert is_in_order(stored), "a line overtook another one of its node"
        return Account.of(range(LINES * rounds), stored, dead)


async def meanwhile(lab: Lab, bridge: Process, rounds: int, act: Act) -> None:
    """Start a bridge and a publisher, and act as often as there are rounds."""
    chance = random.Random(rounds)
    sender = lab.process("send") or lab.send(numbered(LINES * rounds), rate=RATE)
    if not bridge.is_running:
        await bridge.start()
    await sender.start()
    for _ in range(rounds):
        await asyncio.sleep(chance.uniform(0.5, 1.5))
        await act(lab, bridge)
