"""Connections that fail while the processes live."""

import asyncio
import random
from pathlib import Path

from tests.certificates import certificates
from tests.chaos.account import Account, in_file, is_in_order
from tests.chaos.faults.flow import LINES, RATE, fault, finished
from tests.chaos.lab import CONFIGURATION, Lab, numbered
from tests.chaos.network import Handshakes
from tests.conftest import free_port
from tests.servers.nats.daemon import accepts

HANDSHAKES = 4
"""That fail in each round: at least one each of the publisher and the bridge."""


@fault("a websocket with TLS that is cut, and whose handshakes then fail")
async def failed_handshakes(directory: Path, rounds: int) -> Account:
    """As behind a restarted proxy: publisher and bridge retry until it works."""
    tls, port = certificates(directory), free_port()
    listen = f'listen: "127.0.0.1:{port}"'
    block = f'{listen}, tls {{ cert_file: "{tls.cert}", key_file: "{tls.key}" }}'
    lab = Lab(directory, configuration=f"{CONFIGURATION}websocket {{ {block} }}\n")
    chance = random.Random(rounds)
    async with lab.open(), Handshakes(port).running() as proxy:
        await accepts(port)
        through = {"CCPIPE_BUS__SERVERS": proxy.url, "CCPIPE_BUS__CA_FILE": str(tls.ca)}
        bridge = lab.bridge(f'use = "file"\npath = "{directory}/stored.lp"', **through)
        await bridge.start()
        sender = lab.send(numbered(LINES * rounds), rate=RATE, **through)
        await sender.start()
        async with asyncio.timeout(90):  # at the start a failed handshake is fatal
            while not in_file(directory / "stored.lp"):
                await asyncio.sleep(0.1)
        for _ in range(rounds):
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            await proxy.fail(HANDSHAKES)
        dead = await finished(lab, bridge)
        stored = in_file(directory / "stored.lp")
        assert is_in_order(stored), "a line overtook another one of its node"
        return Account.of(range(LINES * rounds), stored, dead)
