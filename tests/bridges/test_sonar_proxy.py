"""Sonar's daemon posts to the recipe sonar-http as to its Kafka proxy, if Sonar was built."""

import asyncio
import contextlib
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.streams.stored import read_stored
from ccpipe.config import Bus
from ccpipe.formats.sonar import Envelope, decode
from ccpipe.process.die_with_parent import die_with_parent
from tests.bridges.recipes import started
from tests.bus.nats.conftest import connected
from tests.conftest import free_port
from tests.paths import ROOT

CONFIGURATION = """\
[global]
cluster = h2.test
role = node

[kafka]
rest-endpoint = http://127.0.0.1:{port}/
sending-window = 1s
timeout = 60s
sasl-password = {password}

[sample]
cadence = 2s
load = true

[sysinfo]
cadence = 24h
on-startup = true
"""
SYSLOG = [Path("/dev/log"), Path("/var/run/syslog"), Path("/var/run/log")]
"""Sonar's daemon does not start without one of them."""


@pytest.fixture
async def syslog() -> AsyncIterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        for path in SYSLOG:
            with contextlib.suppress(OSError):
                log.connect(str(path))
                yield
                return
        try:
            SYSLOG[0].unlink(missing_ok=True)
            log.bind(str(SYSLOG[0]))
        except OSError as error:
            pytest.skip(f"Sonar needs syslog: {SYSLOG[0]}: {error.strerror}")
        loop = asyncio.get_running_loop()
        loop.add_reader(log, log.recv, 2**16)
        try:
            yield
        finally:
            loop.remove_reader(log)
            SYSLOG[0].unlink()


@contextlib.asynccontextmanager
async def daemon(directory: Path, port: int, password: str) -> AsyncIterator[None]:
    program = shutil.which("sonar")
    if program is None:
        pytest.skip("sonar is not on PATH: build github.com/NordicHPC/sonar with cargo")
    ini = directory / f"{password}.ini"
    ini.write_text(CONFIGURATION.format(port=port, password=password))
    process = await asyncio.create_subprocess_exec(
        program, "daemon", ini, preexec_fn=die_with_parent
    )
    try:
        yield
        assert process.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def shipped(changes: Mapping[str, str]) -> str:
    """Return the recipe with changes."""
    text = (ROOT / "bridges/sonar-http.toml").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


async def envelopes(server: NatsServer) -> list[Envelope]:
    """Return what the stream has; each envelope obeys the specification but for Sonar's ways."""
    payloads: list[bytes] = []
    async with connected(Bus(servers=[server.url])) as bus:
        await read_stored(bus, ["h2%2Etest.sonar.>"], lambda found: payloads.append(found.payload))
    found = [decode(payload, strict=True) for payload in payloads]
    assert [each.rejected for each in found] == [[]] * len(found)
    return [envelope for each in found for envelope in each]


def times(found: list[Envelope]) -> list[datetime]:
    """Return the times of the samples."""
    samples = [each.data.attributes for each in found if each.data and each.data.type == "sample"]
    assert all(sample.cluster == "h2.test" for sample in samples)
    return [datetime.fromisoformat(sample.time) for sample in samples]


@pytest.mark.usefixtures("syslog")
async def test_samples_of_sonar_outlast_killed_bridge(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    """Those that it took while no bridge ran arrive, too; with a wrong password none does."""
    port = free_port()
    (tmp_path / "users").write_text("h2.test:right\n")
    recipe = tmp_path / "sonar-http.toml"
    users = {'# users_file = "/run/secrets/senders"': f'users_file = "{tmp_path}/users"'}
    recipe.write_text(shipped({":8087": f":{port}", **users}))
    environ = {"CCPIPE_CLUSTER": "h2.test", "CCPIPE_BUS__SERVERS": nats_server.url}
    bridge = await started("bridge", recipe, **environ)
    async with daemon(tmp_path, port, "wrong"), daemon(tmp_path, port, "right"):
        while len(times(await envelopes(nats_server))) < 2:
            await asyncio.sleep(0.2)
        bridge.kill()
        await bridge.wait()
        killed = datetime.now(UTC)
        await asyncio.sleep(6)
        again = datetime.now(UTC)
        bridge = await started("bridge", recipe, **environ)
        while not any(killed < time < again for time in times(await envelopes(nats_server))):
            await asyncio.sleep(0.2)
        while max(times(await envelopes(nats_server))) < again:
            await asyncio.sleep(0.2)
    bridge.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(bridge.wait(), 60) == 0
