"""``HttpSink`` and ``HttpPostSink``: what an answer means, credentials, TLS, gzip, what is sent."""

import importlib
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Duration, Site
from ccpipe.errors import (
    ConfigError,
    DeniedError,
    MissingExtra,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from ccpipe.formats.lineprotocol import Lines, decode, encode, to_lines
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import Message
from ccpipe.sinks.http import HttpSink
from ccpipe.sinks.http_post import HttpPostSink
from ccpipe.sources.http import HttpSource
from ccpipe.telemetry import Telemetry
from tests.certificates import certificates
from tests.conftest import eventually, free_port
from tests.pipeline.parts import ListSink, running
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, SECOND, Given, carry, metric, serving


class LinesSink(HttpSink[Lines]):
    """POSTs lines to ``/lines``."""

    takes = Lines
    path = "/lines"

    def __init__(self, *, url: str = "http://127.0.0.1:1", **http: Any) -> None:
        super().__init__(url=url, **http)

    async def write(self, records: Sequence[Message]) -> None:
        await self.post(encode(records))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RejectedError),
        (413, RejectedError),
        (422, RejectedError),
        (200, UnavailableError),
        (401, DeniedError),
        (403, DeniedError),
        (301, UnavailableError),
        (404, UnavailableError),
        (429, UnavailableError),
        (500, UnavailableError),
    ],
)
async def test_what_an_answer_means(answers: Answers, status: int, error: type[Exception]) -> None:
    """Only what speaks of the records condemns them; the error holds the store's own words."""
    async with LinesSink(url=answers.url) as sink:
        answers.status, answers.text = status, "in its own words"
        with pytest.raises(error, match=rf"/lines: {status} .*in its own words"):
            await sink.write([metric(1.0)])
        assert [request.path for request in answers.requests] == ["/lines", "/lines"]
        answers.status = 204
        await sink.write([metric(1.0)])


async def test_a_connection_that_breaks(answers: Answers) -> None:
    """Where no answer comes nobody knows what became of the records: they are sent again."""
    async with LinesSink(url=answers.url) as sink:
        answers.silent = True
        with pytest.raises(UnavailableError):
            await sink.write([metric(1.0)])


async def test_a_server_that_is_too_slow() -> None:
    """After `timeout` a write is given up, to be tried again."""
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, says nothing
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        async with LinesSink(url=url, timeout=Duration(0.1)) as sink:
            with pytest.raises(TimedOutError, match="no answer in time"):
                await sink.write([metric(1.0)])


async def test_server_slower_than_the_timeout_gets_everything(
    answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    """The timeout grows instead of failing for ever, and few records are sent again and again."""
    answers.seconds = 1.0
    records = [metric(float(i), time=NOON + i * SECOND) for i in range(1000)]
    sink = LinesSink(url=answers.url, timeout=Duration(0.2))
    assert await carry(Given(records[:500], records[500:]), sink) == []
    copies = Counter(each.time for body in answers.bodies for each in decode(body))
    assert len(copies) == len(records)
    assert max(copies.values()) <= 6
    assert "raise sink.timeout" in caplog.text


async def test_a_token(answers: Answers, tmp_path: Path) -> None:
    """A token is read from its file and sent as HTTP Bearer."""
    secret = tmp_path / "token"
    secret.write_text("t0k3n\n")
    async with LinesSink(url=answers.url, token_file=str(secret)):
        pass
    assert [r.headers["Authorization"] for r in answers.requests] == ["Bearer t0k3n"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "http//u:secret@h"}, r"url: '\*\*\*@h' is not an http"),
        ({"url": "127.0.0.1:8428"}, "url: .* is not an http"),
        ({"url": "http://u:p@host"}, "url: must not contain a password"),
        ({"user": "me"}, "user and password_file go together"),
        ({"password_file": "f"}, "user and password_file go together"),
        ({"user": "me", "password_file": "f", "token_file": "f"}, "token_file: a user"),
        ({"key_file": "f"}, "key_file: cert_file is missing"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], reason: str) -> None:
    """A wrong option is named before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        LinesSink(**options)


async def test_a_parameter_that_may_be_a_secret_is_not_shown() -> None:
    """Neither in errors nor, therefore, with dead letters."""
    async with LinesSink(url=f"http://127.0.0.1:{free_port()}/?token=hunter2") as sink:
        with pytest.raises(UnavailableError, match=r"token=\*\*\*") as caught:
            await sink.write([metric(1.0)])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff"])
async def test_a_secret_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """A secret that is missing or no line of text is named by its option and file."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"token_file: {path}"):
        async with LinesSink(token_file=str(path)):
            pass


@pytest.mark.parametrize("option", ["ca_file", "cert_file"])
async def test_a_certificate_that_cannot_be_read(tmp_path: Path, option: str) -> None:
    """One that is missing, or no certificate, is named by its option."""
    path = tmp_path / "ca.pem"
    for reason in ("No such file", ".+"):
        with pytest.raises(ConfigError, match=f"{option}: {path}: .*{reason}"):
            async with LinesSink(url="https://host", **{option: str(path)}):
                pass
        path.write_text("not a certificate")


async def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    """To a server that asks for one; we talk to none whose authority we do not know."""
    made = certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.ca))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(made.cert, made.key)
    async with serving(context) as answers:
        mine = {"cert_file": str(made.cert), "key_file": str(made.key)}
        await LinesSink(url=answers.url, ca_file=str(made.ca), **mine).check()
        with pytest.raises(UnavailableError):
            await LinesSink(url=answers.url, ca_file=str(made.ca)).check()
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            await LinesSink(url=answers.url, **mine).check()


async def test_gzip(answers: Answers) -> None:
    """The body is compressed and says so; an empty one is not."""
    async with LinesSink(url=answers.url, gzip=True) as sink:
        await sink.write([metric(float(n)) for n in range(1000)])
    assert [r.headers.get("Content-Encoding") for r in answers.requests] == [None, "gzip"]
    assert answers.bodies[1] == encode([metric(float(n)) for n in range(1000)])
    assert int(answers.requests[1].headers["Content-Length"]) < len(answers.bodies[1]) / 5


async def test_a_large_body_is_sent_without_a_warning(answers: Answers) -> None:
    """The client library would warn of bodies of more than a mebibyte."""
    async with LinesSink(url=answers.url) as sink:
        await sink.write([metric(float(n)) for n in range(20_000)])
    assert len(answers.bodies[1]) > 2**20


def test_without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is missing the error says what to type."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "ccpipe.sinks.http")
    with pytest.raises(MissingExtra, match=r"pip install 'ccpipe\[http\]'"):
        importlib.import_module("ccpipe.sinks.http")


ENVELOPE = b"""{"meta": {"producer": "sonar", "version": "0.18.0"}, "data": {"type": "cluster",
"attributes": {"time": "2025-02-20T12:00:00Z", "cluster": "fox", "slurm": true,
"partitions": [], "nodes": []}}}"""


async def test_lines(answers: Answers) -> None:
    """A batch is one request."""
    records = [metric(1.0), metric("text")]
    async with HttpPostSink(url=f"{answers.url}/lines", precision="ms") as sink:
        await sink.write(to_lines(records))
    assert [(r.method, r.path) for r in answers.requests] == [
        ("HEAD", "/lines"),
        ("POST", "/lines"),
    ]
    assert answers.bodies[1] == encode(records, precision="ms")


async def test_envelopes(answers: Answers) -> None:
    """Each is a request of its own, to the address of its type; errors alone have none."""
    found = decode_sonar(ENVELOPE)
    async with HttpPostSink(url=f"{answers.url}/api/v1/insert", format="sonar") as sink:
        assert sink.limits.lines == 1
        answers.status = 200
        await sink.write(Envelopes([*found, *found]))
    assert [r.path for r in answers.requests[1:]] == ["/api/v1/insert/cluster"] * 2
    assert decode_sonar(answers.bodies[1]) == found
    assert answers.bodies[1].endswith(b"\n")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_receipts(answers: Answers, status: int) -> None:
    """A success is one, unless it is a page for people."""
    async with (
        HttpPostSink(url=answers.url) as sink,
        HttpPostSink(url=answers.url, html=True) as all_,
    ):
        answers.status = status
        await sink.write(to_lines([metric(1.0)]))
        answers.text = "<!doctype html><HTML>Please log in"
        if status != 204:  # which has no text
            with pytest.raises(UnavailableError, match="log in"):
                await sink.write(to_lines([metric(1.0)]))
            await all_.write(to_lines([metric(1.0)]))
        answers.status, answers.text = 422, "no"
        with pytest.raises(RejectedError):
            await sink.write(to_lines([metric(1.0)]))


async def test_to_ccpipe_itself() -> None:
    """What one bridge posts another one receives, dead letters and all."""
    listen = f"127.0.0.1:{free_port()}"

    kept, telemetry = ListSink(), Telemetry()
    source = HttpSource(site=Site(cluster="fox"), listen=listen)
    records = [metric(float(n), time=NOON) for n in range(10)]
    async with running(source, kept, telemetry=telemetry) as receiving:
        await eventually(lambda: telemetry.ready or receiving.done())
        url = f"http://{listen}/write?precision=s"
        assert await carry(Given(records), HttpPostSink(url=url)) == []
    assert kept.written == records


def test_profile_without_envelopes_is_refused() -> None:
    """A profile is for envelopes."""
    with pytest.raises(ConfigError, match="profile: goes with"):
        HttpPostSink(url="http://host", profile="jobanalyzer")
