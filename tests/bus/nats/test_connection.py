"""The connection: addresses, credentials, errors, and the time of a delivery."""

import time
from pathlib import Path

import nats.errors
import pytest

from ccpipe.bus.nats import connection as module
from ccpipe.bus.nats.connection import DEFAULT_SERVER, Connection, Delivery, check, servers_of
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Site
from ccpipe.errors import ConfigError, DeniedError, UnavailableError
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually


async def test_wrong_credentials_end_it_at_once(nats_server: NatsServer) -> None:
    """A password that is refused will not get better: the error says so instead of waiting."""
    bus = Bus(servers=[f"nats://ccpipe:wrong@127.0.0.1:{nats_server.port}"])
    with pytest.raises(DeniedError, match="127.0.0.1") as caught:
        async with Connection(bus, name="t", telemetry=Telemetry()):
            pass
    assert "wrong" not in str(caught.value)


async def test_no_server_is_said_when_nobody_waits(
    unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that cannot wait forever name the address that does not answer."""
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    bus = Bus(servers=[f"nats://127.0.0.1:{unused_port}"])
    with pytest.raises(UnavailableError, match=str(unused_port)):
        async with Connection(bus, name="t", telemetry=Telemetry(), forever=False):
            pass


async def test_missing_permissions_surface(site: Site, nats_server: NatsServer) -> None:
    """A forbidden subscription is counted; the broker itself only drops a hint."""
    telemetry = Telemetry()
    received: list[Delivery] = []
    async with Connection(site.bus, name="t", telemetry=telemetry) as bus:
        await bus.subscribe("$SYS.>", received.append)  # an ordinary account may not
        await bus.subscribe("ok", received.append)
        await bus.flush()
        await bus.publish("ok", b"1")
        await eventually(lambda: len(received) == 1)
    assert received[0].payload == b"1"


async def test_a_check_connects_and_leaves(
    site: Site, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns where the broker answers, and raises where none does."""
    await check(site.bus, Telemetry())
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    with pytest.raises(UnavailableError, match="no NATS server answers"):
        await check(Bus(servers=[f"nats://127.0.0.1:{unused_port}"]), Telemetry())


async def test_publishing_without_a_connection_is_an_error(site: Site) -> None:
    """A message that would only wait in memory is refused."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        bus.require_connected()
    for attempt in (bus.publish("a", b""), bus.flush()):
        with pytest.raises(UnavailableError):
            await attempt
    with pytest.raises(UnavailableError, match="not connected"):
        bus.require_connected()


def test_addresses_are_shown_without_secrets() -> None:
    """User and password of a URL appear in no message."""
    servers = ["nats://user:secret@h1:4222", "h2?token=secret"]
    bus = Connection(Bus(servers=servers), name="t", telemetry=Telemetry())
    assert bus.url == "nats://h1:4222, nats://h2"


def test_without_servers_it_is_the_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS's own port on localhost, where nothing is configured and no `ccpipe up` runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert servers_of(Bus()) == [DEFAULT_SERVER]
    assert servers_of(Bus(servers=["nats://h"])) == ["nats://h"]


def test_credentials_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """The error says which key of the configuration names the missing file."""
    with pytest.raises(ConfigError, match="bus.ca_file"):
        Connection(Bus(ca_file=str(tmp_path / "none")), name="t", telemetry=Telemetry())


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.stream.consumer.1.2.3.1740000000000000001.0",
        "$JS.ACK.domain.account.stream.consumer.1.2.3.1740000000000000001.0.token",
    ],
)
def test_a_delivery_arrived_when_the_stream_stored_it(reply: str) -> None:
    """The reply subject holds that time, in the short form and in the one with a domain."""
    assert Delivery("s", b"", b"", reply).arrival == 1740000000000000001


@pytest.mark.parametrize("reply", ["", "_INBOX.a", "$JS.ACK.stream.consumer.1.2.3.x.0"])
def test_a_delivery_without_stored_time_arrives_now(reply: str) -> None:
    """So does one of a plain subscription, or with a reply subject that holds no number."""
    before = time.time_ns()
    assert before <= Delivery("s", b"", b"", reply).arrival <= time.time_ns()


async def test_the_same_trouble_is_told_once_a_minute_for_hours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only in the first minute; another trouble in between does not bring it back."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bus = Connection(Bus(servers=["nats://127.0.0.1:9"]), name="test", telemetry=Telemetry())
    for second in range(3600):
        now = 1000.0 + second
        await bus._trouble(nats.errors.Error("it is broken"))
        await bus._trouble(nats.errors.Error(f"another one {second // 600}"))
    assert sum("it is broken" in record.message for record in caplog.records) == 60
