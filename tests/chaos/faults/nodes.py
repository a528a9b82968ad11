"""Nodes: a broker that is away for an hour, and clocks that jump."""

import asyncio
import re
import time
import urllib.request
from pathlib import Path

from ccpipe.formats.lineprotocol import decode
from ccpipe.node.agent.spool import Spool
from tests.chaos.account import Account, in_file, in_parquet
from tests.chaos.faults.flow import LINES, RATE, fault, finished, meanwhile
from tests.chaos.lab import Lab, Process, numbered
from tests.conftest import free_port

SLOTS = 72
"""Of each round: five rounds are an hour of slots of ten seconds."""


@fault("the broker away for an hour, a hundred times as fast; SIGKILL of the publisher meanwhile")
async def broker_away(folder: Path, rounds: int) -> Account:
    """The spool keeps what was sampled, in order, and the next publisher sends it."""
    port = free_port()
    (folder / "ccpipe.toml").write_text(
        f"""
        telemetry.listen = "127.0.0.1:{port}"
        publish.interval = "100ms"
        publish.jitter = 0
        publish.log = "off"
        publish.sonar = {{ sample = 0, sysinfo = 0 }}
        publish.spool.rate = 1000
        """
    )
    async with Lab(folder).open() as lab:
        await lab.broker.kill()
        seen: set[int] = set()
        for _ in range(rounds):
            publisher = lab.ccpipe("publish", "publish", CCPIPE_CONFIG=str(folder / "ccpipe.toml"))
            await publisher.start()
            await _spools(port, len(seen) + SLOTS)
            await publisher.kill()
            seen |= _spooled(folder)
        await lab.broker.start()
        publisher = lab.ccpipe("publish", "publish", CCPIPE_CONFIG=str(folder / "ccpipe.toml"))
        await publisher.start()
        while not re.search("the spool is empty", publisher.text()):
            await asyncio.sleep(0.1)
        assert await publisher.end() == 0
        stored = await _times(lab)
        assert stored == sorted(stored), "the order of a node's slots"
        return Account.of(seen, stored)


async def _spools(port: int, messages: int) -> None:
    """Wait until a publisher's spool holds so many messages."""

    def held() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found = re.search(rb"^ccpipe_spooled_messages ([0-9.e+]+)", answer.read(), re.MULTILINE)
        return float(found[1]) if found else 0

    async with asyncio.timeout(120):
        while True:
            await asyncio.sleep(0.2)
            try:
                if await asyncio.to_thread(held) >= messages:
                    return
            except OSError:
                pass  # it has not begun to listen


def _spooled(folder: Path) -> set[int]:
    spool = Spool(folder / "state" / "ccpipe" / "spool", size=2**30, age=10**6)
    spool.open()
    payloads = [each.message.payload for each in spool.oldest(10**6)]
    spool.close()
    return {time for payload in payloads for time in _load_times(payload)}


def _load_times(payload: bytes) -> list[int]:
    return [
        line.time for line in decode(payload) if line.name == "cpu_load" and line.time is not None
    ]


async def _times(lab: Lab) -> list[int]:
    client = await lab.connect()
    jetstream = client.jetstream(timeout=20)
    stream = await jetstream.find_stream_name_by_subject("c.metrics")
    state = (await jetstream.stream_info(stream)).state
    found = []
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await jetstream.get_msg(stream, sequence)
        found += _load_times(message.data or b"")
    await client.close()
    return found


@fault("clocks of nodes that jump by a year, with a time window before the store")
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
        dead = await finished(lab, bridge)
        return Account.of(range(3 * third), in_file(folder / "stored.lp"), dead)


JUMPS = ("+1y", "-10y", "+1h", "-1h", "+0")
"""What the clock shows, against the real time."""


@fault("the clock under bridge and publisher jumps by hours and years (libfaketime)")
async def wall_clock_jumps(folder: Path, rounds: int) -> Account:
    """Nothing waits by the wall clock, and none of its jumps loses or doubles anything."""
    clock = folder / "clock"
    clock.write_text("+0\n")
    faked = {
        "LD_PRELOAD": str(fake_clock()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    jumps = iter(JUMPS * rounds)

    async def act(_: Lab, bridge: Process) -> None:
        moved = folder / "clock.new"
        moved.write_text(f"{next(jumps)}\n")
        moved.replace(clock)
        await asyncio.sleep(0.5)
        await bridge.kill()
        await bridge.start()

    async with Lab(folder, environ=faked).open() as lab:
        bridge = lab.bridge(f'use = "parquet"\ndir = "{folder}/parquet"')
        await meanwhile(lab, bridge, rounds, act)
        dead = await finished(lab, bridge)
        return Account.of(range(LINES * rounds), in_parquet(folder / "parquet"), dead)


def fake_clock() -> Path | None:
    """Return the library that shows a process another time, where it is installed."""
    return next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
