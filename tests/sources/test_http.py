"""``HttpSource``: 204 means stored; with the real Telegraf, and recorded requests of Slurm."""

import asyncio
import gzip
import json
import shutil
import time
import zlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Duration, Site, Size
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.formats.lineprotocol import decode
from ccpipe.pipeline import Limits
from ccpipe.process.die_with_parent import die_with_parent
from ccpipe.sources.http import HttpSource
from tests.conftest import eventually, free_port
from tests.paths import TEST_DATA
from tests.servers.nats.stored import stored_lines
from tests.sources.http_client import (
    ENVELOPE,
    LINE,
    Gate,
    SonarGate,
    basic,
    bridge,
    envelope_of,
    error_of,
    running,
)


async def test_response_waits_until_records_are_stored() -> None:
    sink = Gate(open=False)
    async with running(sink) as client:
        posting = asyncio.create_task(client.post(LINE))
        await eventually(lambda: client.source.held == len(LINE))
        await asyncio.sleep(0.1)
        assert not posting.done()
        sink.open.set()
        assert await posting == (204, "")
    assert sink.written == list(decode(LINE))


async def test_source_accepts_both_influxdb_interfaces() -> None:
    """Timestamps have the query's precision, default nanoseconds; bodies are compressed or not."""
    stamps = {
        "/write?precision=s": "1740052800",
        "/write?db=x&rp=autogen&precision=ms": "1740052800000",
        "/write?precision=u": "1740052800000000",
        "/write?precision=n": "1740052800000000000",
        "/write": "1740052800000000000",
        "/api/v2/write?org=o&bucket=b&precision=us": "1740052800000000",
        "/api/v2/write?precision=ns": "1740052800000000000",
    }
    sink = Gate()
    async with running(sink) as client:
        for query, stamp in stamps.items():
            body = f"m,host=n1 value=1.5,x=2i {stamp}\n".encode()
            assert await client.post(body, query) == (204, "")
            for encoding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
                headers = {"Content-Encoding": encoding}
                assert await client.post(pack(body), query, headers=headers) == (204, "")
            assert await client.post(b"", query) == (204, "")
        status, text = await client.post(body, "/write?precision=h")
        assert (status, "precision" in text) == (400, True)
    once = [("value", 1.5, 1740052800 * 10**9), ("x", 2, 1740052800 * 10**9)]
    assert [(m.field, m.value, m.time) for m in sink.written] == once * 3 * len(stamps)


async def test_bad_lines_are_rejected_alone() -> None:
    sink = Gate()
    async with running(sink) as client:
        status, text = await client.post(b"bad\n" + LINE + b"m value=\n")
    assert status == 400
    assert json.loads(text)["error"].startswith("partial write: line 1: expected a space")
    assert "line 3" in text
    assert "dropped=2" in text
    assert len(sink.written) == 1


async def test_line_without_time_has_arrival_time() -> None:
    """As InfluxDB does."""
    sink = Gate()
    async with running(sink) as client:
        assert await client.post(b"m value=1\n") == (204, "")
    assert abs(sink.written[0].time / 10**9 - time.time()) < 600


async def test_body_size_is_limited() -> None:
    """Also one of a few bytes that decompresses to many."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    sink = Gate()
    async with running(sink, max_body_bytes=Size(100_000)) as client:
        headers = {"Content-Encoding": "gzip"}
        assert (await client.post(LINE * 5000))[0] == 413
        assert (await client.post(bomb, headers=headers))[0] == 413
        assert (await client.post(gzip.compress(LINE)[:-9], headers=headers))[0] == 400
        assert (await client.post(LINE, headers=headers))[0] == 400
        assert (await client.post(LINE, headers={"Content-Encoding": "br"}))[0] == 415
        assert (await client.post(LINE))[0] == 204
    assert len(sink.written) == 1


async def test_source_rejects_requests_beyond_memory_with_503() -> None:
    """At once, and requests that wait too long after the timeout."""
    sink = Gate(open=False)
    async with running(sink, max_memory=Size(100), timeout=Duration(1)) as client:
        first = asyncio.create_task(client.post(LINE))
        await eventually(lambda: client.source.held > 0)
        status, text = await client.post(LINE * 2)
        assert (status, "too many pending requests" in text) == (503, True)
        status, text = await first
        assert (status, "please retry" in text) == (503, True)
        assert client.source.held == 0
        client.source.timeout = 60
        sink.open.set()
        assert (await client.post(LINE))[0] == 204
    assert len(sink.written) == 2  # the first was in the sink's hands


async def test_answered_requests_are_released() -> None:
    """Repeated requests during a long outage of the broker do not fill the memory."""
    sink = Gate(open=False)
    async with running(sink, timeout=Duration(0.05)) as client:
        sink.limits = Limits(max_wait=0, max_memory=1)
        for _ in range(10):
            assert (await client.post(LINE))[0] == 503
        waiting = [one for one in client.source._waiting._queue if one]  # type: ignore[attr-defined]
        assert all(one.batch is None for one in waiting)
        sink.open.set()


async def test_shutdown_answers_all_requests() -> None:
    sink, stop = Gate(open=False), asyncio.Event()
    async with running(sink, stop) as client:
        first = asyncio.create_task(client.post(LINE))
        await eventually(lambda: client.source.held > 0)
        stop.set()
        await eventually(lambda: client.source._stopping)
        assert (await client.post(LINE))[0] == 503
        sink.open.set()
        assert (await first)[0] == 204
    assert len(sink.written) == 1


async def test_failed_pipe_answers_503_at_shutdown() -> None:
    """A client learns that its records were not written."""
    sink, stop = Gate(open=False), asyncio.Event()
    sink.fails = True

    async def fail() -> None:
        async with running(sink, stop) as client:
            first = asyncio.create_task(client.post(LINE))
            await eventually(lambda: client.source.held > 0)
            stop.set()
            sink.open.set()
            assert (await first)[0] == 503

    with pytest.raises(UnavailableError, match="down"):
        await fail()


async def test_source_requires_credentials(tmp_path: Path) -> None:
    """A user of the file or the token; otherwise the response is 401."""
    (tmp_path / "users").write_text("slurm:pä:s\u2028s\n\nsonar:x\n")
    (tmp_path / "token").write_text("t0k3n\n")
    files: dict[str, Any] = {
        "users_file": str(tmp_path / "users"),
        "token_file": str(tmp_path / "token"),
    }
    users = [("slurm", "pä:s\u2028s", 204), ("sonar", "x", 204), ("sonar", "pä:s\u2028s", 401),
             ("", "", 401), ("other", "", 401)]  # fmt: skip
    tokens = ["Token t0k3n", "Bearer t0k3n"], ["Token x", "Bearer", "Basic", "Basic !", "t0k3n", ""]
    async with running(Gate(), **files) as client:
        for user, password, status in users:
            assert (await client.post(LINE, headers=basic(user, password)))[0] == status
        for token in tokens[0]:
            assert (await client.post(LINE, headers={"Authorization": token}))[0] == 204
        for token in tokens[1]:
            assert (await client.post(LINE, headers={"Authorization": token}))[0] == 401
        assert (await client.post(LINE))[0] == 401


async def test_refused_requests_are_logged_once_a_minute_for_each_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Senders such as Sonar's curl take every response for success: the log is the only sign."""
    (tmp_path / "users").write_text("fox:x\n")
    async with running(
        Gate(), users_file=str(tmp_path / "users"), max_body_bytes=Size(100)
    ) as client:
        for headers, body, status in (
            ({}, LINE, 401), ({}, LINE, 401), (basic("fox"), LINE * 100, 413),
        ):  # fmt: skip
            assert (await client.post(body, headers=headers))[0] == status
    logged = [text.partition("data from 127.0.0.1 ")[2] for text in caplog.messages]
    assert [text for text in logged if text] == [
        "are refused with 401: unknown user, password or token",
        "are refused with 413: more than 100 bytes",
    ]


async def test_user_writes_lines_only_for_allowed_clusters(tmp_path: Path) -> None:
    """The user's own and the bridge's, or as configured; else the whole request is rejected."""
    (tmp_path / "users").write_text("hare:x\nowl:x\nadmin:x\nstranger:x\n")
    (tmp_path / "token").write_text("t0k3n\n")
    options: dict[str, Any] = {
        "users_file": str(tmp_path / "users"),
        "token_file": str(tmp_path / "token"),
        "clusters": {"owl": ["owl", "eule"], "admin": ["*"], "stranger": []},
    }
    allowed = {  # "" is a line without the tag, which is for the bridge's cluster
        "hare": {"", "fox", "hare"}, "owl": {"owl", "eule"}, "stranger": set(),
        "admin": {"", "fox", "hare", "owl", "eule", "x"},
        "token": {"", "fox"},
    }  # fmt: skip
    sink = Gate()
    async with running(sink, **options) as client:
        for user, clusters in allowed.items():
            headers = {"Authorization": "Token t0k3n"} if user == "token" else basic(user)
            for cluster in ("", "fox", "hare", "owl", "eule", "x"):
                tag = f",cluster={cluster}" if cluster else ""
                body = LINE + f"m{tag},user={user} value=1 1\n".encode()
                if cluster not in {"", "fox"}:
                    body = body.removeprefix(LINE)
                before = len(sink.written)
                status, text = await client.post(body, headers=headers)
                assert status == (204 if cluster in clusters else 403), (user, cluster)
                if status == 403:
                    assert len(sink.written) == before
                    assert repr(cluster or "fox") in text
    async with running(sink, token_file=options["token_file"], token_clusters=["owl"]) as client:
        headers = {"Authorization": "Bearer t0k3n"}
        assert (await client.post(LINE, headers=headers))[0] == 403
        assert (await client.post(b"m,cluster=owl value=1 1\n", headers=headers))[0] == 204


async def test_user_writes_envelopes_only_for_own_cluster(tmp_path: Path) -> None:
    """A user is a cluster, as in Jobanalyzer: 20 invented clusters are rejected."""
    (tmp_path / "users").write_text("fox:x\nhare:x\n")
    sink = SonarGate()
    async with running(sink, format="sonar", users_file=str(tmp_path / "users")) as client:
        for name in ["hare", *(f"invented-{number}" for number in range(20))]:
            for envelope in (envelope_of(name), error_of(name)):
                body = json.dumps(envelope).encode()
                assert (await client.post(body, "/api/cluster", headers=basic("fox")))[0] == 403
                both = json.dumps(envelope_of("fox")).encode() + b"\n" + body
                assert (await client.post(both, "/api/cluster", headers=basic("fox")))[0] == 403
        assert not sink.written
        for name in ("fox", "hare"):
            for envelope in (envelope_of(name), error_of(name)):
                body = json.dumps(envelope).encode()
                assert (await client.post(body, "/api/cluster", headers=basic(name)))[0] == 204
    assert [each.data is None for each in sink.written] == [False, True, False, True]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"listen": "8086"}, "listen: '8086'"),
        ({"clusters": {"owl": ["owl"]}}, "clusters: 'owl' is not a user of users_file"),
        ({"key_file": "k"}, "key_file: cert_file is missing"),
        ({"users_file": "/nonexistent"}, "users_file: /nonexistent"),
        ({"token_file": "/nonexistent"}, "token_file: /nonexistent"),
        ({"cert_file": "/nonexistent"}, "cert_file: /nonexistent: No such file"),
    ],
)
async def test_source_rejects_invalid_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        await HttpSource(site=Site(cluster="fox"), **options).check()


@pytest.mark.parametrize("text", ["", "\n", "user\n", "user:\n", ":password\n"])
async def test_source_rejects_empty_users_file(tmp_path: Path, text: str) -> None:
    """It is an error: an empty file would accept no user."""
    (tmp_path / "users").write_text(text)
    with pytest.raises(ConfigError, match="users_file: "):
        await HttpSource(site=Site(cluster="fox"), users_file=str(tmp_path / "users")).check()


async def test_source_accepts_payloads_of_slurm_plugin() -> None:
    """Every line that Slurm's profile plug-in ``influxdb`` sent to a real server."""
    bodies = [path.read_bytes() for path in sorted((TEST_DATA / "slurm_influx").glob("*.lp"))]
    assert len(bodies) > 2
    sink = Gate()
    async with running(sink) as client:
        for body in bodies:
            assert await client.post(body, "/write?db=slurm&rp=autogen&precision=s") == (204, "")
    assert len(sink.written) == sum(body.count(b"\n") for body in bodies)


async def test_source_answers_pings() -> None:
    """InfluxDB's clients check that the server is up, and Telegraf creates its database."""
    async with running(Gate()) as client:
        for path in ("/ping", "/health"):
            async with client.session.get(client.url + path) as answer:
                assert answer.status == 204
                assert answer.headers["X-Influxdb-Version"]
        query = {"q": 'CREATE DATABASE "telegraf"'}
        async with client.session.post(client.url + "/query", data=query) as answer:
            assert (answer.status, await answer.json()) == (200, {"results": [{"statement_id": 0}]})
        assert (await client.post(b"q=SHOW+DATABASES", "/query"))[0] == 400
        assert (await client.post(b"", "/elsewhere"))[0] == 404


async def test_source_accepts_envelopes() -> None:
    """Sonar's upload, with and without a prefix; invalid envelopes are rejected with the reason."""
    body = json.dumps(ENVELOPE).encode() + b"\n"
    sink = SonarGate()
    async with running(sink, format="sonar") as client:
        assert await client.post(body, "/api/cluster") == (204, "")
        assert await client.post(body, "/api/h2.cluster") == (204, "")
        status, text = await client.post(b"{}", "/api/cluster")
        assert (status, "partial write" in text) == (400, True)
        is_json = {"Content-Type": "application/json"}
        assert (await client.post(body, "/api/other", headers=is_json))[0] == 404
    assert [envelope.data.attributes.cluster for envelope in sink.written] == ["fox", "fox"]


async def test_response_204_means_stored_by_broker(tmp_path: Path) -> None:
    """With the shipped recipe: 503 while the broker is down; after a 204 it is stored."""
    broker = NatsServer(tmp_path / "nats", port=free_port())
    site = Site(cluster="fox.test", bus=Bus(servers=[broker.url]))
    listen = f"127.0.0.1:{free_port()}"
    async with (
        AsyncExitStack() as later,
        bridge("http.toml", site, listen, CCPIPE_SOURCE__TIMEOUT="500ms") as url,
        aiohttp.ClientSession() as session,
    ):

        async def post(number: int) -> int:
            body = b"cpu_load,host=n1 value=%d 1740052800\n" % number
            async with session.post(f"{url}/write?precision=s", data=body) as answer:
                return answer.status

        assert await post(1) == 503
        await later.enter_async_context(broker)
        for _ in range(300):
            if (status := await post(2)) == 204:
                break
            assert status == 503
        assert status == 204
        kept = await stored_lines(broker)
    assert 2 in {line.value for line in kept}
    assert {line.tags["hostname"] for line in kept} == {"n1"}


TELEGRAF = """
[agent]
  interval = "1s"
  flush_interval = "1s"
  hostname = "node-7"
[[inputs.mem]]
[[outputs.%s]]
  urls = ["%s"]
  %s
"""


@pytest.mark.parametrize(
    ("output", "options"),
    [
        ("influxdb", 'content_encoding = "gzip"\n  username = "t"\n  password = "p"'),
        ("influxdb_v2", 'organization = "o"\n  bucket = "b"\n  token = "t0k3n"'),
    ],
)
async def test_source_accepts_real_telegraf(
    tmp_path: Path, nats_server: NatsServer, site: Site, output: str, options: str
) -> None:
    """Both of its outputs for InfluxDB, with credentials: its metrics are on the bus."""
    telegraf = shutil.which("telegraf")
    if telegraf is None:
        pytest.skip("telegraf is not on PATH: build github.com/influxdata/telegraf with Go")
    (tmp_path / "users").write_text("t:p\n")
    (tmp_path / "token").write_text("t0k3n\n")
    files = {
        "CCPIPE_SOURCE__USERS_FILE": str(tmp_path / "users"),
        "CCPIPE_SOURCE__TOKEN_FILE": str(tmp_path / "token"),
    }
    async with bridge("http.toml", site, f"127.0.0.1:{free_port()}", **files) as url:
        (tmp_path / "telegraf.conf").write_text(TELEGRAF % (output, url, options))
        process = await asyncio.create_subprocess_exec(
            telegraf, "--config", tmp_path / "telegraf.conf", "--once", preexec_fn=die_with_parent
        )
        assert await asyncio.wait_for(process.wait(), 60) == 0
        kept = await stored_lines(nats_server)
    found = {line.field for line in kept if line.name == "mem"}
    assert found >= {"total", "used_percent"}
    assert {line.tags["hostname"] for line in kept} == {"node-7"}
