"""The two shipped recipes as processes: from one site over Mosquitto to another, with TLS."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.lineprotocol import decode
from tests.certificates import Certificates, certificates
from tests.conftest import eventually, free_port, program
from tests.paths import ROOT
from tests.servers.mosquitto import Mosquitto

NOON = 1_740_052_800
PASSWORD = "pa ss"  # noqa: S105 - of a broker that lives for seconds


@pytest.fixture
def tls(tmp_path: Path) -> Certificates:
    return certificates(tmp_path)


@pytest.fixture
async def guarded(tmp_path: Path, tls: Certificates) -> AsyncIterator[Mosquitto]:
    users = tmp_path / "users"
    command = [str(program("mosquitto_passwd", "mosquitto")), "-b", "-c", str(users)]
    subprocess.run([*command, "bridge", PASSWORD], check=True)
    users.chmod(0o600)
    mosquitto = Mosquitto(
        tmp_path / "mosquitto",
        *("allow_anonymous false", f"password_file {users}", "max_queued_messages 0"),
        *(f"certfile {tls.cert}", f"keyfile {tls.key}"),
    )
    await mosquitto.start()
    yield mosquitto
    mosquitto.stop()


async def start(
    recipe: str,
    part: str,
    bus: NatsServer,
    mosquitto: Mosquitto,
    tls: Certificates,
    directory: Path,
) -> asyncio.subprocess.Process:
    secret = directory / "password"
    secret.write_text(f"{PASSWORD}\n")
    broker = {
        "URL": f"mqtts://127.0.0.1:{mosquitto.port}",
        "USER": "bridge",
        "PASSWORD_FILE": str(secret),
        "CA_FILE": str(tls.ca),
    }
    environment = {f"CCPIPE_{part}__BROKER__{key}": value for key, value in broker.items()}
    environment |= {"CCPIPE_BUS__SERVERS": bus.url, "CCPIPE_CLUSTER": "fox"}
    with (directory / f"{recipe}.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ccpipe", "bridge", f"{ROOT}/bridges/{recipe}.toml"),
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def publish(client: Client, numbers: range) -> None:
    for number in numbers:
        line = f"m,cluster=fox,hostname=n1,type=node value={number} {NOON + number}"
        await client.jetstream().publish("fox.metrics", line.encode())


@pytest.mark.long
async def test_mqtt_bridges_connect_two_sites(
    tmp_path: Path, guarded: Mosquitto, tls: Certificates
) -> None:
    """Nothing is lost if the reading one is killed, and the latest values are retained."""
    async with (
        NatsServer(tmp_path / "here", port=free_port()) as here,
        NatsServer(tmp_path / "there", port=free_port()) as there,
        contextlib.AsyncExitStack() as stack,
    ):
        ours, theirs = await nats.connect(here.url), await nats.connect(there.url)
        stack.push_async_callback(ours.close)
        stack.push_async_callback(theirs.close)
        for client in (ours, theirs):
            await client.jetstream().add_stream(name="site", subjects=["fox.>"])
        found: set[float] = set()

        async def keep(message: Msg) -> None:
            found.update(float(each.value) for each in decode(message.data))

        await theirs.subscribe("fox.metrics", cb=keep)

        async def started(recipe: str, part: str, bus: NatsServer) -> asyncio.subprocess.Process:
            process = await start(recipe, part, bus, guarded, tls, tmp_path)
            stack.push_async_callback(end, process)
            return process

        reading = await started("from-mqtt", "SOURCE", there)
        log = tmp_path / "from-mqtt.log"
        await eventually(lambda: b"subscribed to" in log.read_bytes())
        await started("mqtt", "SINK", here)
        await publish(ours, range(50))
        await eventually(lambda: found >= set(range(50)))
        reading.kill()
        await reading.wait()
        await publish(ours, range(50, 100))
        await started("from-mqtt", "SOURCE", there)
        await eventually(lambda: found >= set(range(100)))
        parameters = aiomqtt.TLSParameters(ca_certs=str(tls.ca))
        async with aiomqtt.Client(
            "127.0.0.1", guarded.port, username="bridge", password=PASSWORD, tls_params=parameters
        ) as reader:
            await reader.subscribe("fox/latest/n1/m")
            latest = await anext(aiter(reader.messages))
        assert latest.retain
        assert [message.value for message in decode(bytes(latest.payload))] == [99.0]
