"""Why ``ccpipe tail`` shows nothing: one hint for each idle period."""

from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.tail.idle_hint import IdleHint
from ccpipe.config import Bus
from ccpipe.formats.lineprotocol import decode
from ccpipe.telemetry import Telemetry
from tests.conftest import free_port

LINES = decode(b"m,cluster=fritz,hostname=e1 value=1\nn,cluster=fritz,hostname=e2 value=2\n")


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdleHint, "DELAY", dict.fromkeys(IdleHint.DELAY, 0.0))


async def test_each_state_is_explained_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not connected, nothing received, nothing that matches, nothing more; without a password."""
    (tmp_path / "nats").mkdir()
    server = NatsServer(tmp_path / "nats", port=free_port())
    bus = Connection(Bus(servers=[server.url]), name="test", telemetry=Telemetry())
    hint = IdleHint(bus, ["fritz.metrics"])

    def said() -> str:
        for _ in range(3):
            hint.report()
        return capsys.readouterr().err

    address = f"nats://127.0.0.1:{server.port}"
    away = said()
    assert away.count(f"not connected to {address}, trying again: ") == 1
    assert "`ccpipe up` starts one" in away
    async with server, bus:
        connected = said()
        assert f"connected to {address}, but no messages" in connected
        assert connected.count("connected to nats://") == 2
        assert connected.count("no messages have arrived on fritz.metrics") == 1
        hint.record(LINES, decode(b""))
        expected = "2 lines received, none matches; seen: clusters fritz; nodes e1, e2; names m, n"
        assert expected in said()
        hint.record(LINES, LINES)
        assert said().count("no messages for 0 s") == 1
        assert said() == ""
