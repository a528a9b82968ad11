"""The server's responses and access control."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from ccpipe.config import DashboardOptions, Site
from ccpipe.dashboard.server import DashboardServer, page_files
from ccpipe.dashboard.sign_in import SignIn, is_loopback
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.live.feed import LiveFeed
from ccpipe.telemetry import Telemetry
from tests.dashboard.conftest import Served
from tests.dashboard.test_views import read
from tests.paths import ROOT

TOKEN = "x" * 20


@pytest.fixture
async def guarded(site: Site, tmp_path: Path) -> AsyncIterator[DashboardServer]:
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    sign_in = SignIn(DashboardOptions(token_file=str(file)))
    async with (
        LiveFeed(site, Telemetry(), name="dashboard") as feed,
        DashboardServer(feed, listen="127.0.0.1:0", sign_in=sign_in) as server,
    ):
        yield server


async def status(url: str, method: str = "GET", **more: Any) -> int:
    async with aiohttp.ClientSession() as session, session.request(method, url, **more) as answer:
        return answer.status


async def first_frame(url: str, query: object, **more: Any) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.ws_connect(url, **more) as socket:
        await socket.send_str(query if isinstance(query, str) else json.dumps(query))
        message = await socket.receive(timeout=30)
        assert message.type is aiohttp.WSMsgType.BINARY, message
        (size,) = struct.unpack_from("<I", message.data)
        header: dict[str, Any] = json.loads(message.data[4 : 4 + size])
        return header


async def test_page_files_are_in_package(live: Served) -> None:
    """Every file that the page names is served, with the strict policy, from here only."""
    async with aiohttp.ClientSession() as session:
        for path in ["", *page_files()]:
            async with session.get(live.server.url + path) as answer:
                body = await answer.text()
                assert answer.status == 200, path
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                if not path.startswith("vendor/") and not path.endswith(".svg"):
                    assert "http://" not in body, path
                    assert "https://" not in body, path
                    assert "innerHTML" not in body, path
                tag = answer.headers["ETag"]
            async with session.get(live.server.url + path, headers={"If-None-Match": tag}) as again:
                assert again.status == 304


async def test_chart_library_matches_page_on_licences() -> None:
    """UPlot's file names the version whose licence is next to it."""
    directory = ROOT / "ccpipe" / "dashboard" / "static" / "vendor"
    assert "uPlot (v1.6.32)" in page_files()["vendor/uplot.js"].body.decode()[:80]
    assert "MIT License" in (directory / "LICENSE-uplot").read_text()
    assert "1.6.32" in (ROOT / "docs/guide/dashboard.md").read_text()


@pytest.mark.parametrize(
    "path", ["nothing", "..%2fserver.py", "%2e%2e/server.py", "vendor/../../server.py", "vendor"]
)
async def test_other_files_are_not_found(live: Served, path: str) -> None:
    """Only files of the page are found, by whatever path."""
    url = URL(live.server.url + path, encoded=True)
    assert await status(str(url)) == 404


async def test_requests_of_other_pages_are_rejected(live: Served) -> None:
    """Of another origin, or with a host name that resolves to this machine."""
    api = live.server.url + "api/about"
    own = live.server.url.rstrip("/")
    assert await status(api, headers={"Origin": own}) == 200
    assert await status(api, headers={"Origin": "http://evil.example"}) == 403
    assert await status(api, headers={"Host": "evil.example"}) == 403
    assert await status(api, headers={"Host": f"localhost:{live.server.port}"}) == 200
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await first_frame(
            live.server.url + "api/live",
            {"view": "jobs"},
            headers={"Origin": "http://evil.example"},
        )


async def test_requests_without_token_are_rejected(guarded: DashboardServer) -> None:
    """Both for frames and history; the token is accepted as header or as cookie."""
    url = guarded.url
    for path, method in (("api/about", "GET"), ("api/live", "GET"), ("api/history", "POST")):
        assert await status(url + path, method) == 401
        wrong = {"Authorization": "Bearer wrong"}
        assert await status(url + path, method, headers=wrong) == 401
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert await status(url + "api/about", headers=right) == 200
    assert await status(url + "api/login", "POST", data="wrong") == 401
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        async with session.post(url + "api/login", data=TOKEN) as answer:
            assert answer.status == 204
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert TOKEN not in cookie
        async with session.get(url + "api/about") as answer:
            assert answer.status == 200


def test_other_address_than_loopback_requires_token(site: Site) -> None:
    """Without one the server does not start."""
    for listen in ("10.1.2.3:80", "[::]:0", "192.0.2.1:0", "host.example:80"):
        with pytest.raises(ConfigError, match="needs a token"):
            DashboardServer(None, listen=listen)  # type: ignore[arg-type] # it is not reached


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.1:70000", "[::1", "127.0.0.1:x"])
def test_invalid_address_is_named(listen: str) -> None:
    """By the key of the configuration."""
    with pytest.raises(ConfigError, match="dashboard.listen: "):
        DashboardServer(None, listen=listen)  # type: ignore[arg-type] # it is not reached


async def test_dashboard_is_unavailable_when_its_port_is_in_use(live: Served) -> None:
    """The address is named."""
    with pytest.raises(UnavailableError, match=f"cannot listen on 127.0.0.1:{live.server.port}"):
        async with DashboardServer(live.feed, listen=f"127.0.0.1:{live.server.port}"):
            pass


def test_loopback_is_recognised() -> None:
    """Addresses and the name; nothing else."""
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("192.0.2.1", "::", "10.0.0.1", "localhost.evil", "")))


@pytest.mark.parametrize(
    "query",
    [
        "", "{}", "[]", '{"view": "nothing"}', '{"view": "node"}', "[" * 2000,
        '{"view": "overview", "metrics": "load"}', '{"view": "job", "cluster": "c", "job": "x"}',
    ],
)  # fmt: skip
async def test_invalid_query_closes_connection(live: Served, query: str) -> None:
    """With a reason; other connections are unaffected."""
    url = live.server.url + "api/live"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_str(query)
        message = await socket.receive(timeout=30)
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert "not a query" in str(message.extra)
    assert (await first_frame(live.server.url + "api/live", {"view": "jobs"}))["view"] == "jobs"


async def test_every_view_has_first_frame(live: Served) -> None:
    """Also for unknown nodes and jobs."""
    for query in (
        {"view": "overview", "metrics": ["none"]},
        {"view": "node", "cluster": "c", "node": "n"},
        {"view": "jobs"},
        {"view": "job", "cluster": "c", "job": 1, "start": 2},
        {"view": "events"},
        {"view": "health"},
    ):
        header = await first_frame(live.server.url + "api/live", query)
        assert header["view"] == query["view"]
        assert header["status"]["connected"]


async def test_history_query_is_answered_or_rejected(live: Served) -> None:
    """An invalid query is a bad request; one without a result is empty."""
    url = live.server.url + "api/history"
    assert await status(url, "POST", data=b"{") == 400
    assert await status(url, "POST", data=b"x" * 10**6) == 413
    unknown = {"of": "job", "cluster": "c", "job": 1, "begin": 1000}
    assert await status(url, "POST", json=unknown) == 400
    query = {"of": "nodes", "cluster": "c", "nodes": ["n"], "start": 1000, "stop": 2000}
    async with aiohttp.ClientSession() as session, session.post(url, json=query) as answer:
        header, numbers = read(await answer.read())
    assert (header["step"], header["count"], header["series"]) == (3.0, 334, [])
    assert not numbers


async def test_refused_credentials_end_dashboard(site: Site) -> None:
    """Retrying would not help."""
    from msgspec.structs import replace

    from ccpipe.errors import DeniedError

    url = site.bus.servers[0]
    wrong = url.replace(url.partition("@")[0], "nats://ccpipe:wrong")
    bad = replace(site, bus=replace(site.bus, servers=[wrong]))
    async with LiveFeed(bad, Telemetry(), name="dashboard") as feed:
        with pytest.raises(DeniedError):
            async with asyncio.timeout(60):
                await feed.run(asyncio.Event())
