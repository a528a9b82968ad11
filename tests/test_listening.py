"""Every listening server limits time, number and size of requests without a credential."""

import ast
import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ccpipe.config import DashboardOptions, Site
from ccpipe.dashboard.server import DashboardServer
from ccpipe.dashboard.sign_in import SignIn
from ccpipe.listening import LOG_SECONDS, ConnectionLimits
from ccpipe.live.feed import LiveFeed
from ccpipe.sinks.prometheus import PrometheusScrapeSink
from ccpipe.sources.http import HttpSource
from ccpipe.telemetry import Telemetry
from tests.certificates import certificates
from tests.cli.command import command, environment
from tests.conftest import eventually, free_port
from tests.paths import ROOT

CALLS = {
    "TCPSite", "SockSite", "UnixSite", "make_server", "start_server", "start_unix_server",
    "create_server", "create_unix_server", "HTTPServer", "start_http_server", "bind",
}  # fmt: skip
LISTENERS = {
    "listening.py": {"SockSite", "bind"},
    "telemetry.py": {"make_server"},
    "bus/nats/server.py": {"bind"},  # looks for a free port, and does not listen
    "sinks/prometheus.py": {"create_server"},  # checks its address, and closes at once
}


class ListeningServer(NamedTuple):
    """A running server."""

    port: int
    limits: ConnectionLimits
    path: str
    """Paths that need no credential."""
    tls: ssl.SSLContext | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)

    async def request(self) -> bytes:
        reader, writer = await self.connect()
        writer.write(f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        try:
            return await asyncio.wait_for(reader.readline(), 60)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def http_source(tmp_path: Path, **options: str) -> AsyncIterator[ListeningServer]:
    (tmp_path / "users").write_text("fox:secret\n")
    more: dict[str, Any] = {"users_file": str(tmp_path / "users"), **options}
    listen = f"127.0.0.1:{free_port()}"
    async with HttpSource(site=Site(cluster="fox"), listen=listen, **more) as source:
        yield ListeningServer(source.port, source.limits, "/ping")


@asynccontextmanager
async def https_source(tmp_path: Path) -> AsyncIterator[ListeningServer]:
    made = certificates(tmp_path)
    async with http_source(
        tmp_path, cert_file=str(made.cert), key_file=str(made.key)
    ) as listening_server:
        yield listening_server._replace(tls=ssl.create_default_context(cafile=made.ca))


@asynccontextmanager
async def dashboard(tmp_path: Path) -> AsyncIterator[ListeningServer]:
    site = Site(cluster="fox")
    feed = LiveFeed(site, Telemetry(), name="dashboard")  # not connected: the page needs no broker
    file = tmp_path / "tokens"
    file.write_text("x" * 20)
    sign_in = SignIn(DashboardOptions(token_file=str(file)))
    async with DashboardServer(feed, listen="127.0.0.1:0", sign_in=sign_in) as server:
        yield ListeningServer(server.port, server.limits, "/health")


@asynccontextmanager
async def scrape_sink(_: Path) -> AsyncIterator[ListeningServer]:
    async with PrometheusScrapeSink(listen=f"127.0.0.1:{free_port()}") as sink:
        yield ListeningServer(sink.port, sink.connections, "/metrics")


@asynccontextmanager
async def telemetry(_: Path) -> AsyncIterator[ListeningServer]:
    server = Telemetry().serve("127.0.0.1:0")
    try:
        yield ListeningServer(server.port, server.limits, "/health")
    finally:
        await asyncio.to_thread(server.close)


@asynccontextmanager
async def sonar_source(tmp_path: Path) -> AsyncIterator[ListeningServer]:
    async with http_source(tmp_path, format="sonar") as listening_server:
        yield listening_server


DOORS = [http_source, sonar_source, https_source, dashboard, scrape_sink, telemetry]


@pytest.fixture(params=DOORS, ids=lambda each: each.__name__)
async def listening_server(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ListeningServer]:
    async with request.param(tmp_path) as opened:
        yield opened


def called(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func
            yield getattr(name, "attr", getattr(name, "id", ""))


def test_every_listening_server_is_tested_here() -> None:
    """A new one fails this test and is added to the servers that are attacked below."""
    found = {
        str(path.relative_to(ROOT / "ccpipe")): CALLS & {*called(path)}
        for path in (ROOT / "ccpipe").rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == LISTENERS


async def test_server_answers_when_connections_are_exhausted(
    listening_server: ListeningServer,
) -> None:
    """With more silent connections than allowed, the oldest is closed and a request is answered."""
    listening_server.limits.connections, listening_server.limits.per_address = 8, 4
    held = []
    for _ in range(12):
        held.append(await asyncio.open_connection("127.0.0.1", listening_server.port))
        held[-1][1].write(
            b"GET / HTTP/1.1\r\nHost: " if listening_server.tls is None else b"\x16\x03\x01"
        )
        assert len(listening_server.limits) <= 4
        if len(held) % 3 == 0:
            assert (await listening_server.request()).startswith(b"HTTP/1.")
    for _, writer in held:
        writer.transport.abort()
    await eventually(lambda: len(listening_server.limits) == 0)


async def test_server_closes_connection_when_request_takes_too_long(
    listening_server: ListeningServer,
) -> None:
    """The limit applies to the whole request, however regularly bytes arrive."""
    listening_server.limits.seconds = 0.5
    reader, writer = await listening_server.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    ended = asyncio.create_task(reader.read())
    with contextlib.suppress(ConnectionError):
        while not ended.done():
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
    await asyncio.wait([ended], timeout=60)
    assert ended.done()
    with contextlib.suppress(ConnectionError):
        ended.result()
    writer.transport.abort()


async def test_server_refuses_request_when_headers_are_too_large(
    listening_server: ListeningServer,
) -> None:
    reader, writer = await listening_server.connect()
    ended = asyncio.create_task(reader.read())
    sent = 0
    writer.write(b"GET / HTTP/1.1\r\n")
    with contextlib.suppress(ConnectionError):
        while not ended.done():
            writer.write(b"X-A: " + bytes(7000).replace(b"\0", b"b") + b"\r\n")
            await writer.drain()
            sent += 7000
            await asyncio.sleep(0)
            assert sent < 64 * 2**20
    with contextlib.suppress(ConnectionError):
        assert b"200 OK" not in await asyncio.wait_for(ended, 60)
    writer.transport.abort()


MALFORMED = [
    b"\x00\xff\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /write HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
]


async def test_server_reports_malformed_requests_once_a_minute(
    listening_server: ListeningServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO)
    for body in MALFORMED * 3:
        reader, writer = await listening_server.connect()
        with contextlib.suppress(ConnectionError):
            writer.write(body)
            writer.write_eof() if writer.can_write_eof() else None
            answer = await asyncio.wait_for(reader.read(), 60)
            assert b" 500 " not in answer.partition(b"\r\n")[0]
        writer.transport.abort()
    assert (await listening_server.request()).startswith(b"HTTP/1.")
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) <= 1
    assert "Traceback" not in caplog.text + capfd.readouterr().err


HEADERS = ["Authorization", "Cookie", "Origin", "Host", "Content-Encoding", "Content-Type"]
VALUES = [b"Bearer \xff", b"Basic \xff", b"\xff", b"http://[", b"Bearer", b'a="\\377', b"[::1",
          b"text/plain; charset=no-such", b"\xed\xb0\x80"]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
async def test_server_answers_any_header_without_internal_error(
    listening_server: ListeningServer, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that are not text, and text that is not an address, are answered below 500."""
    for value in VALUES:
        for start in (b"GET /api/about", b"POST /write", b"POST /api/login", b"POST /api/history"):
            reader, writer = await listening_server.connect()
            host = b"" if header == "Host" else b"Host: 127.0.0.1\r\n"
            writer.write(
                b"%s HTTP/1.1\r\n%s%s: %s\r\nConnection: close\r\nContent-Length: 1\r\n\r\n\xff"
                % (start, host, header.encode(), value)
            )
            answer = await asyncio.wait_for(reader.read(), 60)
            assert answer[9:12] < b"500", (start, value, answer)
            writer.transport.abort()
    assert "Traceback" not in caplog.text


def test_limits_keep_address_from_taking_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Beyond half of the connections, an address loses its own oldest one, not another's."""
    limits = ConnectionLimits("test", connections=4)
    with contextlib.ExitStack() as stack:

        def arrive(address: str, port: int) -> socket.socket:
            ours, theirs = socket.socketpair()
            stack.callback(theirs.close)
            admitted, _ = limits.admit(ours, (address, port))
            stack.callback(admitted.close)
            return theirs

        other = arrive("10.0.0.1", 1)
        first, *rest = [arrive("10.0.0.2", port) for port in range(5)]
        assert len(limits) == 3
        assert first.recv(1) == b""
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        limits.keep(("10.0.0.2", 3))
        limits.keep(("10.0.0.2", 4))
        with pytest.raises(ConnectionAbortedError):
            arrive("10.0.0.2", 6)
        limits.restart(("10.0.0.2", 3))
        arrive("10.0.0.2", 7)
        assert rest[2].recv(1) == b""
    assert len(limits) == 0
    assert len(caplog.records) == 1  # the same kind, within a minute
    assert LOG_SECONDS >= 60


RECIPE = """
telemetry.listen = "127.0.0.1:{health}"
[source]
use = "http"
listen = "127.0.0.1:{port}"
[sink]
use = "null"
"""


def flood(port: int, number: int) -> list[socket.socket]:
    held = []
    for _ in range(number):
        one = socket.create_connection(("127.0.0.1", port), timeout=60)
        with contextlib.suppress(ConnectionError):
            one.sendall(b"POST /write HTTP/1.1\r\nHost: x\r\n")
        held.append(one)
    return held


@pytest.mark.parametrize(
    ("descriptors", "number"), [(256, 300), pytest.param(1024, 1100, marks=pytest.mark.long)]
)
def test_bridge_answers_when_more_connections_are_open_than_descriptors(
    tmp_path: Path, descriptors: int, number: int
) -> None:
    """Data and health are answered under slow headers at both ports, and the log stays short."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * number:
        pytest.fail(f"needs {4 * number} file descriptors")
    port, health = free_port(), free_port()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(port=port, health=health))

    log = tmp_path / "log"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * number), hard))
    held: list[socket.socket] = []
    with log.open("wb") as out:
        bridge = subprocess.Popen(
            ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command("bridge", recipe)],
            env=environment(),
            stderr=out,
        )
    try:
        until_both_answer(port, health, bridge)
        for each in (port, health):
            held += flood(each, number)
        until_both_answer(port, health, bridge)
        assert bridge.poll() is None
    finally:
        for one in held:
            one.close()
        bridge.terminate()
        bridge.wait(60)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(log.read_text().splitlines()) < 20, log.read_text()


def until_both_answer(port: int, health: int, bridge: "subprocess.Popen[bytes]") -> None:
    """Wait until data and health are answered, each at its port."""
    until_answered(f"http://127.0.0.1:{health}/health", bridge)
    until_answered(f"http://127.0.0.1:{port}/write?precision=s", bridge, b"m value=1 1")


def until_answered(url: str, bridge: "subprocess.Popen[bytes]", body: bytes | None = None) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, body, timeout=10) as answer:  # noqa: S310 - our own
                assert answer.status in (200, 204)
                return
        except OSError:
            assert bridge.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
