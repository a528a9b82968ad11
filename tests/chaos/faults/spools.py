"""Publishers without a broker, and faults of their spools meanwhile."""

import asyncio
import random
import re
import subprocess
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ccpipe.formats.lineprotocol import decode
from ccpipe.node.agent.spool import Spool
from tests.chaos.account import Account, is_in_order
from tests.chaos.faults.flow import fault
from tests.chaos.lab import Lab, Process
from tests.conftest import free_port

SLOTS = 72
"""Of each round: five rounds are an hour of slots of ten seconds."""


class Node:
    """A publisher that samples ten times a second, and its spool."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.port = free_port()
        self.config = lab.directory / "ccpipe.toml"
        self.config.write_text(
            f"""
            telemetry.listen = "127.0.0.1:{self.port}"
            publish.interval = "100ms"
            publish.jitter = 0
            publish.log_level = "off"
            publish.sonar = {{ sample_interval = 0, sysinfo_interval = 0 }}
            publish.spool.replay_rate = 1000
            """
        )
        self.spool = lab.directory / "state" / "ccpipe" / "spool"

    async def start(self) -> Process:
        """Start a publisher; its log is appended to the earlier ones."""
        publisher = self.lab.ccpipe("publish", "publish", CCPIPE_CONFIG=str(self.config))
        await publisher.start()
        return publisher

    async def counter(self, name: str) -> int | None:
        """Return a number of ``/metrics``; None as long as nothing listens."""

        def read() -> bytes:
            url = f"http://127.0.0.1:{self.port}/metrics"
            with urllib.request.urlopen(url, timeout=30) as answer:
                content: bytes = answer.read()
            return content

        try:
            content = await asyncio.to_thread(read)
        except OSError:
            return None
        pattern = rb"^%s(?:\{component=\"spool\"\})? (\S+)" % name.encode()
        found = re.search(pattern, content, re.MULTILINE)
        return int(float(found[1])) if found else 0

    async def spools(self, messages: int) -> None:
        while (await self.counter("ccpipe_spooled_messages") or 0) < messages:
            await asyncio.sleep(0.1)

    async def empties(self) -> None:
        """Wait until the spool is empty; ``/metrics`` alone also reports 0 before it is open."""
        while (
            list(self.spool.glob("*.metrics")) or await self.counter("ccpipe_spooled_messages") != 0
        ):
            await asyncio.sleep(0.1)

    def spooled(self) -> list[bytes]:
        """Return the lines in the spool of a publisher that has ended."""
        spool = Spool(self.spool, size=2**30, age=10**6)
        spool.open()
        payloads = [each.message.payload for each in spool.oldest(10**6)]
        spool.close()
        return _lines(payloads)

    async def stored(self) -> list[bytes]:
        client = await self.lab.connect()
        jetstream = client.jetstream(timeout=20)
        stream = await jetstream.find_stream_name_by_subject("c.metrics")
        state = (await jetstream.stream_info(stream)).state
        payloads = []
        for sequence in range(state.first_seq, state.last_seq + 1):
            message = await jetstream.get_msg(stream, sequence)
            payloads.append(message.data or b"")
        await client.close()
        return _lines(payloads)


def _lines(payloads: Sequence[bytes]) -> list[bytes]:
    return [line for payload in payloads for line in payload.splitlines()]


def _times(lines: Sequence[bytes]) -> list[int]:
    found = decode(b"\n".join(line for line in lines if line.startswith(b"cpu_load,")))
    return [line.time for line in found if line.time is not None]


@fault("the broker down for an hour, a hundred times as fast; SIGKILL of the publisher meanwhile")
async def broker_away(directory: Path, rounds: int) -> Account:
    """The spool keeps samples in order, and the next publisher sends them."""
    async with Lab(directory).open() as lab:
        node = Node(lab)
        await lab.broker.kill()
        seen: list[int] = []
        for number in range(rounds):
            publisher = await node.start()
            await node.spools((number + 1) * SLOTS)
            await publisher.kill()
            seen = _times(node.spooled())
        await lab.broker.start()
        publisher = await node.start()
        await node.empties()
        assert await publisher.end() == 0
        stored = _times(await node.stored())
        assert stored == sorted(stored), "the order of a node's slots"
        return Account.of(seen, stored)


@fault("a full disk under the spool (tmpfs), SIGTERM of the publisher while it is full")
async def spool_on_full_disk(directory: Path, rounds: int) -> Account:
    """Everything arrives once the broker is back, although the disk stays full."""
    disk = directory / "state"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "lab", disk], check=True)
    try:
        async with Lab(directory).open() as lab:
            node = Node(lab)
            for _ in range(rounds):
                await lab.broker.kill()
                publisher = await node.start()
                before = len(publisher.text())
                while "No space left" not in publisher.text()[before:]:
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.5)
                await lab.broker.start()
                await node.empties()
                _fill(disk)
                await asyncio.sleep(0.5)
                assert await publisher.end() == 0, publisher.text()
                (disk / "filler").unlink()
            totals = re.findall(r"publisher: (\d+) records read, \d+ written", publisher.text())
            stored = await node.stored()
            return Account(
                published=sum(map(int, totals)),
                stored=len(set(stored)),
                duplicated=len(stored) - len(set(stored)),
                dead=0,
            )
    finally:
        subprocess.run(["umount", disk], check=True)


def _fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass


@fault("flipped bits, cut ends and zeroed pages in the spool of a killed publisher")
async def damaged_spool(directory: Path, rounds: int) -> Account:
    """Undamaged messages arrive in order; the others are counted."""
    chance = random.Random(rounds)
    published: list[bytes] = []
    dropped = 0
    async with Lab(directory).open() as lab:
        node = Node(lab)
        for _ in range(rounds):
            await lab.broker.kill()
            publisher = await node.start()
            await node.spools(20)
            await publisher.kill()
            published += node.spooled()
            for file in chance.sample(sorted(node.spool.glob("*.metrics")), 4):
                _damage(file, chance)
            await lab.broker.start()
            publisher = await node.start()
            await node.empties()
            dropped += await node.counter("ccpipe_dropped_lines_total") or 0
            assert await publisher.end() == 0
        stored = await node.stored()
    assert is_in_order(_times(stored))
    account = Account.of(published, stored)
    assert account.stored < account.published, "nothing was damaged"
    return replace(account, dropped=dropped)


def _damage(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    place = chance.randrange(len(content))
    match chance.choice(("bit", "end", "page")):
        case "bit":
            content[place] ^= 1 << chance.randrange(8)
        case "end":
            del content[place:]
        case "page":
            place -= place % 4096
            content[place : place + 4096] = bytes(len(content[place : place + 4096]))
    file.write_bytes(content)
