"""The dashboard below a path, as behind a reverse proxy."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from ccpipe.config import DashboardOptions, Site
from ccpipe.dashboard.server import DashboardServer, page_files
from ccpipe.dashboard.sign_in import SignIn
from ccpipe.live.feed import LiveFeed
from ccpipe.telemetry import Telemetry
from tests.dashboard.test_server import TOKEN, first_frame, status


@pytest.fixture
async def below(site: Site, tmp_path: Path) -> AsyncIterator[DashboardServer]:
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    options = DashboardOptions(
        token_file=str(file), base_path="/site/ccpipe", trusted_proxies=["127.0.0.1"]
    )
    async with (
        LiveFeed(site, Telemetry(), name="dashboard") as feed,
        DashboardServer(feed, listen="127.0.0.1:0", sign_in=SignIn(options)) as server,
    ):
        yield server


async def test_dashboard_answers_below_base_path_and_without_it(below: DashboardServer) -> None:
    """Proxies may remove the prefix; other paths are not found."""
    token = {"Authorization": f"Bearer {TOKEN}"}
    root = f"http://127.0.0.1:{below.port}"
    assert below.url == f"{root}/site/ccpipe/"
    for prefix in ("/site/ccpipe", ""):
        assert await status(f"{root}{prefix}/") == 200
        assert await status(f"{root}{prefix}/pages/job.js") == 200
        assert await status(f"{root}{prefix}/health") == 200
        assert await status(f"{root}{prefix}/ready") in {200, 503}
        assert await status(f"{root}{prefix}/api/about") == 401
        assert await status(f"{root}{prefix}/api/about", headers=token) == 200
        frame = await first_frame(f"{root}{prefix}/api/live", {"view": "jobs"}, headers=token)
        assert frame["view"] == "jobs"
    assert await status(f"{root}/site/other") == 404
    assert await status(f"{root}/site/ccpipe/site/ccpipe/") == 404
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{root}/site/ccpipe", allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (308, "/site/ccpipe/")


@pytest.mark.parametrize(("scheme", "is_secure"), [("https", True), ("http", False)])
async def test_cookie_is_for_base_path_and_secure_behind_https(
    below: DashboardServer, scheme: str, is_secure: bool
) -> None:
    """As the trusted proxy reports."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            below.url + "api/login", data=TOKEN, headers={"X-Forwarded-Proto": scheme}
        ) as answer,
    ):
        cookie = answer.headers["Set-Cookie"]
    assert "Path=/site/ccpipe/" in cookie
    assert ("Secure" in cookie) == is_secure
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


async def test_origin_is_compared_with_forwarded_host(below: DashboardServer) -> None:
    """With or without the default port; the proxy's own name is another page."""
    api = below.url + "api/login"
    origin = {"Origin": "https://hpc.example"}
    for host, code in (
        ("hpc.example", 204),
        ("hpc.example:443", 204),
        ("hpc.example:8443", 403),
        ("evil.example", 403),
    ):
        headers = {**origin, "X-Forwarded-Host": host}
        assert await status(api, "POST", data=TOKEN, headers=headers) == code, host
    assert await status(api, "POST", data=TOKEN, headers=origin) == 403


async def test_page_files_and_answers_are_compressed(below: DashboardServer) -> None:
    """For clients that accept gzip."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        for path, file in page_files().items():
            async with session.get(below.url + path, headers=headers) as answer:
                body = await answer.read()
                assert answer.headers["Content-Encoding"] == "gzip"
                assert answer.headers["Vary"] == "Accept-Encoding"
                assert gzip.decompress(body) == file.body
            async with session.get(below.url + path, headers={"Accept-Encoding": ""}) as answer:
                assert await answer.read() == file.body
        async with session.get(below.url + "api/about", headers=headers) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert b'"role": "admin"' in gzip.decompress(await answer.read())


@pytest.mark.parametrize("path", ["ccpipe", "/ccpipe/", "/", "/a//b", "/../a", "/a?b", "/a{b}"])
def test_invalid_base_path_is_rejected(path: str) -> None:
    """It begins with a slash and does not end with one."""
    with pytest.raises(ValueError, match="base_path"):
        DashboardOptions(base_path=path)
