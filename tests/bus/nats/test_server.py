"""The embedded nats-server: started, guarded, restarted, and found by other commands."""

import asyncio
import os
import signal
import stat
from pathlib import Path

import nats
import pytest

from ccpipe.bus.nats.announcement import RunningServer, running
from ccpipe.bus.nats.server import NatsServer
from ccpipe.errors import ConfigError
from tests.conftest import eventually, free_port


async def test_server_refuses_client_without_password(nats_server: NatsServer) -> None:
    """Other users of the machine can reach loopback, so the address alone must not suffice."""
    reader, writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
    writer.write(b"CONNECT {}\r\nPING\r\n")
    assert (await reader.readline()).startswith(b"INFO")
    assert b"Authorization Violation" in await reader.readline()
    writer.close()
    await writer.wait_closed()
    client = await nats.connect(nats_server.url)
    assert (await client.jetstream().account_info()).streams == 0
    await client.close()


async def test_server_secrets_are_readable_by_owner_only(nats_server: NatsServer) -> None:
    for name in ("password", "nats.conf"):
        assert stat.S_IMODE((nats_server.directory / name).stat().st_mode) == 0o600


async def test_killed_server_restarts_at_its_port_with_its_streams(
    nats_server: NatsServer,
) -> None:
    """Kill -9 loses nothing that JetStream had acknowledged."""
    client = await nats.connect(nats_server.url)
    await client.jetstream().add_stream(name="kept", subjects=["kept"])
    await client.jetstream().publish("kept", b"safe")
    await client.close()
    killed = nats_server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    telemetry = nats_server.telemetry
    await eventually(lambda: telemetry.total(telemetry.restarts) == 1 and nats_server.pid != killed)
    client = await nats.connect(nats_server.url)
    assert (await client.jetstream().get_last_msg("kept", "kept")).data == b"safe"
    await client.close()


async def test_server_ends_with_its_context(tmp_path: Path) -> None:
    async with NatsServer(tmp_path, port=free_port()) as server:
        pid = server.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_server_fails_if_its_port_is_in_use(tmp_path: Path) -> None:
    """Also if another NATS server uses it."""
    async with NatsServer(tmp_path / "one", port=free_port()) as server:
        second = NatsServer(tmp_path / "two", port=server.port)
        with pytest.raises(Exception, match="did not start"):
            async with second:
                pass


async def test_server_refuses_to_start_with_empty_password(tmp_path: Path) -> None:
    """As after a full disk: the error names the file."""
    (tmp_path / "password").write_text("\n")
    with pytest.raises(ConfigError, match="password is empty"):
        async with NatsServer(tmp_path, port=free_port()):
            pass


@pytest.mark.parametrize("sync", ["always", "10s"])
async def test_server_accepts_sync_interval(tmp_path: Path, sync: str) -> None:
    async with NatsServer(tmp_path, port=free_port(), sync=sync) as server:
        assert f'sync_interval: "{sync}"' in (tmp_path / "nats.conf").read_text()
        assert server.pid


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_running_up_is_found_until_it_withdraws() -> None:
    here = RunningServer("nats://u:p@127.0.0.1:1", os.getpid(), "c", "/x")
    assert running() is None
    here.announce()
    assert running() == here
    here.withdraw()
    assert running() is None


async def test_announcement_of_dead_process_is_ignored() -> None:
    """A killed `up` leaves its announcement behind."""
    child = await asyncio.create_subprocess_exec("true")
    await child.wait()
    RunningServer("nats://127.0.0.1:1", child.pid, "c", "/x").announce()
    assert running() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}', "null"])
def test_invalid_announcement_is_ignored(text: str) -> None:
    """Whatever the file contains, commands continue with the next place to look."""
    RunningServer("", 0, "", "").announce()
    path = next(Path(os.environ["XDG_STATE_HOME"]).rglob("up.json"))
    path.write_text(text)
    assert running() is None
