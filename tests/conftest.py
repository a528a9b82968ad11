"""Fixtures for all tests: real programs, found or reported missing by name."""

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol.kernel import KERNEL

settings.register_profile("quick", deadline=None, max_examples=30)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("quick")  # `make long` runs all properties with the other one

# Background jobs of a shell ignore SIGINT, and processes started by tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without bytecode each of the thousand processes that tests start would compile ccpipe anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

needs_kernel = pytest.mark.skipif(
    KERNEL is None and "CCPIPE_TESTS_STRICT" not in os.environ,
    reason="the compiled kernel was not built (a C++17 compiler and Cython are needed)",
)
"""In CI, which sets ``CCPIPE_TESTS_STRICT``, a kernel that was not built is a failure."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make captured logs valid UTF-8, without which a worker cannot send its report."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def program(name: str, package: str) -> Path:
    """Return the path of a real program that a Debian package brings.

    Where it is missing the test is skipped by name with the reason; in CI, which sets
    ``CCPIPE_TESTS_STRICT``, it fails.
    """
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not installed: apt-get install {package} (scripts/install-debian.sh)"
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(path)


def _own_ports() -> Iterator[int]:
    """Return this worker's ports in an endless cycle, from a random one on.

    They are below the ephemeral ports, and workers share none: a port that is free when a test
    chooses it is free when its server listens.
    """
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = range(end // 3 + worker, end, workers)
    first = random.SystemRandom().randrange(len(own))
    return itertools.cycle((*own[first:], *own[:first]))


_PORTS = _own_ports()


def free_port() -> int:
    """Return a loopback port that is unused and that no other test will choose."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable: the cycle of ports is endless")


_STATE_DIRECTORIES = itertools.count()


@pytest.fixture(autouse=True)
def _own_state_directory(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give the programs that a test starts a state directory of their own: a spool is replayed.

    Most tests have no use for one: it is not made here.
    """
    directory = tmp_path_factory.getbasetemp() / "state" / f"{next(_STATE_DIRECTORIES)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))


@pytest.fixture(autouse=True)
def _time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what writes at once be connected by then, on a machine that is busy with other tests."""
    monkeypatch.setattr("ccpipe.bus.nats.connection.BRIEF_SECONDS", 10.0)


@pytest.fixture
def unused_port() -> int:
    """Give a test a loopback port of its own."""
    return free_port()


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """Run a real nats-server with JetStream on a free loopback port."""
    async with NatsServer(tmp_path / "nats", port=free_port()) as server:
        yield server


@pytest.fixture
def site(nats_server: NatsServer) -> Site:
    """Configure a cluster on the real server; its name contains a dot, as real ones do."""
    return Site(cluster="fox.test", hostname="n1", bus=Bus(servers=[nats_server.url]))


async def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until a condition is true; fail with its source if it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never became true: {condition}"
        await asyncio.sleep(0.02)


async def until_listening(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a server that was just started takes connections; fail with its log."""
    for _ in range(1200):
        assert process.poll() is None, log.read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        await writer.wait_closed()
        return
    raise AssertionError(log.read_text())
