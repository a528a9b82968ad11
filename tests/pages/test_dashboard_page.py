"""docs/operations/dashboard.md: its configurations, with real proxies in front of the dashboard."""

import json
import re
import textwrap
from pathlib import Path

from aiohttp import web

from ccpipe.config import DashboardOptions
from ccpipe.dashboard.sign_in import SignIn
from tests.certificates import Certificates
from tests.dashboard.proxies import (
    apache,
    auth_request,
    basic,
    block,
    check_proxied,
    running,
    users,
)


async def test_nginx_authenticates_users_of_dashboard(tmp_path: Path) -> None:
    """With TLS, below a path, and with the secret."""
    async with running(tmp_path, basic) as proxied:
        await check_proxied(proxied)


async def test_oauth2_proxy_authenticates_users_by_nginx(tmp_path: Path) -> None:
    """A stand-in answers as oauth2-proxy does; without a session the page asks to sign in."""

    async def auth(request: web.Request) -> web.Response:
        name = request.cookies.get("session", "")
        headers = {
            "X-Auth-Request-Preferred-Username": name, "X-Auth-Request-Groups": "hpc-support,x"
        }  # fmt: skip
        return web.Response(status=202, headers=headers) if name else web.Response(status=401)

    async def sign_in(_: web.Request) -> web.Response:
        return web.Response(text="sign in here")

    app = web.Application()
    app.add_routes([web.get("/oauth2/auth", auth), web.get("/oauth2/sign_in", sign_in)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider = int(runner.addresses[0][1])

    try:
        async with running(tmp_path, auth_request(provider)) as proxied:
            assert await proxied.role("") == (401, "")
            assert await proxied.role("", Cookie="session=bob") == (200, "support")
            assert await proxied.role("", Cookie="session=alice") == (200, "admin")
            forged = {"Cookie": "session=bob", "X-Forwarded-User": "alice"}
            assert await proxied.role("", **forged) == (200, "support")
            async with proxied.session() as session, session.get(proxied.url) as answer:
                assert await answer.text() == "sign in here"
    finally:
        await runner.cleanup()


def apache_basic(tmp_path: Path, port: int, behind: int, made: Certificates) -> list[str]:
    users(tmp_path)
    location = re.sub(
        r"AuthType GSSAPI\n.+\n.+\n", f"AuthType Basic\nAuthUserFile {tmp_path}/users\n",
        block("apache"),
    )  # fmt: skip
    assert "Gssapi" not in location
    return apache(location, tmp_path, port, behind, made)


async def test_apache_authenticates_users_of_dashboard(tmp_path: Path) -> None:
    """By basic authentication, in place of Kerberos."""
    async with running(tmp_path, apache_basic) as proxied:
        await check_proxied(proxied)


def test_token_file_of_page_is_read(tmp_path: Path) -> None:
    """It has a user and a supporter."""
    file = tmp_path / "tokens"
    file.write_text(textwrap.dedent(block("text")))
    sign_in = SignIn(DashboardOptions(token_file=str(file)))
    assert sign_in.tokens is not None
    roles = {
        token.viewer.user: token.viewer.role.name.lower()
        for line in file.read_text().splitlines()[1:]
        if (token := sign_in.tokens.find(line.split()[0]))
    }
    assert json.dumps(roles) == '{"alice": "user", "helen": "support"}'
