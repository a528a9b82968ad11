"""Requests that the server must refuse: each with its status, and nothing of others in the answer.

The dashboard knows a job of alice on n1 and one of bob on n2, a log message and a dead letter. It
trusts the proxy at 127.0.0.2; requests come from 127.0.0.1 unless a test says otherwise.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.config import DashboardOptions, Site
from ccpipe.dashboard.access import EVERYTHING, Role, Viewer
from ccpipe.dashboard.server import FORBIDDEN, SIGNED_OUT, DashboardServer
from ccpipe.dashboard.sign_in import SECRET_HEADER, SignIn, Token
from ccpipe.formats.clustercockpit import NodeState, encode_node_reasons, encode_node_states
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.history.open import open_history
from ccpipe.jobs.pending import PendingJob, QueueReports
from ccpipe.live.feed import LiveFeed, averaged_metrics
from ccpipe.message import event, log
from ccpipe.pipeline.state import StateStore
from ccpipe.telemetry import Telemetry

NOW = int(time.time())
ALICE = Token("alice-token", Viewer("alice", Role.USER))
HELEN = Token("helen-token", Viewer("helen", Role.SUPPORT))
ADMIN = Token("admin-token", EVERYTHING)
PROXY, OTHER = "127.0.0.2", "127.0.0.1"
SECRET = "the-secret-of-the-proxy"  # noqa: S105 - of this test
OF_OTHERS = ("bob", "log-of-n2", "dead-text", "nats://", *(t.secret for t in (HELEN, ADMIN)))
LATER = NOW + 86400


def _start(number: int, user: str, node: str, start: int) -> Any:
    payload = {
        "jobId": number, "user": user, "cluster": "c", "startTime": start, "numNodes": 1,
        "project": f"{user}-project", "metaData": {"jobName": f"{user}-job"},
        "resources": [{"hostname": node}],
    }  # fmt: skip
    tags = {"cluster": "c", "hostname": node, "function": "start_job"}
    return event("job", "start_job", json.dumps(payload), time=start * 10**9, tags=tags)


def _pending(user: str, number: int) -> Iterator[Any]:
    job = PendingJob(cluster="c", id=number, user=user, name=f"{user}-job")
    yield from QueueReports("c", StateStore()).update([job], NOW * 10**9)


def _states(reasons: dict[str, str]) -> Iterator[Any]:
    rows = [NodeState(node, ["idle", "drain"]) for node in reasons]
    for name, payloads in (
        ("nodestate", encode_node_states("c", rows)),
        ("nodereason", encode_node_reasons("c", reasons)),
    ):
        for text in payloads:
            yield event(name, name, text, time=NOW, tags={"cluster": "c", "hostname": "n1"})


def known() -> LiveFeed:
    """Return a feed of known state, which is not connected."""
    feed = LiveFeed(Site(), Telemetry(), name="dashboard")
    lines = [f"cpu_load,cluster=c,hostname={n},type=node value=1 {NOW}" for n in ("n1", "n2")]
    feed.state.feed(decode("\n".join(lines).encode()), NOW)
    for message in (
        _start(1, "alice", "n1", NOW - 1000),
        _start(2, "bob", "n2", NOW - 1000),
        *_pending("alice", 3),
        *_pending("bob", 4),
        log("ccpipe", "info", "log-of-n2", time=NOW, tags={"cluster": "c", "hostname": "n2"}),
        *_states({"n1": "bob replaces a fan"}),
    ):
        feed.state.feed_texts(to_lines([message]), NOW)
    feed.state.feed_dead(Delivery("c.dead", b"dead-text"), NOW)
    feed.state.tick(NOW)
    return feed


def test_known_state_contains_what_must_not_leak() -> None:
    """Otherwise the tests below would prove nothing."""
    state = known().state
    assert {job.user for job in state.jobs.running} == {"alice", "bob"}
    users = [entry.user for entry in state.journal.entries if entry.name == "job"]
    assert users == ["alice", "bob"]
    assert [job.user for job in state.jobs.pending.jobs.values()] == users
    assert state.health.dead_count == 1
    assert len(state.nodes.in_order()) == 2


@dataclass
class Guarded:
    """A dashboard with tokens and a trusted proxy, and the file of the tokens."""

    server: DashboardServer
    tokens: Path

    async def answer(
        self, path: str, method: str = "GET", *, peer: str = OTHER, **more: Any
    ) -> tuple[int, str]:
        connector = aiohttp.TCPConnector(local_addr=(peer, 0))
        url = URL(self.server.url + path, encoded=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, url, allow_redirects=False, **more) as answer,
        ):
            return answer.status, (await answer.read()).decode(errors="replace")

    async def frame(self, query: str, *, peer: str = OTHER, **more: Any) -> tuple[int, str]:
        """Return the code that closes the WebSocket, or 0, and a reason or the first frame."""
        connector = aiohttp.TCPConnector(local_addr=(peer, 0))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.ws_connect(self.server.url + "api/live", **more) as socket,
        ):
            await socket.send_str(query)
            message = await socket.receive(timeout=30)
            if message.type is aiohttp.WSMsgType.CLOSE:
                return message.data, str(message.extra)
            return 0, message.data.decode(errors="replace")


async def _serve(tmp_path: Path, options: DashboardOptions) -> AsyncIterator[DashboardServer]:
    async with DashboardServer(
        known(),
        listen="127.0.0.1:0",
        sign_in=SignIn(options),
        history=open_history(str(tmp_path / "parquet"), averaged_metrics),
    ) as server:
        yield server


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    file = tmp_path / "tokens"
    file.write_text(
        f"# of the test\n{ADMIN.secret}\n{ALICE.secret} user alice\n{HELEN.secret} support helen\n"
    )
    options = DashboardOptions(
        token_file=str(file), user_header="X-Forwarded-User", groups_header="X-Forwarded-Groups",
        trusted_proxies=[f"{PROXY}/32"], admins=["root"], support_groups=["staff"],
    )  # fmt: skip
    async for server in _serve(tmp_path, options):
        yield Guarded(server, file)


def bearer(token: Token | str) -> dict[str, str]:
    secret = token.secret if isinstance(token, Token) else token
    return {"Authorization": f"Bearer {secret}"}


def cookie(server: DashboardServer, session: str) -> dict[str, str]:
    return {"Cookie": f"ccpipe-dashboard-{server.port}={session}"}


def check(status: int, expected: int, text: str) -> None:
    assert status == expected, text
    for secret in OF_OTHERS:
        assert secret not in text


BAD_TOKENS = {
    "none": {},
    "wrong": bearer("wrong"),
    "empty": bearer(""),
    "part": bearer(ADMIN.secret[:-1]),
    "longer": bearer(ADMIN.secret + "x"),
    "two": bearer(f"{ALICE.secret} {ADMIN.secret}"),
    "line": bearer(f"{ALICE.secret} user alice"),
    "comment": bearer("#"),
    "basic": {"Authorization": f"Basic {ADMIN.secret}"},
    "cookie": {"Cookie": f"token={ADMIN.secret}"},
}


@pytest.mark.parametrize(
    "path", ["api/about", "api/live", "api/history", "api/jobs", "api/job-report"]
)
@pytest.mark.parametrize("token", BAD_TOKENS)
async def test_request_without_valid_token_is_refused(
    guarded: Guarded, token: str, path: str
) -> None:
    """With status 401, whatever it asks."""
    method = "POST" if path in POSTED else "GET"
    check(*(await _with(guarded, path, method, 401, headers=BAD_TOKENS[token])))


async def _with(
    guarded: Guarded, path: str, method: str, expected: int, **more: Any
) -> tuple[int, int, str]:
    status, text = await guarded.answer(path, method, **more)
    return status, expected, text


SESSIONS = {
    "expired": ADMIN.session(NOW - 1),
    "prolonged": ADMIN.session(NOW - 1).replace(f".{NOW - 1}.", f".{LATER}."),
    "of another token": f"{ADMIN.id}.{LATER}.{ALICE.session(LATER).rpartition('.')[2]}",
    "of unknown token": Token("unknown", EVERYTHING).session(LATER),
    "token itself": ADMIN.secret,
    "without signature": f"{ADMIN.id}.{LATER}.",
    "of no time": f"{ADMIN.id}.x.y",
    "empty": "",
}


@pytest.mark.parametrize("session", SESSIONS)
async def test_invalid_session_is_refused(guarded: Guarded, session: str) -> None:
    """An expired or changed cookie, and one of another token."""
    headers = cookie(guarded.server, SESSIONS[session])
    check(*(await _with(guarded, "api/about", "GET", 401, headers=headers)))
    valid = cookie(guarded.server, ALICE.session(LATER))
    status, text = await guarded.answer("api/about", headers=valid)
    assert status == 200
    assert json.loads(text).items() >= {"user": "alice", "role": "user"}.items()


async def test_session_ends_when_its_token_is_removed(guarded: Guarded) -> None:
    """Token, cookie and open page; other tokens stay valid, and a broken file has none."""
    session = cookie(guarded.server, ALICE.session(LATER))
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(guarded.server.url + "api/live", headers=session) as socket,
    ):
        await socket.send_str('{"view": "jobs"}')
        assert (await socket.receive(timeout=30)).type is aiohttp.WSMsgType.BINARY
        guarded.tokens.write_text(f"{ADMIN.secret}\n")
        async with guarded.server.feed.ticked:
            guarded.server.feed.ticked.notify_all()
        message = await socket.receive(timeout=30)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, SIGNED_OUT)
    for headers in (session, bearer(ALICE)):
        check(*(await _with(guarded, "api/about", "GET", 401, headers=headers)))
    assert (await guarded.answer("api/about", headers=bearer(ADMIN)))[0] == 200
    for text in ("one two three four", f"{ADMIN.secret}\n{ADMIN.secret}", "token user", ""):
        guarded.tokens.write_text(text)
        check(*(await _with(guarded, "api/about", "GET", 401, headers=bearer(ADMIN))))
    guarded.tokens.unlink()
    check(*(await _with(guarded, "api/about", "GET", 401, headers=bearer(ADMIN))))


ORIGINS = (
    "null", "http://evil.example", "http://127.0.0.1:1", "http://127.0.0.1", "https://127.0.0.1:PORT.evil",
    "http://127.0.0.1:PORT@evil.example", "http://localhost:PORT", "http://[", "",
)  # fmt: skip


@pytest.mark.parametrize("origin", ORIGINS)
async def test_request_of_foreign_page_is_refused(guarded: Guarded, origin: str) -> None:
    """Even with a valid token; that it claims to be forwarded from there does not help."""
    headers = {**bearer(ADMIN), "Origin": origin.replace("PORT", str(guarded.server.port))}
    check(*(await _with(guarded, "api/about", "GET", 403, headers=headers)))
    check(*(await _with(guarded, "api/live", "GET", 403, headers=headers)))
    check(*(await _with(guarded, "api/login", "POST", 403, headers=headers, data=ADMIN.secret)))
    headers["X-Forwarded-Host"] = headers["Origin"].rpartition("//")[2]
    check(*(await _with(guarded, "api/about", "GET", 403, headers=headers)))


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil", "10.0.0.1", "", "[::1", "a@b"])
async def test_foreign_host_is_refused_without_access_control(tmp_path: Path, host: str) -> None:
    """A domain of another may resolve to this machine."""
    async for server in _serve(tmp_path, DashboardOptions()):
        guarded = Guarded(server, tmp_path)
        headers = {"Host": host}
        for path in ("", "health", "ready", "api/about", "api/live"):
            check(*(await _with(guarded, path, "GET", 403, headers=headers)))


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host"])
async def test_proxy_is_refused_without_access_control(tmp_path: Path, header: str) -> None:
    """It would show everything to everybody."""
    async for server in _serve(tmp_path, DashboardOptions()):
        guarded = Guarded(server, tmp_path)
        for path in ("", "api/about", "api/live"):
            check(*(await _with(guarded, path, "GET", 403, headers={header: "127.0.0.1"})))


IMITATED = (
    {"X-Forwarded-User": "root"},
    {"x-forwarded-user": "root"},
    {"X-Forwarded-User": ""},
    {"X-Forwarded-User": "root", "X-Forwarded-For": PROXY, "X-Real-Ip": PROXY},
    {"X-Forwarded-Groups": "staff"},
    {"X-Forwarded-User": "root", **bearer(ADMIN)},
)


@pytest.mark.parametrize(
    "path", ["", "health", "api/about", "api/live", "api/history", "api/jobs", "api/job-report"]
)
@pytest.mark.parametrize("headers", IMITATED, ids=str)
async def test_proxy_header_of_other_client_is_refused(
    guarded: Guarded, headers: dict[str, str], path: str
) -> None:
    """Whatever it requests."""
    method = "POST" if path in POSTED else "GET"
    check(*(await _with(guarded, path, method, 403, headers=headers)))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], 401),
        ([("X-Forwarded-User", "")], 401),
        ([("X-Forwarded-Groups", "staff")], 401),
        ([("X-Forwarded-User", "alice"), ("X-Forwarded-User", "root")], 403),
        ([("X-Forwarded-User", "alice"), ("X-Forwarded-Groups", "a"),
          ("X-Forwarded-Groups", "staff")], 403),
        ([("X-Forwarded-User", "root\u200b")], 403),
        ([("X-Forwarded-User", "r" * 4000)], 403),
    ],
)  # fmt: skip
async def test_proxy_must_name_one_user(
    guarded: Guarded, headers: list[tuple[str, str]], expected: int
) -> None:
    """A client's own header next to the proxy's is refused, and an unprintable or long name."""
    check(*(await _with(guarded, "api/about", "GET", expected, headers=headers, peer=PROXY)))


@pytest.mark.parametrize("secret", [None, "", "wrong", SECRET + "x"])
async def test_proxy_without_secret_is_refused(tmp_path: Path, secret: str | None) -> None:
    """Where a secret is configured, its address is not enough."""
    (tmp_path / "secret").write_text(SECRET)
    options = DashboardOptions(
        user_header="X-Forwarded-User", trusted_proxies=[OTHER], admins=["root"],
        proxy_secret_file=str(tmp_path / "secret"),
    )  # fmt: skip
    async for server in _serve(tmp_path, options):
        guarded = Guarded(server, tmp_path)
        headers = {"X-Forwarded-User": "root"}
        if secret is not None:
            headers[SECRET_HEADER] = secret
        check(*(await _with(guarded, "api/about", "GET", 403, headers=headers)))
        headers[SECRET_HEADER] = SECRET
        status, text = await guarded.answer("api/about", headers=headers)
        assert (status, json.loads(text)["role"]) == (200, "admin")
        assert (await guarded.answer("api/about", headers=headers, peer=PROXY))[0] == 403


@pytest.mark.parametrize(
    ("user", "groups", "role"),
    [
        ("root", "", "admin"), ("alice", "", "user"), ("alice", "x, staff", "support"),
        ("alice", "staff2,", "user"), ("Root", "", "user"), ("x", "root", "user"),
    ],
)  # fmt: skip
async def test_role_follows_from_user_and_groups(
    guarded: Guarded, user: str, groups: str, role: str
) -> None:
    """Of the trusted proxy's headers; names are compared exactly."""
    headers = {"X-Forwarded-User": user, "X-Forwarded-Groups": groups}
    status, text = await guarded.answer("api/about", headers=headers, peer=PROXY)
    assert status == 200
    assert json.loads(text).items() >= {"user": user, "role": role}.items()


POSTED = ("api/history", "api/jobs", "api/job-report")


def _query(view: str, **more: object) -> str:
    return json.dumps({"view": view, **more})


VIEWS = [
    (_query("overview", metrics=["cpu_load"]), 0, '"n2"'),
    (_query("nodes", metrics=["cpu_load"]), 0, '"n2"'),
    (_query("jobs"), 0, '"changed":true'),
    (_query("job", cluster="c", job=2, start=NOW - 1000), 0, '"missing":true'),
    (_query("job", cluster="c", job=9, start=1), 0, '"missing":true'),
    (_query("events"), 0, "alice-job"),
    (_query("node", cluster="c", node="n2"), FORBIDDEN, "no job of yours"),
    (_query("node", cluster="c", node="n3"), FORBIDDEN, "no job of yours"),
    (_query("node", cluster="", node=""), FORBIDDEN, "no job of yours"),
    (_query("health"), FORBIDDEN, "role admin"),
    (_query("node", cluster="c", node="n1"), 0, "alice-job"),
    (_query("job", cluster="c", job=1, start=NOW - 1000), 0, "alice-job"),
]


@pytest.mark.parametrize("by", ["token", "proxy"])
@pytest.mark.parametrize("place", range(len(VIEWS)))
async def test_user_sees_own_jobs_in_every_view(guarded: Guarded, place: int, by: str) -> None:
    """A job of another is as one that does not exist, the map has no names of users."""
    query, code, shown = VIEWS[place]
    if by == "token":
        found, text = await guarded.frame(query, headers=bearer(ALICE))
    else:
        found, text = await guarded.frame(query, headers={"X-Forwarded-User": "alice"}, peer=PROXY)
    check(found, code, text)
    assert shown in text


async def test_support_sees_jobs_but_neither_logs_nor_pipe(guarded: Guarded) -> None:
    """The Pipe page, dead letters and log messages are for administrators."""
    headers = bearer(HELEN)
    code, text = await guarded.frame(_query("health"), headers=headers)
    check(code, FORBIDDEN, text)
    for query in (_query("events"), _query("node", cluster="c", node="n2"), _query("overview")):
        code, text = await guarded.frame(query, headers=headers)
        assert code == 0
        assert "bob" in text
        assert "log-of-n2" not in text
        assert '"dead":0' in text
    code, text = await guarded.frame(_query("events"), headers=bearer(ADMIN))
    assert "log-of-n2" in text
    code, text = await guarded.frame(_query("health"), headers=bearer(ADMIN))
    assert "dead-text" in text


def _span(nodes: list[str], start: float, stop: float, cluster: str = "c") -> dict[str, object]:
    return {"of": "nodes", "cluster": cluster, "nodes": nodes, "start": start, "stop": stop}


def _sums(cluster: str | None) -> dict[str, object]:
    return {"of": "sums", "cluster": cluster, "start": NOW - 900, "stop": NOW}


SPANS = {
    "sums of two nodes": _sums("c"),
    "sums of all nodes, which are two": _sums(None),
    "sums of no node": _sums("d"),
    "of another": _span(["n2"], NOW - 900, NOW),
    "of both": _span(["n1", "n2"], NOW - 900, NOW),
    "before the job": _span(["n1"], NOW - 2000, NOW),
    "long before": _span(["n1"], 0, 100),
    "another cluster": _span(["n1"], NOW - 900, NOW, "d"),
    "path": _span(["n1"], NOW - 900, NOW, "../c"),
    "unknown": _span(["n3"], NOW - 900, NOW),
}


@pytest.mark.parametrize("span", SPANS)
async def test_history_of_others_is_refused(guarded: Guarded, span: str) -> None:
    """A user may query the nodes of own jobs within their time."""
    headers = bearer(ALICE)
    check(*(await _with(guarded, "api/history", "POST", 403, headers=headers, json=SPANS[span])))
    own = _span(["n1"], NOW - 1000, NOW)
    assert (await guarded.answer("api/history", "POST", headers=headers, json=own))[0] == 200


async def test_user_may_not_acknowledge_silent_nodes(guarded: Guarded) -> None:
    """They would vanish from everybody's lists."""
    asked = {"nodes": [["c", "n2"]]}
    path = "api/nodes/acknowledge"
    check(*(await _with(guarded, path, "POST", 403, headers=bearer(ALICE), json=asked)))
    check(*(await _with(guarded, path, "POST", 401, json=asked)))
    assert (await guarded.answer(path, "POST", headers=bearer(HELEN), json=asked))[0] == 200


@pytest.mark.parametrize("of", ["job", "statistics"])
async def test_stored_metrics_of_job_of_others_are_as_of_unknown_job(
    guarded: Guarded, of: str
) -> None:
    """An answer would tell that the job exists."""
    headers = bearer(ALICE)

    def query(job: int) -> dict[str, object]:
        return {"of": of, "cluster": "c", "job": job, "begin": NOW - 1000}

    others, unknown, own = [
        await guarded.answer("api/history", "POST", headers=headers, json=query(job))
        for job in (2, 3, 1)
    ]
    assert others == unknown
    assert (others[0], own[0]) == (400, 200)
    assert (await guarded.answer("api/history", "POST", headers=bearer(HELEN), json=query(2)))[
        0
    ] == 200


@pytest.mark.parametrize(
    "path",
    [
        "..%2fserver.py", "%2e%2e/server.py", "pages/../../server.py", "..%5cserver.py",
        "%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd", "/etc/passwd", "vendor/", "pages", "%00",
        "app.js%00", "app.js/", "APP.JS", "__init__.py", "static/app.js",
    ],
)  # fmt: skip
async def test_path_beyond_page_is_not_found(guarded: Guarded, path: str) -> None:
    """Only the files of the page are served, whatever the role."""
    check(*(await _with(guarded, path, "GET", 404, headers=bearer(ADMIN))))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "", 405), ("PUT", "app.js", 405), ("DELETE", "api/history", 405),
        ("OPTIONS", "api/live", 405), ("TRACE", "api/about", 405), ("POST", "api/other", 405),
        ("GET", "api/login", 404), ("GET", "api/history", 404), ("GET", "api/other", 404),
    ],
)  # fmt: skip
async def test_other_method_is_refused(
    guarded: Guarded, method: str, path: str, expected: int
) -> None:
    """There is nothing to change."""
    check(*(await _with(guarded, path, method, expected, headers=bearer(ADMIN))))


async def test_too_large_request_is_refused(guarded: Guarded) -> None:
    """Before it is read."""
    large = b"x" * 2**20
    headers = bearer(ALICE)
    check(*(await _with(guarded, "api/login", "POST", 413, data=large)))
    check(*(await _with(guarded, "api/history", "POST", 413, headers=headers, data=large)))
    check(*(await _with(guarded, "api/history", "POST", 401, json=_span(["n1"], 1, 2))))
    code, text = await guarded.frame(large.decode(), headers=headers)
    check(code, aiohttp.WSCloseCode.MESSAGE_TOO_BIG, text)
    nodes = _span(["n1"] * 1000, NOW - 900, NOW)
    check(*(await _with(guarded, "api/history", "POST", 400, headers=headers, json=nodes)))


async def test_page_must_connect_again_after_an_hour(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a new request shows the proxy that the user has signed out there."""
    monkeypatch.setattr("ccpipe.dashboard.server.SOCKET_SECONDS", 0.0)
    code, text = await guarded.frame(_query("jobs"), headers=bearer(ALICE))
    check(code, SIGNED_OUT, text)


async def test_refusal_names_scheme_if_there_are_tokens(guarded: Guarded, tmp_path: Path) -> None:
    """So that the page asks for a token, or lets the proxy sign the user in."""
    options = DashboardOptions(user_header="X-Forwarded-User", trusted_proxies=[OTHER])
    async with aiohttp.ClientSession() as session:
        async with session.get(guarded.server.url + "api/about") as answer:
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="ccpipe"'
        async for server in _serve(tmp_path, options):
            async with session.get(server.url + "api/about") as answer:
                assert answer.status == 401
                assert "WWW-Authenticate" not in answer.headers
                assert "sign in there" in await answer.text()


async def test_wrong_tokens_are_answered_slowly(guarded: Guarded) -> None:
    """Guessing takes time."""
    began = asyncio.get_running_loop().time()
    for data in (b"wrong", b"", b"\xff", ALICE.id.encode(), ALICE.session(LATER).encode()):
        check(*(await _with(guarded, "api/login", "POST", 401, data=data)))
    assert asyncio.get_running_loop().time() - began >= 1
