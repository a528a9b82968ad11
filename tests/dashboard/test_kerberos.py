"""Sign-in with Kerberos, by docs/operations/dashboard.md: a real KDC, Apache and curl."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.certificates import Certificates
from tests.conftest import free_port, program
from tests.dashboard.browser import chromium
from tests.dashboard.proxies import PASSWORD, apache, block, listening, running

KRB5_CONF = """\
[libdefaults]
default_realm = EXAMPLE.ORG
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
[realms]
EXAMPLE.ORG = {{
    kdc = 127.0.0.1:{port}
}}
[domain_realm]
localhost = EXAMPLE.ORG
"""
KDC_CONF = """\
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
EXAMPLE.ORG = {{
    database_name = {top}/principal
    key_stash_file = {top}/stash
}}
"""
SERVICE = "HTTP/localhost"
PRINCIPALS = ("alice", "bob", "alice/admin")

NEGOTIATE = ("--negotiate", "-u", ":")
FORGED = ("-H", "X-Forwarded-User: alice", "-H", "X-Forwarded-Groups: hpc-support")
WEB_SOCKET = (
    "-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13",
    "-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip
UNAUTHORIZED = (401, "", "")
RECEIVED_NEGOTIATE = '{"net": {"received_http_auth_negotiate_headers": true}}'
"""Chromium loads the library of Kerberos only if it was asked for a ticket before its start."""


@pytest.fixture
async def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Run the KDC of the realm EXAMPLE.ORG; `tmp_path` has the keytab of the web server."""
    port, log = free_port(), tmp_path / "kdc.log"
    for name, text in (("krb5.conf", KRB5_CONF), ("kdc.conf", KDC_CONF)):
        (tmp_path / name).write_text(text.format(port=port, top=tmp_path))
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    monkeypatch.setenv("KRB5_KDC_PROFILE", str(tmp_path / "kdc.conf"))
    monkeypatch.setenv("KRB5RCACHEDIR", str(tmp_path))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    run("kdb5_util", "krb5-kdc", "create", "-s", "-P", "master")
    for principal in PRINCIPALS:
        kadmin(f"addprinc -pw {PASSWORD} {principal}")
    kadmin(f"addprinc -randkey {SERVICE}")
    kadmin(f"ktadd -k {tmp_path}/http.keytab {SERVICE}")
    async with listening([str(program("krb5kdc", "krb5-kdc")), "-n"], port, log):
        yield


def run(name: str, package: str, *arguments: str, stdin: str = "") -> str:
    command = [str(program(name, package)), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kadmin(query: str) -> None:
    run("kadmin.local", "krb5-admin-server", "-q", query)


def kerberos(tmp_path: Path, port: int, behind: int, made: Certificates) -> list[str]:
    return apache(block("apache"), tmp_path, port, behind, made)


class Client(NamedTuple):
    """curl with a user's tickets."""

    url: str
    ca: Path

    async def get(self, *options: str) -> tuple[int, str, str]:
        """Return the status of `/api/about`, and the user and role in it."""
        process = await asyncio.create_subprocess_exec(
            program("curl", "curl"), "--silent", "--cacert", self.ca, *options,
            "--write-out", "\n%{http_code}", self.url + "api/about",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
        body, _, status = output.decode().rpartition("\n")
        about = json.loads(body) if status == "200" else {"user": "", "role": ""}
        return int(status), about["user"], about["role"]

    async def opens_socket(self, *options: str) -> bool:
        """Return whether the proxy and the dashboard open a WebSocket."""
        process = await asyncio.create_subprocess_exec(
            program("curl", "curl"), "--silent", "--cacert", self.ca, *options, "--http1.1",
            "--verbose", *WEB_SOCKET, self.url + "api/live",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        async for line in process.stderr:
            if line.startswith(b"< HTTP/1.1 101 "):
                process.kill()
                await process.wait()
                return True
        await process.wait()
        return False


def kinit(principal: str) -> None:
    run("kinit", "krb5-user", principal, stdin=PASSWORD)


@pytest.mark.usefixtures("kdc")
async def test_kerberos_authenticates_users_of_dashboard(tmp_path: Path) -> None:
    """By their ticket and without the realm; headers of the client are not believed."""
    async with running(tmp_path, kerberos) as proxied:
        client = Client(proxied.url.replace("127.0.0.1", "localhost"), tmp_path / "ca.pem")
        for options in ((), NEGOTIATE, FORGED, (*NEGOTIATE, *FORGED)):
            assert await client.get(*options) == UNAUTHORIZED
        assert not await client.opens_socket(*NEGOTIATE)
        kinit("bob")
        assert await client.get(*NEGOTIATE) == (200, "bob", "user")
        assert await client.get(*NEGOTIATE, *FORGED) == (200, "bob", "user")
        assert await client.get(*FORGED) == UNAUTHORIZED
        assert await client.opens_socket(*NEGOTIATE)
        kinit("alice")
        assert await client.get(*NEGOTIATE) == (200, "alice", "admin")
        kinit("alice/admin")
        assert await client.get(*NEGOTIATE) == UNAUTHORIZED


@pytest.mark.usefixtures("kdc")
async def test_browser_with_ticket_shows_dashboard(tmp_path: Path) -> None:
    """Its WebSocket, too, is opened with the ticket."""
    kinit("alice")
    async with (
        running(tmp_path, kerberos) as proxied,
        chromium(
            program("chromium", "chromium"), "--auth-server-allowlist=localhost",
            local_state=RECEIVED_NEGOTIATE,
        ) as page,
    ):  # fmt: skip
        await page.call("Security.setIgnoreCertificateErrors", ignore=True)
        await page.open(proxied.url.replace("127.0.0.1", "localhost"))
        for received in ("alice (admin)", "0 nodes"):
            await page.until(f"document.body?.innerText.includes('{received}')")
