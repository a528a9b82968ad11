"""SIGKILL and SIGSTOP of the bridge, of the broker and of both."""

import asyncio
import random
from pathlib import Path

from tests.chaos.account import Account, in_stream, is_in_order
from tests.chaos.faults.flow import LINES, RATE, connected, drained, fault, finished, repeated
from tests.chaos.lab import Lab, Process, numbered

COPY = "copy.metrics"
"""The subject of a bridge that also reads from the bus."""


@fault("SIGKILL of the bridge")
async def kill_bridge(directory: Path, rounds: int) -> Account:
    """Messages that it had not acknowledged are redelivered."""
    return await repeated(directory, rounds, bridge_alone)


async def bridge_alone(_: Lab, bridge: Process) -> None:
    await bridge.kill()
    await bridge.start()


@fault("SIGKILL of a bridge from one stream into another")
async def kill_bridge_onto_the_bus(directory: Path, rounds: int) -> Account:
    """Messages published but not acknowledged are published again; the broker drops duplicates."""
    chance = random.Random(rounds)
    async with Lab(directory).open() as lab:
        bridge = lab.bridge(f'use = "nats"\nsubjects = {{ metrics = "{COPY}" }}')
        await bridge.start()
        client = await lab.connect()
        copies = await client.subscribe(COPY)
        for number in range(rounds):
            sender = lab.send(numbered(LINES, first=number * LINES), rate=RATE)
            await sender.start()
            for _ in range(chance.randint(1, 5)):
                await copies.next_msg(60)
            await bridge.kill()
            await bridge.start()
            assert await sender.wait() == 0, sender.text()
            await drained(lab)
            await connected(lab)
            while copies.pending_msgs:
                await copies.next_msg()
        dead = await finished(lab, bridge)
        stored = await in_stream(client, COPY)
        await client.close()
        assert is_in_order(stored), "a line overtook another one of its node"
        return Account.of(range(LINES * rounds), stored, dead)


@fault("SIGKILL of the broker")
async def kill_broker(directory: Path, rounds: int) -> Account:
    """Publisher and bridge reconnect."""

    async def act(lab: Lab, _: Process) -> None:
        await lab.broker.kill()
        await asyncio.sleep(0.3)
        await lab.broker.start()

    return await repeated(directory, rounds, act)


@fault("SIGSTOP of the broker for seconds")
async def freeze_broker(directory: Path, rounds: int) -> Account:
    """It accepts bytes and does not respond."""

    async def act(lab: Lab, _: Process) -> None:
        await lab.broker.freeze(3)

    return await repeated(directory, rounds, act)


@fault("SIGSTOP of the bridge beyond ack_wait")
async def freeze_bridge(directory: Path, rounds: int) -> Account:
    """The broker redelivers everything."""

    async def act(_: Lab, bridge: Process) -> None:
        await bridge.freeze(4)

    return await repeated(directory, rounds, act)


@fault("SIGKILL of broker and bridge at once")
async def kill_both(directory: Path, rounds: int) -> Account:
    """As in a power failure of the machine that runs both, except for its disk."""
    return await repeated(directory, rounds, broker_and_bridge)


async def broker_and_bridge(lab: Lab, bridge: Process) -> None:
    await asyncio.gather(lab.broker.kill(), bridge.kill())
    await lab.broker.start()
    await bridge.start()
