"""TLS with a real server: nothing in clear if TLS is required, and refusals name TLS."""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import trustme

from ccpipe.bus.nats.connection import Connection, check
from ccpipe.config import Bus
from ccpipe.errors import ConfigError, DeniedError
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.conftest import eventually
from tests.servers.nats.daemon import nats_daemon

PASSWORD = "in-clear-never"  # noqa: S105 - of a test


class Authority(NamedTuple):
    """A certificate authority and where its files are."""

    ca: trustme.CA
    file: Path
    directory: Path

    def server(self, name: str = "127.0.0.1", until: dt.datetime | None = None) -> str:
        """Issue a server's certificate; return the server's configuration for it."""
        certificate = self.ca.issue_cert(name, not_after=until)
        chain, key = self.directory / "server.pem", self.directory / "server.key"
        certificate.cert_chain_pems[0].write_to_path(chain)
        certificate.private_key_pem.write_to_path(key)
        return f'cert_file: "{chain}", key_file: "{key}"'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    return Authority(ca, tmp_path / "ca.pem", tmp_path)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text(PASSWORD)
    return tmp_path / "password"


@contextlib.asynccontextmanager
async def eavesdropper(info: bytes) -> AsyncIterator[tuple[int, bytearray]]:
    """Listen as a server without TLS would, and keep everything that a client sends."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(info)
        while data := await reader.read(4096):
            heard.extend(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


def bus_of(port: int, scheme: str = "nats", **more: str) -> Bus:
    return Bus(servers=[f"{scheme}://127.0.0.1:{port}"], **more)  # type: ignore[arg-type]


ASKING: list[Callable[[int, Path], Bus]] = [
    lambda port, _: bus_of(port, "tls", user="u"),
    lambda port, ca: bus_of(port, ca_file=str(ca), user="u"),
    lambda port, _: bus_of(port, tls="require", user="u"),
]


@pytest.mark.parametrize("asking", ASKING)
async def test_client_sends_nothing_to_server_without_tls(
    authority: Authority, password: Path, asking: Callable[[int, Path], Bus]
) -> None:
    """However TLS is required: not one byte is sent, above all no password."""
    info = b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"headers":true}\r\n'
    async with eavesdropper(info) as (port, heard):
        bus = msgspec.structs.replace(asking(port, authority.file), password_file=str(password))
        with pytest.raises(DeniedError, match="TLS is required.*no credentials were sent$"):
            await check(bus, Telemetry())
        assert heard == b""


async def test_reconnection_requires_tls(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server restarted without TLS receives nothing; one with TLS is used again."""
    tls = f"tls {{ {authority.server()} }}"
    async with nats_daemon(tmp_path, tls) as port:
        connection = Connection(
            bus_of(port, ca_file=str(authority.file)), name="t", telemetry=Telemetry()
        )
        await connection.__aenter__()
    try:
        async with nats_daemon(tmp_path, "", port):
            await eventually(lambda: "TLS is required" in caplog.text, 60)
            assert not connection.is_connected
        async with nats_daemon(tmp_path, tls, port):
            await eventually(lambda: connection.is_connected, 60)
    finally:
        await connection.__aexit__(None, None, None)


@pytest.mark.parametrize("tls", ["auto", "require"])
async def test_client_connects_with_tls(authority: Authority, tmp_path: Path, tls: str) -> None:
    """With the site's own authority; also if the server only offers TLS."""
    for offer in ("", "allow_non_tls: true\n"):
        configuration = f"{offer}tls {{ {authority.server()} }}"
        async with nats_daemon(tmp_path, configuration) as port:
            await check(bus_of(port, ca_file=str(authority.file), tls=tls), Telemetry())


async def test_client_supports_handshake_first(authority: Authority, tmp_path: Path) -> None:
    """A server with ``handshake_first`` sends nothing before TLS."""
    tls = f"tls {{ {authority.server()}, handshake_first: true }}"
    async with nats_daemon(tmp_path, tls) as port:
        await check(bus_of(port, ca_file=str(authority.file), tls="first"), Telemetry())


async def test_client_refuses_unknown_authority(authority: Authority, tmp_path: Path) -> None:
    """The error names TLS, the problem and the configuration key."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    async with nats_daemon(tmp_path, f"tls {{ {authority.server()} }}") as port:
        for bus in (bus_of(port, ca_file=str(tmp_path / "other.pem")), bus_of(port, "tls")):
            with pytest.raises(DeniedError, match=r"TLS: .*certificate is refused.*bus\.ca_file"):
                await check(bus, Telemetry())


async def test_client_refuses_certificate_of_another_host(
    authority: Authority, tmp_path: Path
) -> None:
    """Although it is valid."""
    async with nats_daemon(tmp_path, f"tls {{ {authority.server('elsewhere.test')} }}") as port:
        with pytest.raises(DeniedError, match="TLS: .*mismatch"):
            await check(bus_of(port, ca_file=str(authority.file)), Telemetry())


async def test_client_refuses_expired_certificate(authority: Authority, tmp_path: Path) -> None:
    """The error reports that it has expired."""
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    tls = authority.server(until=yesterday)
    async with nats_daemon(tmp_path, f"tls {{ {tls} }}") as port:
        with pytest.raises(DeniedError, match="TLS: .*expired"):
            await check(bus_of(port, ca_file=str(authority.file)), Telemetry())


async def test_client_presents_its_certificate(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server accepts it; without one the reason is reported."""
    caplog.set_level(logging.WARNING)
    ours = authority.ca.issue_cert("node.test")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "ours.pem")
    ours.private_key_pem.write_to_path(tmp_path / "ours.key")
    tls = f'tls {{ {authority.server()}, ca_file: "{authority.file}", verify: true }}'
    async with nats_daemon(tmp_path, tls) as port:
        files = {"cert_file": str(tmp_path / "ours.pem"), "key_file": str(tmp_path / "ours.key")}
        async with connected(bus_of(port, ca_file=str(authority.file), **files)) as bus:
            await bus.flush()
        with pytest.raises(DeniedError, match="TLS: .*certificate required.*bus.cert_file"):
            await check(bus_of(port, ca_file=str(authority.file)), Telemetry())


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """As a configuration error, before anything starts."""
    with pytest.raises(ConfigError, match="bus.ca_file"):
        Connection(Bus(ca_file=str(tmp_path / "none")), name="t", telemetry=Telemetry())
