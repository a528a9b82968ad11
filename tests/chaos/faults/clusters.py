"""A JetStream cluster that loses servers."""

import asyncio
from pathlib import Path

import nats.errors

from tests.chaos.account import Account, in_file, is_in_order
from tests.chaos.faults.flow import LINES, RATE, fault, finished
from tests.chaos.lab import Lab, numbered


@fault("a JetStream cluster of three that loses a server, then its leader; keys of `auth init`")
async def cluster(directory: Path, rounds: int) -> Account:
    """Two of three servers suffice; each is back before the next is lost."""
    async with Lab(directory, servers=3, has_keys=True).open() as lab:
        bridge = lab.bridge(f'use = "file"\npath = "{directory}/stored.lp"')
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
        dead = await finished(lab, bridge)
        stored = in_file(directory / "stored.lp")
        assert is_in_order(stored), "a line overtook another one of its node"
        return Account.of(range(LINES * rounds), stored, dead)


async def _leader(lab: Lab) -> str:
    """Return the name of the server that leads the stream, once there is one."""
    async with asyncio.timeout(90):
        while True:
            await asyncio.sleep(0.3)
            try:
                client = await lab.connect(max_reconnect_attempts=1)
            except (nats.errors.Error, OSError, TimeoutError):
                continue
            try:
                jetstream = client.jetstream(timeout=3)
                stream = await jetstream.find_stream_name_by_subject(lab.subject)
                info = await jetstream.stream_info(stream)
                if info.cluster and info.cluster.leader:
                    return str(info.cluster.leader)
            except (nats.errors.Error, TimeoutError):
                pass
            finally:
                await client.close()
