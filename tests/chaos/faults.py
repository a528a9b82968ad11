"""The faults: each is done to real processes and ends in an account of every line."""

import asyncio
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import nats.errors
import nats.js.errors

from tests.chaos.account import Account, in_file, in_parquet, in_stream
from tests.chaos.lab import Broker, Lab, Process, numbered
from tests.chaos.store import LyingStore

Fault = Callable[[Path, int], Awaitable[Account]]
FAULTS: dict[str, Fault] = {}
"""By what the page calls them; `rounds` is how often each is repeated."""

LINES = 3000
"""Lines that are published in each round."""
RATE = 2000
"""Lines per second."""


def fault(name: str) -> Callable[[Fault], Fault]:
    """Register a fault."""

    def register(function: Fault) -> Fault:
        FAULTS[name] = function
        return function

    return register


async def drained(broker: Broker, durable: str = "chaos", seconds: float = 90) -> None:
    """Wait until a bridge has acknowledged everything."""
    client = await nats.connect(broker.url, connect_timeout=20)
    jetstream = client.jetstream(timeout=10)
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    stream = await jetstream.find_stream_name_by_subject("c.metrics")
                    info = await jetstream.consumer_info(stream, durable)
                    if not info.num_pending and not info.num_ack_pending:
                        return
                except (nats.errors.Error, TimeoutError):
                    pass  # it is being elected, or made
                await asyncio.sleep(0.2)
    finally:
        await client.close()


async def account(lab: Lab, folder: Path, rounds: int) -> Account:
    """Compare what was published with the file and the dead letters."""
    return Account.of(
        range(LINES * rounds),
        in_file(folder / "stored.lp"),
        await in_stream(lab.broker.url),
    )


async def _repeated(
    folder: Path, rounds: int, act: Callable[[Lab, Process], Awaitable[None]]
) -> Account:
    """Let numbered lines flow from a publisher through a bridge into a file, and act meanwhile."""
    chance = random.Random(rounds)
    async with Lab(folder).open() as lab:
        bridge = lab.bridge(f'use = "file"\npath = "{folder}/stored.lp"')
        sender = lab.send(numbered(LINES * rounds), rate=RATE)
        await bridge.start()
        await sender.start()
        for _ in range(rounds):
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            await act(lab, bridge)
        await _sent(lab)
        await drained(lab.broker)
        assert await bridge.end() == 0, bridge.text()
        return await account(lab, folder, rounds)


async def _sent(lab: Lab) -> None:
    sender = next(process for process in lab.processes if process.name == "send")
    assert await sender.wait(120) == 0, sender.text()


@fault("SIGKILL of the bridge")
async def kill_bridge(folder: Path, rounds: int) -> Account:
    """What it had not acknowledged is delivered again."""

    async def act(_: Lab, bridge: Process) -> None:
        await bridge.kill()
        await bridge.start()

    return await _repeated(folder, rounds, act)


@fault("SIGKILL of the broker")
async def kill_broker(folder: Path, rounds: int) -> Account:
    """Publisher and bridge reconnect."""

    async def act(lab: Lab, _: Process) -> None:
        await lab.broker.kill()
        await asyncio.sleep(0.3)
        await lab.broker.start()

    return await _repeated(folder, rounds, act)


@fault("SIGSTOP of the broker for seconds")
async def freeze_broker(folder: Path, rounds: int) -> Account:
    """It takes bytes and answers nothing."""

    async def act(lab: Lab, _: Process) -> None:
        await lab.broker.freeze(3)

    return await _repeated(folder, rounds, act)


@fault("SIGSTOP of the bridge beyond ack_wait")
async def freeze_bridge(folder: Path, rounds: int) -> Account:
    """The broker hands everything over again."""

    async def act(_: Lab, bridge: Process) -> None:
        await bridge.freeze(4)

    return await _repeated(folder, rounds, act)


@fault("SIGKILL of broker and bridge at once")
async def kill_both(folder: Path, rounds: int) -> Account:
    """As in a power cut of the machine that runs both, but for its disk."""

    async def act(lab: Lab, bridge: Process) -> None:
        await asyncio.gather(lab.broker.kill(), bridge.kill())
        await lab.broker.start()
        await bridge.start()

    return await _repeated(folder, rounds, act)


@fault("the same, into Parquet files")
async def kill_both_parquet(folder: Path, rounds: int) -> Account:
    """The store knows by the messages' ids what it has."""
    async with Lab(folder).open() as lab:
        bridge = lab.bridge(f'use = "parquet"\ndir = "{folder}/parquet"')
        sender = lab.send(numbered(LINES * rounds), rate=RATE)
        await bridge.start()
        await sender.start()
        for _ in range(rounds):
            await asyncio.sleep(1)
            await asyncio.gather(lab.broker.kill(), bridge.kill())
            await lab.broker.start()
            await bridge.start()
        await _sent(lab)
        await drained(lab.broker)
        assert await bridge.end() == 0, bridge.text()
        dead = await in_stream(lab.broker.url)
        return Account.of(range(LINES * rounds), in_parquet(folder / "parquet"), dead)


@fault("the same lines published twice, every tenth broken")
async def hostile_lines(folder: Path, rounds: int) -> Account:
    """Copies within the window are stored once; broken lines are dead letters."""
    async with Lab(folder).open() as lab:
        count = LINES * rounds
        lines = [
            line.replace(b" value=", b" bad value=") if number % 10 == 3 else line
            for number, line in enumerate(numbered(count).splitlines(keepends=True))
        ]
        bridge = lab.bridge(f'use = "file"\npath = "{folder}/stored.lp"')
        await bridge.start()
        client = await nats.connect(lab.broker.url)
        jetstream = client.jetstream(timeout=30)
        while True:
            try:
                await jetstream.find_stream_name_by_subject("c.metrics")
                break
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.1)
        for _ in range(2):
            for start in range(0, count, 500):
                payload = b"".join(lines[start : start + 500])
                headers = {"Nats-Msg-Id": f"{start}"}
                await jetstream.publish("c.metrics", payload, headers=headers)
        await client.close()
        await drained(lab.broker)
        assert await bridge.end() == 0
        return await account(lab, folder, rounds)


@fault("an HTTP store that fails, hangs, closes and shows a login page")
async def lying_store(folder: Path, rounds: int) -> Account:
    """Only 204 counts as stored."""
    async with LyingStore().running() as store, Lab(folder).open() as lab:
        sink = f'use = "victoriametrics"\nurl = "{store.url}"\ntimeout = "1s"'
        bridge = lab.bridge(sink)
        sender = lab.send(numbered(LINES * rounds), rate=RATE)
        await bridge.start()
        await sender.start()
        await _sent(lab)
        store.is_honest = True
        await drained(lab.broker)
        assert await bridge.end() == 0
        dead = await in_stream(lab.broker.url)
        return Account.of(range(LINES * rounds), store.stored, dead)


@fault("a full disk under the store (tmpfs)")
async def full_disk(folder: Path, rounds: int) -> Account:
    """The bridge waits for room; no line is torn or written twice by that. Needs root."""
    disk = folder / "disk"
    disk.mkdir()
    size = LINES * rounds * 20  # a line has some 55 bytes
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "lab", disk], check=True)
    try:
        async with Lab(folder).open() as lab:
            bridge = lab.bridge(f'use = "file"\npath = "{disk}/stored.lp"')
            sender = lab.send(numbered(LINES * rounds), rate=RATE)
            await bridge.start()
            await sender.start()
            while "No space left" not in bridge.text():
                await asyncio.sleep(0.1)
            await _sent(lab)
            subprocess.run(["mount", "-o", "remount,size=1g", disk], check=True)
            await drained(lab.broker)
            assert await bridge.end() == 0
            dead = await in_stream(lab.broker.url)
            return Account.of(range(LINES * rounds), in_file(disk / "stored.lp"), dead)
    finally:
        subprocess.run(["umount", disk], check=True)


@fault("clocks that jump by a year, with a time window before the store")
async def clock_jumps(folder: Path, rounds: int) -> Account:
    """What is outside the window is a dead letter."""
    now = int(time.time())
    third = LINES * rounds // 3
    year = 365 * 86400
    lines = b"".join(
        numbered(third, first=first, seconds=now + jump - first - third)
        for first, jump in ((0, 0), (third, -year), (2 * third, year))
    )
    window = '[[translate]]\nuse = "time_window"\nmax_age = "1d"\nmax_future = "1d"'
    async with Lab(folder).open() as lab:
        bridge = lab.bridge(f'use = "file"\npath = "{folder}/stored.lp"', translate=window)
        sender = lab.send(lines, rate=RATE)
        await bridge.start()
        await sender.start()
        await _sent(lab)
        await drained(lab.broker)
        assert await bridge.end() == 0
        dead = await in_stream(lab.broker.url)
        return Account.of(range(3 * third), in_file(folder / "stored.lp"), dead)


@fault("the broker away while a node publishes, SIGKILL of the publisher")
async def broker_away(folder: Path, rounds: int) -> Account:
    """The spool keeps what was sampled, in order, and the next publisher sends it."""
    (folder / "ccpipe.toml").write_text(
        """
        publish.interval = "100ms"
        publish.jitter = 0
        publish.log = "off"
        publish.sonar = { sample = 0, sysinfo = 0 }
        publish.spool.rate = 1000
        """
    )
    async with Lab(folder).open() as lab:
        await lab.broker.kill()
        seen: set[int] = set()
        for _ in range(rounds):
            publisher = lab.ccpipe("publish", "publish", CCPIPE_CONFIG=str(folder / "ccpipe.toml"))
            await publisher.start()
            await _slots(folder, more_than=len(seen) + 5)
            await publisher.kill()
            seen |= _spooled(folder)
        await lab.broker.start()
        publisher = lab.ccpipe("publish", "publish", CCPIPE_CONFIG=str(folder / "ccpipe.toml"))
        await publisher.start()
        while not re.search("the spool is empty", publisher.text()):
            await asyncio.sleep(0.1)
        assert await publisher.end() == 0
        stored = await _times(lab.broker.url)
        return Account.of(seen, stored)


async def _slots(folder: Path, *, more_than: int) -> None:
    """Wait until a publisher has spooled some slots more; SQLite's own files tell how many."""
    log = folder / "state" / "ccpipe" / "spool.db-wal"
    before = log.stat().st_size if log.exists() else 0
    async with asyncio.timeout(60):
        while not log.exists() or log.stat().st_size < before + 100_000 + more_than:
            await asyncio.sleep(0.1)


def _spooled(folder: Path) -> set[int]:
    from ccpipe.formats.lineprotocol import decode
    from ccpipe.node.agent.spool import Spool

    spool = Spool(folder / "state" / "ccpipe" / "spool.db", size=2**30, age=10**6)
    spool.open()
    payloads = [each.message.payload for each in spool.oldest(10**6)]
    spool.close()
    return {
        line.time for text in payloads for line in decode(text)
        if line.name == "cpu_load" and line.time is not None
    }  # fmt: skip


async def _times(url: str) -> list[int]:
    from ccpipe.formats.lineprotocol import decode

    client = await nats.connect(url)
    jetstream = client.jetstream(timeout=20)
    stream = await jetstream.find_stream_name_by_subject("c.metrics")
    state = (await jetstream.stream_info(stream)).state
    found = []
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await jetstream.get_msg(stream, sequence)
        found += [
            line.time for line in decode(message.data or b"")
            if line.name == "cpu_load" and line.time is not None
        ]  # fmt: skip
    await client.close()
    return found


@fault("a JetStream cluster of three that loses a server, then its leader")
async def cluster(folder: Path, rounds: int) -> Account:
    """Two of three go on; each comes back before the next is lost."""
    async with Lab(folder, servers=3).open() as lab:
        bridge = lab.bridge(f'use = "file"\npath = "{folder}/stored.lp"')
        await bridge.start()
        await _leader(lab)
        sender = lab.send(numbered(LINES * rounds), rate=RATE)
        await sender.start()
        for number in range(2 * rounds):
            await asyncio.sleep(1)
            leader = await _leader(lab)
            victim = next(
                broker for broker in lab.brokers if (broker.name == leader) == bool(number % 2)
            )
            await victim.kill()
            await asyncio.sleep(2)
            await victim.start()
            await _leader(lab)
        await _sent(lab)
        await drained(lab.broker)
        assert await bridge.end() == 0
        dead = await in_stream(lab.broker.url)
        return Account.of(range(LINES * rounds), in_file(folder / "stored.lp"), dead)


async def _leader(lab: Lab) -> str:
    """Return the name of the server that leads the stream, once there is one."""
    async with asyncio.timeout(90):
        while True:
            try:
                client = await nats.connect(
                    [broker.url for broker in lab.brokers if broker.is_running], connect_timeout=2,
                    max_reconnect_attempts=1,
                )  # fmt: skip
            except (nats.errors.Error, OSError, TimeoutError):
                await asyncio.sleep(0.3)
                continue
            try:
                jetstream = client.jetstream(timeout=3)
                stream = await jetstream.find_stream_name_by_subject("c.metrics")
                info = await jetstream.stream_info(stream)
                if info.cluster and info.cluster.leader:
                    return str(info.cluster.leader)
            except (nats.errors.Error, TimeoutError):
                pass
            finally:
                await client.close()
            await asyncio.sleep(0.3)


def is_possible(name: str) -> str:
    """Return why a fault cannot be made here; empty where it can."""
    if FAULTS[name] is full_disk and (os.geteuid() != 0 or sys.platform != "linux"):
        return "mounting a tmpfs needs root"
    return ""
