"""Publishing into a stream: message ids, and what each refusal is called."""

import subprocess
from pathlib import Path

import pytest

from ccpipe.bus.nats import publisher as module
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.publisher import NoStreamError, Outgoing, store
from ccpipe.config import Bus, Site
from ccpipe.errors import UnavailableError
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.servers.nats.daemon import nats_daemon


async def test_a_subject_without_a_stream_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether nobody listens there, or only a subscriber that sends no acknowledgement."""
    monkeypatch.setattr(module, "STORE_SECONDS", 0.2)
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        with pytest.raises(NoStreamError, match="a: no stream stores it") as caught:
            await store(bus, [Outgoing("a", b"", "1")], set())
        assert caught.value.subject == "a"
        await bus.subscribe("a", lambda delivery: None)
        with pytest.raises(NoStreamError, match="did not answer in time"):
            await store(bus, [Outgoing("a", b"", "1")], set())


async def test_a_closed_connection_is_unavailable(site: Site) -> None:
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        pass
    with pytest.raises(UnavailableError):
        await store(bus, [Outgoing("a", b"", "1")], set())


def bus_at(port: int) -> Bus:
    return Bus(servers=[f"nats://127.0.0.1:{port}"])


async def fill(bus: Connection, stored: list[str]) -> None:
    """Store large messages until that fails; the ids of those that were stored are added."""
    for number in range(100):
        await store(bus, [Outgoing("a", b"y" * 200_000, f"{number}")], set())
        stored.append(f"{number}")


@pytest.mark.long
async def test_a_full_disk_is_named_and_sticks_until_the_server_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real full disk, in memory: the server says nothing, so we say what it must be.

    When there is space again it goes on refusing, which the words say too; a restart cures it, and
    what was acknowledged before is still there.
    """
    monkeypatch.setattr("ccpipe.bus.nats.publisher.STORE_SECONDS", 2.0)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", disk], check=True)
    configuration = f'jetstream {{ store_dir: "{disk}", max_file_store: 1GB }}'
    try:
        async with nats_daemon(tmp_path, configuration) as port, connected(bus_at(port)) as bus:
            await bus.jetstream().add_stream(name="S", subjects=["a"])
            (disk / "ballast").write_bytes(b"x" * 17 * 2**20)
            stored: list[str] = []
            with pytest.raises(UnavailableError, match=r"disk is full.*restart nats-server"):
                await fill(bus, stored)
            (disk / "ballast").unlink()
            with pytest.raises(UnavailableError, match="restart nats-server"):
                await store(bus, [Outgoing("a", b"small", "after")], set())
        async with nats_daemon(tmp_path, configuration) as port, connected(bus_at(port)) as bus:
            await store(bus, [Outgoing("a", b"small", "after")], set())
            state = (await bus.jetstream().stream_info("S")).state
        assert state.messages == len(stored) + 1
    finally:
        subprocess.run(["umount", disk], check=True)
