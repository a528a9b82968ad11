"""The same faults done to a plain nats-py publisher and subscriber, and to Telegraf."""

import asyncio
import sys
from pathlib import Path

from tests.chaos.account import Account, in_file
from tests.chaos.faults import LINES, RATE, Fault
from tests.chaos.faults.flow import Act, meanwhile, sent
from tests.chaos.lab import Lab, Process, numbered
from tests.chaos.telegraf import CORE, JETSTREAM, telegraf, write_configuration
from tests.conftest import eventually
from tests.paths import ROOT


async def kill_subscriber(_: Lab, subscriber: Process) -> None:
    """Messages published while it is down are lost."""
    await subscriber.kill()
    await subscriber.start()


async def kill_broker(lab: Lab, _: Process) -> None:
    """Messages that it had not delivered are lost."""
    await lab.broker.kill()
    await asyncio.sleep(0.3)
    await lab.broker.start()


def _plain(act: Act) -> Fault:
    async def flow(directory: Path, rounds: int) -> Account:
        stored = directory / "stored.lp"
        async with Lab(directory).open() as lab:

            def plain(name: str, role: str, *arguments: object) -> Process:
                words = [sys.executable, "-m", "tests.chaos.plain", role, *map(str, arguments)]
                process = Process(name, *words, log=directory / f"{name}.log", PYTHONPATH=str(ROOT))
                lab.processes.append(process)
                return process

            lines = directory / "lines.lp"
            lines.write_bytes(numbered(LINES * rounds))
            subscriber = plain("bridge", "subscribe", lab.broker.url, stored)
            plain("send", "publish", lab.broker.url, lines, RATE)
            await subscriber.start()
            await eventually(Path(f"{stored}.ready").exists, 60)
            await meanwhile(lab, subscriber, rounds, act)
            await sent(lab)
            await asyncio.sleep(1)
            await subscriber.end()
            return Account.of(range(LINES * rounds), in_file(stored))

    return flow


def _telegraf(consumes: str, act: Act) -> Fault:
    """Telegraf, fed by `ccpipe send`, is stopped when its file stops growing."""

    async def flow(directory: Path, rounds: int) -> Account:
        stored = directory / "stored.lp"
        async with Lab(directory).open() as lab:
            client = await lab.connect()
            await client.jetstream().add_stream(name="site", subjects=["c.metrics"])
            await client.close()
            conf = write_configuration(directory, lab.broker.url, stored, consumes)
            log = directory / "telegraf.log"
            bridge = Process("bridge", telegraf(), "--config", str(conf), log=log)
            lab.processes.append(bridge)
            await bridge.start()
            await eventually(lambda: "Loaded outputs" in bridge.text(), 60)
            await asyncio.sleep(2)
            lab.send(numbered(LINES * rounds), rate=RATE)
            await meanwhile(lab, bridge, rounds, act)
            await sent(lab)
            await _is_quiet(stored)
            await bridge.end()
            return Account.of(range(LINES * rounds), in_file(stored))

    return flow


async def _is_quiet(path: Path, seconds: float = 40) -> None:
    """Wait until a file has not grown for longer than JetStream waits for acknowledgements."""
    size = -1
    while path.exists() and size != (size := path.stat().st_size):
        await asyncio.sleep(seconds)


CONTRAST: dict[str, Fault] = {
    "nats-py on core NATS, SIGKILL of the subscriber": _plain(kill_subscriber),
    "nats-py on core NATS, SIGKILL of the broker": _plain(kill_broker),
    "Telegraf on core NATS, SIGKILL of Telegraf": _telegraf(CORE, kill_subscriber),
    "Telegraf on core NATS, SIGKILL of the broker": _telegraf(CORE, kill_broker),
    "Telegraf on JetStream, SIGKILL of Telegraf": _telegraf(JETSTREAM, kill_subscriber),
    "Telegraf on JetStream, SIGKILL of the broker": _telegraf(JETSTREAM, kill_broker),
}


def is_possible(name: str) -> str:
    """Return why a contrast cannot be made here; empty if it can."""
    if name.startswith("Telegraf") and not telegraf():
        return "Telegraf is not installed: set CCPIPE_TELEGRAF to its program"
    return ""
