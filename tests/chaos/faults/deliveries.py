"""Duplicated, reordered or broken messages."""

import asyncio
from pathlib import Path

import nats.errors

from tests.chaos.account import Account, in_file, in_parquet
from tests.chaos.faults.flow import LINES, dead_letters, drained, fault, finished, flowing
from tests.chaos.lab import Lab, numbered
from tests.chaos.network import Muddle


@fault("the same lines published twice, every tenth broken")
async def hostile_lines(directory: Path, rounds: int) -> Account:
    """Copies within the window are stored once; broken lines are dead letters."""
    async with Lab(directory).open() as lab:
        count = LINES * rounds
        lines = [
            line.replace(b" value=", b" bad value=") if number % 10 == 3 else line
            for number, line in enumerate(numbered(count).splitlines(keepends=True))
        ]
        bridge = lab.bridge(f'use = "file"\npath = "{directory}/stored.lp"')
        await bridge.start()
        client = await lab.connect()
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
        await drained(lab)
        assert await bridge.end() == 0
        dead = await dead_letters(lab)
        return Account.of(range(count), in_file(directory / "stored.lp"), dead)


@fault("messages repeated and swapped to and from the broker, into Parquet files")
async def muddled(directory: Path, rounds: int) -> Account:
    """The broker recognizes a message by its id, the store by its number."""
    async with (
        Lab(directory).open() as lab,
        Muddle(lab.broker.port, "c.metrics").running() as muddle,
    ):
        through = {"CCPIPE_BUS__SERVERS": muddle.url}
        sink = f'use = "parquet"\ndir = "{directory}/parquet"'
        bridge = await flowing(lab, sink, numbered(LINES * rounds), **through)
        dead = await finished(lab, bridge)
        assert muddle.repeated
        return Account.of(range(LINES * rounds), in_parquet(directory / "parquet"), dead)
