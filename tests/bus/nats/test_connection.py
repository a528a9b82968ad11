"""The connection: addresses, credentials, errors, and the time of a delivery."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import nats.errors
import pytest

from ccpipe.bus.nats import connection as module
from ccpipe.bus.nats.client import UNANSWERED_PINGS, Client
from ccpipe.bus.nats.connection import DEFAULT_SERVER, Connection, check, servers_of
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually


async def test_connection_fails_at_once_with_wrong_credentials(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Retrying a refused password is useless: it raises, and does not log the same before."""
    bus = Bus(servers=[f"nats://ccpipe:wrong@127.0.0.1:{nats_server.port}"])
    with pytest.raises(DeniedError, match="127.0.0.1") as caught:
        async with Connection(bus, name="t", telemetry=Telemetry()):
            pass
    assert "wrong" not in str(caught.value)
    assert caplog.records == []


async def test_check_connects_and_closes(
    site: Site, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns if the broker answers, and raises otherwise."""
    await check(site.bus, Telemetry())
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    with pytest.raises(UnavailableError, match="no NATS server answers"):
        await check(Bus(servers=[f"nats://127.0.0.1:{unused_port}"]), Telemetry())


async def test_connection_refuses_to_publish_while_disconnected(site: Site) -> None:
    """A message that would only wait in memory is refused."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        bus.require_connected()
    for attempt in (bus.publish("a", b""), bus.flush()):
        with pytest.raises(UnavailableError):
            await attempt
    with pytest.raises(UnavailableError, match="not connected"):
        bus.require_connected()


def test_addresses_are_shown_without_secrets() -> None:
    servers = ["nats://user:secret@h1:4222", "h2?token=secret"]
    bus = Connection(Bus(servers=servers), name="t", telemetry=Telemetry())
    assert bus.url == "nats://h1:4222, nats://h2"


def test_default_server_is_local_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS's own port on localhost, if nothing is configured and no `ccpipe up` runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert servers_of(Bus()) == [DEFAULT_SERVER]
    assert servers_of(Bus(servers=["nats://h"])) == ["nats://h"]


async def test_connection_logs_same_error_once_a_minute_for_hours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only in the first minute; another error in between does not repeat it."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bus = Connection(Bus(servers=["nats://127.0.0.1:9"]), name="test", telemetry=Telemetry())
    for second in range(3600):
        now = 1000.0 + second
        await bus._report_error(nats.errors.Error("it is broken"))
        await bus._report_error(nats.errors.Error(f"another one {second // 600}"))
    assert sum("it is broken" in record.message for record in caplog.records) == 60


async def test_connection_reports_unanswered_pings_only_if_any(
    site: Site, nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A killed server closed the connection; it did not ignore pings."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        assert nats_server.pid is not None
        os.kill(nats_server.pid, signal.SIGKILL)
        await eventually(lambda: bus.connects == 1)
        bus._client._pings_outstanding = UNANSWERED_PINGS + 1
        await bus._client._process_op_err(nats.errors.StaleConnectionError())
        await eventually(lambda: bus.connects == 2)
    lost = [record.getMessage() for record in caplog.records if "is lost" in record.message]
    assert ["no ping" in message for message in lost] == [False, True]


async def test_connection_closes_when_closing_is_cancelled(
    site: Site, nats_server: NatsServer
) -> None:
    """Nothing of the client is left running, although the server hangs."""
    bus = Connection(site.bus, name="t", telemetry=Telemetry())

    async def hold() -> None:
        async with bus:
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    task = asyncio.create_task(hold())
    await eventually(lambda: bus.is_connected)
    assert nats_server.pid is not None
    os.kill(nats_server.pid, signal.SIGSTOP)
    try:
        while not task.done():
            task.cancel()
            await asyncio.sleep(0.01)
    finally:
        os.kill(nats_server.pid, signal.SIGCONT)
    assert bus._client.is_closed
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    "callback", ["_report_error", "_report_disconnect", "_report_reconnect", "_closed"]
)
async def test_connection_is_restored_after_failing_callback(
    site: Site,
    nats_server: NatsServer,
    callback: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """nats-py stops reconnecting at an error in a callback: each one is logged instead."""
    calls = []

    async def fail(self: Connection, *arguments: object) -> None:
        calls.append(arguments)
        raise KeyError(callback)

    fail.__qualname__ = callback
    seen: list[Delivery] = []
    monkeypatch.setattr(Connection, callback, fail)
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await bus.subscribe("a", seen.append)
        await bus.flush()
        assert nats_server.pid is not None
        os.kill(nats_server.pid, signal.SIGKILL)
        await eventually(lambda: not bus.is_connected)
        await eventually(lambda: bus.is_connected)
        await bus.publish("a", b"1")
        await eventually(lambda: len(seen) == 1)
    assert calls
    assert f"an unexpected error in {callback}" in caplog.text


async def test_connection_is_restored_after_unexpected_error(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as credentials that are being replaced: nats-py would stop reconnecting, unnoticed."""
    original, failures = Client._connect_command, iter(range(3))

    def fail(self: Client) -> bytes:
        if next(failures, None) is not None:
            raise ValueError("half of a key")
        return original(self)

    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        monkeypatch.setattr(Client, "_connect_command", fail)
        bus._client.abort()
        await eventually(lambda: not bus.is_connected)
        await eventually(lambda: bus.is_connected)
        assert next(failures, None) is None
    assert caplog.text.count("an error while reconnecting") == 1
    assert "half of a key" in caplog.text


async def test_connection_resumes_pings_after_error_in_their_task(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them a frozen server would never be noticed."""
    original, calls = Client._send_ping, []

    async def fail(self: Client, *arguments: Any) -> None:
        calls.append(self)
        if len(calls) == 1:
            raise KeyError("ping")
        await original(self, *arguments)

    monkeypatch.setattr(module, "PING_SECONDS", 0.1)
    monkeypatch.setattr(Client, "_send_ping", fail)
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await eventually(lambda: len(calls) > 2)
        assert bus.is_connected


async def test_connection_replaces_refused_client_until_accepted(
    site: Site, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost while subscriptions are renewed is made once more."""
    original, failures = Client.subscribe, iter(range(2))

    async def fail(self: Client, *arguments: Any, **options: Any) -> Any:
        if next(failures, None) is not None:
            raise nats.errors.ConnectionClosedError
        return await original(self, *arguments, **options)

    seen: list[Delivery] = []
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await bus.subscribe("a", seen.append)
        monkeypatch.setattr(Client, "subscribe", fail)
        await bus._client.close()
        await eventually(lambda: next(failures, None) is None and bus.is_connected)
        await bus.flush()
        await bus.publish("a", b"1")
        await eventually(lambda: len(seen) == 1)
