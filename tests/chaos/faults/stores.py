"""Stores that fail, and stores that recognize duplicates."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors

from tests.chaos.account import Account, in_delta, in_file, in_parquet
from tests.chaos.faults.flow import (
    LINES,
    RATE,
    Act,
    connected,
    dead_letters,
    drained,
    fault,
    finished,
    flowing,
    meanwhile,
    sent,
)
from tests.chaos.faults.processes import broker_and_bridge
from tests.chaos.lab import Lab, Process, numbered
from tests.chaos.store import LyingStore
from tests.servers.postgres import Server
from tests.servers.s3 import BUCKET, minio


@fault("SIGKILL of broker and bridge at once, into Parquet files")
async def kill_both_parquet(directory: Path, rounds: int) -> Account:
    """The store recognizes duplicates by message id."""
    return await into_parquet(directory, rounds, broker_and_bridge)


@fault("SIGKILL of broker and bridge at once, into Parquet files, small messages with ids")
async def kill_both_small_messages(directory: Path, rounds: int) -> Account:
    """Some are always stored and not acknowledged on the broker's disk when both are killed."""
    async with Lab(directory).open() as lab:
        bridge = lab.bridge(f'use = "parquet"\ndir = "{directory}/parquet"')
        await bridge.start()
        await connected(lab)
        sending = asyncio.create_task(publish_small(lab, LINES * rounds))
        chance = random.Random(rounds)
        for _ in range(rounds):
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            await broker_and_bridge(lab, bridge)
        await sending
        await drained(lab)
        assert await bridge.end() == 0, bridge.text()
        dead = await dead_letters(lab)
        return Account.of(range(LINES * rounds), in_parquet(directory / "parquet"), dead)


async def publish_small(lab: Lab, count: int, each: int = 5) -> None:
    """Publish lines, a few in a message; one that the broker did not confirm is sent again."""

    async def ignore(_: Exception) -> None:
        """Do not report each attempt."""

    options = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.1, "error_cb": ignore}
    client = await lab.connect(**options)
    jetstream = client.jetstream(timeout=2)
    for first in range(0, count, each):
        payload = numbered(each, first=first)
        while True:
            try:
                await jetstream.publish(lab.subject, payload, headers={"Nats-Msg-Id": f"{first}"})
                break
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.05)
        await asyncio.sleep(each / RATE)
    await client.close()


@fault("SIGSTOP of the bridge beyond ack_wait, into Parquet files")
async def freeze_bridge_parquet(directory: Path, rounds: int) -> Account:
    """Messages that the bridge buffers and their redeliveries may be in one write."""

    async def act(_: Lab, bridge: Process) -> None:
        await bridge.freeze(4)

    return await into_parquet(directory, rounds, act)


async def into_parquet(directory: Path, rounds: int, act: Act) -> Account:
    """Let lines flow into Parquet files, and run `act` meanwhile."""
    async with Lab(directory).open() as lab:
        bridge = lab.bridge(f'use = "parquet"\ndir = "{directory}/parquet"')
        await meanwhile(lab, bridge, rounds, act)
        dead = await finished(lab, bridge)
        return Account.of(range(LINES * rounds), in_parquet(directory / "parquet"), dead)


@contextlib.asynccontextmanager
async def postgres() -> AsyncIterator[Server]:
    """Run a PostgreSQL; its directory is not below pytest's, which only we may enter."""
    with (
        tempfile.TemporaryDirectory(prefix="ccpipe-postgres-") as directory,
        Server(Path(directory)) as server,
    ):
        yield server


def sink_of(server: Server, database: str) -> str:
    return f'use = "postgres"\nurl = "{server.url(database)}"\npassword_file = "{server.secret}"'


async def in_postgres(server: Server, database: str) -> list[int]:
    rows = await server.ask(database, "SELECT value FROM messages")
    return [int(value) for (value,) in rows]


@fault("SIGKILL of broker and bridge, and a crash of the store, PostgreSQL")
async def kill_all_postgres(directory: Path, rounds: int) -> Account:
    """The transaction that stores rows records the ids of their messages."""
    async with postgres() as server, Lab(directory).open() as lab:
        database = await server.database()

        async def act(lab: Lab, bridge: Process) -> None:
            # Its immediate shutdown: no checkpoint, no goodbye, recovery at the next start.
            server.process.send_signal(signal.SIGQUIT)
            await broker_and_bridge(lab, bridge)
            await asyncio.to_thread(server.process.wait, 30)
            await asyncio.to_thread(server.start)

        bridge = lab.bridge(sink_of(server, database))
        await meanwhile(lab, bridge, rounds, act)
        dead = await finished(lab, bridge)
        return Account.of(range(LINES * rounds), await in_postgres(server, database), dead)


@fault("SIGKILL of broker, bridge and storage at once, into a Delta table on MinIO")
async def kill_all_delta(directory: Path, rounds: int) -> Account:
    """A commit of the table lists the messages whose rows it adds."""
    storage = await minio(directory)
    try:
        async with Lab(directory).open() as lab:

            async def act(lab: Lab, bridge: Process) -> None:
                storage.stop()
                await broker_and_bridge(lab, bridge)
                await storage.start()

            options = {"url": f"s3://{BUCKET}/table", **storage.options}
            keys = (f'{name} = "{value}"' for name, value in options.items())
            bridge = lab.bridge("\n".join(['use = "delta"', *keys]))
            await meanwhile(lab, bridge, rounds, act)
            dead = await finished(lab, bridge)
            assert storage.open_uploads() == []
            stored = await asyncio.to_thread(in_delta, storage.address("table"))
            return Account.of(range(LINES * rounds), stored, dead)
    finally:
        storage.stop()


@fault("an HTTP store that fails, hangs, closes and shows a login page")
async def lying_store(directory: Path, rounds: int) -> Account:
    """Only 204 counts as stored."""
    async with LyingStore().running() as store, Lab(directory).open() as lab:
        sink = f'use = "victoriametrics"\nurl = "{store.url}"\ntimeout = "1s"'
        bridge = await flowing(lab, sink, numbered(LINES * rounds))
        await sent(lab)
        store.is_honest = True
        dead = await finished(lab, bridge)
        return Account.of(range(LINES * rounds), store.stored, dead)


@fault("a full disk under the store (tmpfs)")
async def full_disk(directory: Path, rounds: int) -> Account:
    """The bridge waits for space; no line is torn or written twice. Needs root."""
    disk = directory / "disk"
    disk.mkdir()
    size = LINES * rounds * 20  # a line has some 55 bytes
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "lab", disk], check=True)
    try:
        async with Lab(directory).open() as lab:
            sink = f'use = "file"\npath = "{disk}/stored.lp"'
            bridge = await flowing(lab, sink, numbered(LINES * rounds))
            while "No space left" not in bridge.text():
                await asyncio.sleep(0.1)
            await sent(lab)
            subprocess.run(["mount", "-o", "remount,size=1g", disk], check=True)
            dead = await finished(lab, bridge)
            return Account.of(range(LINES * rounds), in_file(disk / "stored.lp"), dead)
    finally:
        subprocess.run(["umount", disk], check=True)


def can_mount() -> bool:
    return os.geteuid() == 0 and sys.platform == "linux"


def has_postgres() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/postgres")) or bool(shutil.which("postgres"))
