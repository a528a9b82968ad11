"""Nodes whose clocks jump."""

import asyncio
import time
from pathlib import Path

from tests.chaos.account import Account, in_file, in_parquet
from tests.chaos.faults.flow import LINES, fault, finished, flowing, meanwhile
from tests.chaos.lab import Lab, Process, numbered


@fault("clocks of nodes that jump by a year, with a time window before the store")
async def clock_jumps(directory: Path, rounds: int) -> Account:
    """Lines outside the window become dead letters."""
    now = int(time.time())
    third = LINES * rounds // 3
    year = 365 * 86400
    lines = b"".join(
        numbered(third, first=first, start=now + jump - first - third)
        for first, jump in ((0, 0), (third, -year), (2 * third, year))
    )
    window = '[[translate]]\nuse = "time_window"\nmax_age = "1d"\nmax_future = "1d"'
    async with Lab(directory).open() as lab:
        sink = f'use = "file"\npath = "{directory}/stored.lp"'
        bridge = await flowing(lab, sink, lines, translate=window)
        dead = await finished(lab, bridge)
        return Account.of(range(3 * third), in_file(directory / "stored.lp"), dead)


JUMPS = ("+1y", "-10y", "+1h", "-1h", "+0")
"""Offsets of the clock from the real time."""


@fault("the clock under bridge and publisher jumps by hours and years (libfaketime)")
async def wall_clock_jumps(directory: Path, rounds: int) -> Account:
    """No wait depends on the wall clock, and no jump of it loses or duplicates lines."""
    clock = directory / "clock"
    clock.write_text("+0\n")
    faked = {
        "LD_PRELOAD": str(fake_clock()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    jumps = iter(JUMPS * rounds)

    async def act(_: Lab, bridge: Process) -> None:
        moved = directory / "clock.new"
        moved.write_text(f"{next(jumps)}\n")
        moved.replace(clock)
        await asyncio.sleep(0.5)
        await bridge.kill()
        await bridge.start()

    async with Lab(directory, environ=faked).open() as lab:
        bridge = lab.bridge(f'use = "parquet"\ndir = "{directory}/parquet"')
        await meanwhile(lab, bridge, rounds, act)
        dead = await finished(lab, bridge)
        return Account.of(range(LINES * rounds), in_parquet(directory / "parquet"), dead)


def fake_clock() -> Path | None:
    """Return the library that shows a process another time, where it is installed."""
    return next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
