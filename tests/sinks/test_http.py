"""``HttpSink`` and ``HttpPostSink``: responses, credentials, TLS, gzip, requests."""

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
from ccpipe.sinks.http import HttpSink, retry_seconds
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
async def test_response_is_classified_by_its_status(
    answers: Answers, status: int, error: type[Exception]
) -> None:
    """Only an error about the records rejects them; it contains the store's own text."""
    async with LinesSink(url=answers.url) as sink:
        answers.status, answers.text = status, "in its own words"
        with pytest.raises(error, match=rf"/lines: {status} .*in its own words"):
            await sink.write([metric(1.0)])
        assert [request.path for request in answers.requests] == ["/lines", "/lines"]
        answers.status = 204
        await sink.write([metric(1.0)])


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2),
        ("86400", 300),
        ("Thu, 20 Feb 2025 12:00:30 GMT", 30),
        ("Thu, 20 Feb 2025 11:00:00 GMT", 0),
        ("", 0),
        ("soon", 0),
        ("-1", 0),
        ("²", 0),
    ],
)
def test_retry_after_is_number_or_date(header: str, seconds: float) -> None:
    """Bounded, so that a wrong clock or a joke does not stop a bridge for a day."""
    assert retry_seconds(header, NOON / SECOND) == seconds


async def test_broken_connection_is_unavailable(answers: Answers) -> None:
    """Without a response the fate of the records is unknown: they are sent again."""
    async with LinesSink(url=answers.url) as sink:
        answers.silent = True
        with pytest.raises(UnavailableError):
            await sink.write([metric(1.0)])


async def test_write_to_silent_server_times_out() -> None:
    """After `timeout` it is abandoned, and may be retried."""
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts connections, sends nothing
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        async with LinesSink(url=url, timeout=Duration(0.1)) as sink:
            with pytest.raises(TimedOutError, match="no answer in time"):
                await sink.write([metric(1.0)])


async def test_server_slower_than_timeout_gets_everything(
    answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    """The timeout grows instead of failing forever, and few records are sent repeatedly."""
    answers.seconds = 1.0
    records = [metric(float(i), time=NOON + i * SECOND) for i in range(1000)]
    sink = LinesSink(url=answers.url, timeout=Duration(0.2))
    assert await carry(Given(records[:500], records[500:]), sink) == []
    copies = Counter(each.time for body in answers.bodies for each in decode(body))
    assert len(copies) == len(records)
    assert max(copies.values()) <= 6
    assert "raise sink.timeout" in caplog.text


async def test_token_is_sent_as_bearer(answers: Answers, tmp_path: Path) -> None:
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
def test_http_sink_refuses_invalid_options(options: dict[str, str], reason: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        LinesSink(**options)


async def test_possibly_secret_parameter_is_not_shown() -> None:
    """Neither in errors nor, therefore, with dead letters."""
    async with LinesSink(url=f"http://127.0.0.1:{free_port()}/?token=hunter2") as sink:
        with pytest.raises(UnavailableError, match=r"token=\*\*\*") as caught:
            await sink.write([metric(1.0)])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff"])
async def test_unreadable_secret_is_named(tmp_path: Path, content: bytes | None) -> None:
    """Missing or not one line of text: with its option and file."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"token_file: {path}"):
        async with LinesSink(token_file=str(path)):
            pass


@pytest.mark.parametrize("option", ["ca_file", "cert_file"])
async def test_unreadable_certificate_is_named(tmp_path: Path, option: str) -> None:
    """By its option."""
    path = tmp_path / "ca.pem"
    for reason in ("No such file", ".+"):
        with pytest.raises(ConfigError, match=f"{option}: {path}: .*{reason}"):
            async with LinesSink(url="https://host", **{option: str(path)}):
                pass
        path.write_text("not a certificate")


async def test_client_presents_its_certificate(tmp_path: Path) -> None:
    """If the server requires one; a server of an unknown authority is refused."""
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


async def test_body_is_compressed_with_gzip(answers: Answers) -> None:
    """With the header that declares it; an empty body is not."""
    async with LinesSink(url=answers.url, compression="gzip") as sink:
        await sink.write([metric(float(n)) for n in range(1000)])
    assert [r.headers.get("Content-Encoding") for r in answers.requests] == [None, "gzip"]
    assert answers.bodies[1] == encode([metric(float(n)) for n in range(1000)])
    assert int(answers.requests[1].headers["Content-Length"]) < len(answers.bodies[1]) / 5


async def test_large_body_is_sent_without_warning(answers: Answers) -> None:
    """The client library would warn of bodies of more than a mebibyte."""
    async with LinesSink(url=answers.url) as sink:
        await sink.write([metric(float(n)) for n in range(20_000)])
    assert len(answers.bodies[1]) > 2**20


def test_sink_names_what_to_install_without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "ccpipe.sinks.http")
    with pytest.raises(MissingExtra, match=r"pip install 'ccpipe\[http\]'"):
        importlib.import_module("ccpipe.sinks.http")


ENVELOPE = b"""{"meta": {"producer": "sonar", "version": "0.18.0"}, "data": {"type": "cluster",
"attributes": {"time": "2025-02-20T12:00:00Z", "cluster": "fox", "slurm": true,
"partitions": [], "nodes": []}}}"""


async def test_batch_of_lines_is_one_request(answers: Answers) -> None:
    records = [metric(1.0), metric("text")]
    async with HttpPostSink(url=f"{answers.url}/lines", precision="ms") as sink:
        await sink.write(to_lines(records))
    assert [(r.method, r.path) for r in answers.requests] == [
        ("HEAD", "/lines"),
        ("POST", "/lines"),
    ]
    assert answers.bodies[1] == encode(records, precision="ms")


async def test_envelope_is_one_request(answers: Answers) -> None:
    """To the URL of its type; an envelope with only errors has none."""
    found = decode_sonar(ENVELOPE)
    async with HttpPostSink(url=f"{answers.url}/api/v1/insert", format="sonar") as sink:
        assert sink.limits.max_records == 1
        answers.status = 200
        await sink.write(Envelopes([*found, *found]))
    assert [r.path for r in answers.requests[1:]] == ["/api/v1/insert/cluster"] * 2
    assert decode_sonar(answers.bodies[1]) == found
    assert answers.bodies[1].endswith(b"\n")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_receipt_is_success_without_html(answers: Answers, status: int) -> None:
    async with (
        HttpPostSink(url=answers.url) as sink,
        HttpPostSink(url=answers.url, accept_html=True) as all_,
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


async def test_ccpipe_receives_what_http_post_sends() -> None:
    """Including dead letters."""
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
