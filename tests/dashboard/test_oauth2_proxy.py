"""Sign-in by oauth2-proxy and an OpenID provider, by docs/operations/dashboard.md."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from tests.conftest import free_port
from tests.dashboard.browser import Page
from tests.dashboard.proxies import Proxied, auth_request, block, listening, running

PROVIDER = "oidc-provider-mock"
GROUPS = {"alice": ["users"], "bob": ["users"], "helen": ["users", "hpc-support"]}
FORGED = {
    "X-Forwarded-User": "alice",
    "X-Forwarded-Groups": "hpc-support",
    "X-Auth-Request-Preferred-Username": "alice",
    "X-Auth-Request-Groups": "hpc-support",
}
SIGN_IN = "Sign in with OpenID Connect"
SIGNED_OUT = (401, "", "")


def installed(name: str, source: str) -> str:
    """Return the path of a program that no Debian package brings; skip the test without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on PATH: {source}")
    return path


def provider(port: int) -> list[str]:
    words = [installed(PROVIDER, f"pip install {PROVIDER}"), "--port", str(port)]
    for name, groups in GROUPS.items():
        claims = {
            "sub": f"id-of-{name}", "email": f"{name}@example.org", "preferred_username": name,
            "groups": groups,
        }  # fmt: skip
        words += ["--user-claims", json.dumps(claims)]
    return words


def configuration(top: Path, proxied: Proxied, port: int, provider: int) -> Path:
    """Write the configuration of the page."""
    text = block("toml", 1)
    for there, here in (
        ("/etc/oauth2-proxy", str(top)),
        ("https://hpc.example.org/", proxied.url.removesuffix("ccpipe/")),
        ("https://sso.example.org", f"http://127.0.0.1:{provider}"),
        ("127.0.0.1:4180", f"127.0.0.1:{port}"),
    ):  # fmt: skip
        text = text.replace(there, here)
    file = top / "oauth2-proxy.cfg"
    file.write_text(text)
    (top / "client-secret").write_text("secret")
    (top / "cookie-secret").write_text("0123456789abcdef" * 2)
    return file


async def text(browser: aiohttp.ClientSession, url: str) -> str:
    async with browser.get(url) as answer:
        return await answer.text()


async def sign_in(browser: aiohttp.ClientSession, proxied: Proxied, user: str) -> str:
    """Sign in as on the pages of oauth2-proxy and the provider; return the last page."""
    async with browser.get(proxied.url.replace("/ccpipe/", "/oauth2/start")) as answer:
        form = answer.url
    async with browser.post(form, data={"sub": f"id-of-{user}"}) as answer:
        assert str(answer.url) == proxied.url
        return await answer.text()


async def viewer(browser: aiohttp.ClientSession, **headers: str) -> tuple[int, str, str]:
    """Return the status of `/api/about`, and the user and role in it."""
    async with browser.get("api/about", headers=headers) as answer:
        about = await answer.json() if answer.status == 200 else {"user": "", "role": ""}
        return answer.status, about["user"], about["role"]


class Deployment(NamedTuple):
    """A dashboard behind nginx, a provider, and how to start oauth2-proxy between them."""

    proxied: Proxied
    command: list[str]
    port: int
    log: Path

    def oauth2_proxy(self, *options: str) -> contextlib.AbstractAsyncContextManager[None]:
        return listening([*self.command, *options], self.port, self.log)


@pytest.fixture
async def deployed(tmp_path: Path) -> AsyncIterator[Deployment]:
    oauth2_proxy = installed(
        "oauth2-proxy", "go install github.com/oauth2-proxy/oauth2-proxy/v7@v7"
    )
    provider_port, port = free_port(), free_port()
    async with (
        listening(provider(provider_port), provider_port, tmp_path / "provider.log"),
        running(tmp_path, auth_request(port)) as proxied,
    ):
        file = configuration(tmp_path, proxied, port, provider_port)
        yield Deployment(
            proxied, [oauth2_proxy, f"--config={file}"], port, tmp_path / "oauth2-proxy.log"
        )


async def test_oauth2_proxy_signs_in_users_of_dashboard(deployed: Deployment) -> None:
    """With role by name and group, until they sign out; headers of clients are not believed."""
    for user, role in (("alice", "admin"), ("bob", "user"), ("helen", "support")):
        async with deployed.oauth2_proxy(), deployed.proxied.session() as browser:
            assert await viewer(browser) == SIGNED_OUT
            assert await viewer(browser, **FORGED) == SIGNED_OUT
            assert SIGN_IN in await text(browser, deployed.proxied.url)
            assert "<title>ccpipe</title>" in await sign_in(browser, deployed.proxied, user)
            assert await viewer(browser) == (200, user, role)
            assert await viewer(browser, **FORGED) == (200, user, role)
            sign_out = deployed.proxied.url.replace("/ccpipe/", "/oauth2/sign_out")
            assert SIGN_IN in await text(browser, sign_out)
            assert await viewer(browser) == SIGNED_OUT


async def test_expired_session_of_oauth2_proxy_asks_to_sign_in(deployed: Deployment) -> None:
    """Even if the browser still sends the cookie."""
    async with deployed.proxied.session() as browser:
        async with deployed.oauth2_proxy():
            await sign_in(browser, deployed.proxied, "bob")
            assert await viewer(browser) == (200, "bob", "user")
        async with deployed.oauth2_proxy("--cookie-expire=1s"):
            while await viewer(browser) != SIGNED_OUT:
                await asyncio.sleep(0.1)
            assert SIGN_IN in await text(browser, deployed.proxied.url)


async def test_browser_returns_to_its_link_when_signed_in(deployed: Deployment, page: Page) -> None:
    """By the forms of oauth2-proxy and the provider; the page then receives its view."""
    await page.call("Security.setIgnoreCertificateErrors", ignore=True)
    async with deployed.oauth2_proxy():
        await page.open(f"{deployed.proxied.url}#/jobs")
        for button in ("form[action='/oauth2/start'] button", "button[value='id-of-alice']"):
            found = f'document.querySelector("{button}")'
            # The page of oauth2-proxy adds what follows # to its form once it is loaded.
            await page.until(f"document.readyState === 'complete' && {found} !== null")
            await page.js(f"{found}.click()")
        for received in ("alice (admin)", "0 nodes"):
            await page.until(f"document.body?.innerText.includes('{received}')")
        assert await page.js("location.href") == f"{deployed.proxied.url}#/jobs"
