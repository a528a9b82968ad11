"""SIGKILL and SIGSTOP of the bridge, of the broker and of both."""

import asyncio
from pathlib import Path

from tests.chaos.account import Account
from tests.chaos.faults.flow import fault, repeated
from tests.chaos.lab import Lab, Process


@fault("SIGKILL of the bridge")
async def kill_bridge(folder: Path, rounds: int) -> Account:
    """What it had not acknowledged is delivered again."""

    async def act(_: Lab, bridge: Process) -> None:
        await bridge.kill()
        await bridge.start()

    return await repeated(folder, rounds, act)


@fault("SIGKILL of the broker")
async def kill_broker(folder: Path, rounds: int) -> Account:
    """Publisher and bridge reconnect."""

    async def act(lab: Lab, _: Process) -> None:
        await lab.broker.kill()
        await asyncio.sleep(0.3)
        await lab.broker.start()

    return await repeated(folder, rounds, act)


@fault("SIGSTOP of the broker for seconds")
async def freeze_broker(folder: Path, rounds: int) -> Account:
    """It takes bytes and answers nothing."""

    async def act(lab: Lab, _: Process) -> None:
        await lab.broker.freeze(3)

    return await repeated(folder, rounds, act)


@fault("SIGSTOP of the bridge beyond ack_wait")
async def freeze_bridge(folder: Path, rounds: int) -> Account:
    """The broker hands everything over again."""

    async def act(_: Lab, bridge: Process) -> None:
        await bridge.freeze(4)

    return await repeated(folder, rounds, act)


@fault("SIGKILL of broker and bridge at once")
async def kill_both(folder: Path, rounds: int) -> Account:
    """As in a power cut of the machine that runs both, but for its disk."""
    return await repeated(folder, rounds, broker_and_bridge)


async def broker_and_bridge(lab: Lab, bridge: Process) -> None:
    """Kill both and start them again."""
    await asyncio.gather(lab.broker.kill(), bridge.kill())
    await lab.broker.start()
    await bridge.start()
