"""Real reverse proxies in front of a dashboard, by docs/operations/dashboard.md."""

import asyncio
import base64
import contextlib
import re
import ssl
import subprocess
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from ccpipe.config import DashboardOptions, Site, to_struct
from ccpipe.dashboard.server import FORBIDDEN, DashboardServer
from ccpipe.dashboard.sign_in import SECRET_HEADER, SignIn
from ccpipe.live.feed import LiveFeed
from ccpipe.telemetry import Telemetry
from tests.certificates import Certificates, certificates
from tests.conftest import free_port, program, until_listening
from tests.paths import ROOT

PAGE = (ROOT / "docs/operations/dashboard.md").read_text()
SECRET = "of-the-proxy"  # noqa: S105 - of this test
PASSWORD = "secret"  # noqa: S105 - of this test

Start = Callable[[Path, int, int, Certificates], list[str]]
"""Write a proxy's configuration into a directory and return its command; the arguments are the
directory, the port that it listens on, the dashboard's port and the certificates."""


def block(language: str, place: int = 0) -> str:
    found = re.findall(rf"^```{language}\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    text: str = found[place]
    return text


class Proxied(NamedTuple):
    """A dashboard behind a proxy with TLS."""

    url: str
    server: DashboardServer
    tls: ssl.SSLContext

    def session(self, user: str = "", **headers: str) -> aiohttp.ClientSession:
        if user:
            login = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        connector = aiohttp.TCPConnector(ssl=self.tls)
        jar = aiohttp.CookieJar(unsafe=True, quote_cookie=False)  # also of an address
        return aiohttp.ClientSession(self.url, headers=headers, connector=connector, cookie_jar=jar)

    async def role(self, user: str, **headers: str) -> tuple[int, str]:
        async with (
            self.session(user, **headers) as session,
            session.get("api/about") as answer,
        ):
            status = answer.status
            return status, (await answer.json())["role"] if status == 200 else ""


def options(tmp_path: Path) -> DashboardOptions:
    (tmp_path / "proxy-secret").write_text(SECRET)
    text = block("toml").replace("/etc/ccpipe", str(tmp_path)).replace("8770", "0")
    return to_struct(tomllib.loads(text), Site, where="page").dashboard


@contextlib.asynccontextmanager
async def listening(words: list[str], port: int, log: Path) -> AsyncIterator[None]:
    """Run a server, from when it listens on."""
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        await until_listening(port, process, log)
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


@contextlib.asynccontextmanager
async def running(tmp_path: Path, start: Start) -> AsyncIterator[Proxied]:
    """Run a dashboard and the proxy that `start` writes the configuration of."""
    made, port, log = certificates(tmp_path), free_port(), tmp_path / "proxy.log"
    feed = LiveFeed(Site(), Telemetry(), name="dashboard")
    async with DashboardServer(feed, sign_in=SignIn(options(tmp_path))) as server:
        words = start(tmp_path, port, server.port, made)
        async with listening(words, port, log):
            tls = ssl.create_default_context(cafile=made.ca)
            yield Proxied(f"https://127.0.0.1:{port}/ccpipe/", server, tls)


def users(tmp_path: Path) -> None:
    """Write the file of users for basic authentication, and the include with the secret."""
    command = [str(program("openssl", "openssl")), "passwd", "-apr1", PASSWORD]
    hashed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "users").write_text("".join(f"{name}:{hashed}\n" for name in ("alice", "bob")))


def nginx(http: str, tmp_path: Path, port: int, behind: int, made: Certificates) -> list[str]:
    users(tmp_path)
    (tmp_path / "ccpipe-secret").write_text(f'proxy_set_header {SECRET_HEADER} "{SECRET}";\n')
    for there, here in (
        ("/etc/nginx/cert.pem", str(made.cert)), ("/etc/nginx/key.pem", str(made.key)),
        ("/etc/nginx", str(tmp_path)), ("listen 443", f"listen 127.0.0.1:{port}"),
        ("127.0.0.1:8770", f"127.0.0.1:{behind}"),
    ):  # fmt: skip
        http = http.replace(there, here)
    places = "".join(
        f"{kind}_temp_path {tmp_path};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off;\n{places}{http}}}\n"
    )
    return [str(program("nginx", "nginx-light")), "-c", str(file), "-e", "stderr"]


def basic(tmp_path: Path, port: int, behind: int, made: Certificates) -> list[str]:
    return nginx(block("nginx"), tmp_path, port, behind, made)


def auth_request(port_of_oauth2_proxy: int) -> Start:
    """Return what writes the configuration of nginx that asks oauth2-proxy."""

    def start(tmp_path: Path, port: int, behind: int, made: Certificates) -> list[str]:
        server = block("nginx").partition("    location ")[0]
        locations = block("nginx", 1).replace(":4180", f":{port_of_oauth2_proxy}")
        return nginx(f"{server}{locations}}}\n", tmp_path, port, behind, made)

    return start


async def check_proxied(proxied: Proxied) -> None:
    """Check roles, page, WebSocket, compression and the refusal of forged headers."""
    assert await proxied.role("alice") == (200, "admin")
    assert await proxied.role("bob") == (200, "user")
    assert await proxied.role("") == (401, "")
    forged = {"X-Forwarded-User": "alice", "X-Forwarded-Groups": "hpc-support"}
    assert await proxied.role("bob", **forged) == (200, "user")
    direct = f"http://127.0.0.1:{proxied.server.port}/ccpipe/api/about"
    async with aiohttp.ClientSession() as session:
        async with session.get(direct, headers=forged) as answer:
            assert answer.status == 403
        async with session.get(direct) as answer:
            assert answer.status == 401
    async with proxied.session("bob") as session:
        async with session.get(proxied.url) as answer:
            assert "<title>ccpipe</title>" in await answer.text()
            assert answer.headers["Content-Encoding"] == "gzip"
        origin = {"Origin": proxied.url.removesuffix("/ccpipe/")}
        url = proxied.url + "api/live"
        async with session.ws_connect(url, headers=origin) as socket:
            await socket.send_str('{"view": "jobs"}')
            assert b'"view":"jobs"' in await socket.receive_bytes(timeout=30)
            await socket.send_str('{"view": "health"}')
            message = await socket.receive(timeout=30)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, FORBIDDEN)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await session.ws_connect(url, headers={"Origin": "https://evil.example"})


APACHE = """\
ServerRoot {top}
ServerName 127.0.0.1
PidFile {top}/apache.pid
ErrorLog /dev/stderr
Mutex file:{top}
Listen 127.0.0.1:{port}
{modules}
SSLEngine on
SSLCertificateFile {made.cert}
SSLCertificateKeyFile {made.key}
{location}
"""
MODULES = (
    "mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic", "ssl",
    "proxy", "proxy_http", "headers", "auth_gssapi",
)  # fmt: skip


def apache(location: str, tmp_path: Path, port: int, behind: int, made: Certificates) -> list[str]:
    (tmp_path / "ccpipe-secret").write_text(f'RequestHeader set {SECRET_HEADER} "{SECRET}"\n')
    location = location.replace("/etc/apache2", str(tmp_path))
    location = location.replace("127.0.0.1:8770", f"127.0.0.1:{behind}")
    directory = "/usr/lib/apache2/modules"
    modules = "\n".join(f"LoadModule {m}_module {directory}/mod_{m}.so" for m in MODULES)
    file = tmp_path / "apache.conf"
    file.write_text(
        APACHE.format(top=tmp_path, port=port, modules=modules, made=made, location=location)
    )
    return [str(program("apache2", "apache2-bin")), "-DFOREGROUND", "-f", str(file)]
