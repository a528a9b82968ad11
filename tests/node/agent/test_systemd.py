"""What systemd is told where there is no systemd, or one that waits for somebody else."""

import os
import socket
from pathlib import Path

import pytest

from ccpipe.node.agent import systemd


@pytest.mark.parametrize("address", [None, "", "nonsense", "/nonexistent/notify", "@nobody-there"])
def test_without_anybody_to_hear_it_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    before = len(list(Path("/proc/self/fd").iterdir()))
    systemd.notify("READY=1")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_lines_are_one_datagram(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """RELOADING counts only together with the time, sd_notify(3) says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here:
        here.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        systemd.reloading()
        first, second = here.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdecimal()


@pytest.mark.parametrize(
    ("period", "pid", "seconds"),
    [
        pytest.param("30000000", str(os.getpid()), 30.0, id="own pid"),
        ("30000000", None, 30.0),
        ("30000000", "1", None),
        (None, None, None),
        ("0", None, None),
        ("soon", None, None),
    ],
)
def test_the_watchdog_is_only_ours(
    monkeypatch: pytest.MonkeyPatch, period: str | None, pid: str | None, seconds: float | None
) -> None:
    """One that waits for another process, or for none, is told nothing."""
    for name, value in (("WATCHDOG_USEC", period), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert systemd.watchdog() == seconds
