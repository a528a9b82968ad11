"""``VictoriaMetricsSink`` against the real store: what is sent is what it keeps."""

import asyncio
import importlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import (
    ConfigError,
    DeniedError,
    MissingExtra,
    RejectedError,
    UnavailableError,
)
from ccpipe.formats.lineprotocol import Lines, Precision, decode, encode, to_lines
from ccpipe.message import Message, Uint
from ccpipe.sinks.victoriametrics import VictoriaMetricsSink, payload
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually, free_port
from tests.sinks.conftest import NOON, SECOND, Given, carry, metric
from tests.sinks.store import Store, sample


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all tests that keep their names apart."""
    store = Store(tmp_path_factory.mktemp("store") / "data")
    store.start()
    yield store
    store.stop()


@pytest.mark.parametrize("precision", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("gzip", [False, True])
async def test_bytes_pass_through(store: Store, precision: Precision, gzip: bool) -> None:
    """Checked lines travel as the bytes they are, whatever the unit of their timestamps."""
    name = f"through_{precision}_{gzip}"
    digits = {"s": "", "ms": "123", "us": "123456", "ns": "123456789"}[precision]
    line = f"{name},hostname=n1,type-id=0,a=b\\ c value=1.5 1740052800{digits}\n".encode()
    lines = decode(line + b"bad line\n", precision=precision)
    assert payload(lines) == (line, precision)
    async with VictoriaMetricsSink(url=store.url, gzip=gzip) as sink:
        await sink.write(lines)
    stamp = 1740052800000 + (0 if precision == "s" else 123)
    labels = frozenset({("hostname", "n1"), ("type-id", "0"), ("a", "b c")})
    assert store.samples(name) == {(name, labels, 1.5, stamp)}


numbers = st.one_of(
    st.integers(-(10**11), 10**11).map(lambda n: n / 1000),
    st.integers(-(10**12), 10**12),
    st.integers(0, 10**12).map(Uint),
    st.booleans(),
)
labels = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(
    lambda text: not text.endswith("\\") and "\\\\" not in text
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(numbers, st.integers(0, 10**6)), min_size=1, max_size=8),
    st.dictionaries(labels.map("l".__add__), labels, max_size=2),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.booleans(),
)
def test_what_is_sent_is_what_it_keeps(
    store: Store,
    points: list[tuple[float | int | bool, int]],
    tags: dict[str, str],
    precision: Precision,
    are_lines: bool,
) -> None:
    """Numbers of up to 12 digits, labels and milliseconds arrive exactly, as lines or messages."""
    name = f"sent_{time.time_ns()}"
    messages = [
        Message(name, tags | {"n": str(n)}, value, NOON + offset * 10**6)
        for n, (value, offset) in enumerate(points)
    ]

    async def send() -> None:
        async with VictoriaMetricsSink(url=store.url) as sink:
            if are_lines:
                lines = decode(encode(messages, precision=precision), precision=precision)
                await sink.write(lines)
                messages[:] = list(lines)
            else:
                await sink.write(messages)

    asyncio.run(send())
    assert store.samples(name) == {sample(message) for message in messages}


async def test_numbers_that_the_store_misreads(store: Store) -> None:
    """``.5`` and ``1.`` are numbers, though the store makes 0 of them: they are written anew."""
    numbers = {b".5": 0.5, b"-.5": -0.5, b"1.": 1.0, b"-12.": -12.0, b"1.e2": 100.0}
    lines = decode(
        b"".join(b"dots,n=%d value=%b 1740052800\n" % pair for pair in enumerate(numbers))
    )
    async with VictoriaMetricsSink(url=store.url) as sink:
        await sink.write(lines)
    kept = {(dict(tags)["n"], value) for _, tags, value, _ in store.samples("dots")}
    assert kept == {(str(n), value) for n, value in enumerate(numbers.values())}


async def test_fields_keep_their_names_apart(store: Store) -> None:
    """A field other than ``value`` stands in the series' name, alone in its line or not."""
    one, two = b"net,n=1 rx=1,value=3 1740052800\n", b"net,n=2 rx=2 1740052800\n"
    async with VictoriaMetricsSink(url=store.url) as sink:
        await sink.write(decode(one))
        await sink.write(decode(two))
        await sink.write([Message("net", {"n": "3"}, 5.0, NOON, "tx")])
    kept = {
        (name, dict(tags)["n"], value)
        for name, tags, value, _ in store.samples('{n!="",__name__=~"net.*"}')
    }
    assert kept == {("net_rx", "1", 1), ("net", "1", 3), ("net_rx", "2", 2), ("net_tx", "3", 5)}


async def test_texts_are_refused(store: Store) -> None:
    """The store would keep a text as 0; it becomes a dead letter and the numbers arrive."""
    records = [metric(1.0, n="texts"), metric("text"), metric(2, n="texts"), metric("more")]
    async with VictoriaMetricsSink(url=store.url) as sink:
        with pytest.raises(RejectedError, match="not text") as caught:
            await sink.write(records)
    assert caught.value.indices == [1, 3]
    letters = await carry(Given(to_lines(records)), VictoriaMetricsSink(url=store.url))
    assert [b'"text"' in letter.original for letter in letters] == [True, False]
    assert {value for _, _, value, _ in store.samples('{n="texts"}')} == {1.0, 2.0}


async def test_nothing_is_sent_of_nothing(store: Store) -> None:
    """An empty batch is safe at once."""
    async with VictoriaMetricsSink(url=store.url) as sink:
        await sink.write([])
        await sink.write(Lines())


async def test_a_store_that_goes_and_comes_back(tmp_path: Path) -> None:
    """While the store is down writes may be tried again; back, it gets what it missed."""
    store = Store(tmp_path / "data")
    telemetry = Telemetry()
    source = Given([metric(1.0)], [metric(2.0, time=NOON + SECOND)])

    async def come_back() -> None:
        await eventually(lambda: telemetry.total(telemetry.retries) > 0)
        await asyncio.to_thread(store.start)

    try:
        carried = carry(source, VictoriaMetricsSink(url=store.url), telemetry)
        letters, _ = await asyncio.gather(carried, come_back())
        assert letters == []
        assert {value for _, _, value, _ in store.samples()} == {1.0, 2.0}
        async with VictoriaMetricsSink(url=store.url) as sink:
            await sink.write([metric(3.0)])
            store.stop()
            with pytest.raises(UnavailableError, match=store.url):
                await sink.write([metric(4.0, time=NOON + 2 * SECOND)])
            store.start()
            await sink.write([metric(4.0, time=NOON + 2 * SECOND)])
        assert {value for _, _, value, _ in store.samples()} >= {2.0, 4.0}
    finally:
        store.stop()


async def test_a_store_without_space(tmp_path: Path) -> None:
    """A store that has gone read-only is tried again."""
    store = Store(tmp_path / "data", "-storage.minFreeDiskSpaceBytes=1000000000000000")
    store.start()
    try:
        async with VictoriaMetricsSink(url=store.url) as sink:
            with pytest.raises(UnavailableError, match="read-only"):
                await sink.write([metric(1.0)])
    finally:
        store.stop()


async def test_passwords(tmp_path: Path) -> None:
    """Name and password let us in; without them we are denied before anything starts."""
    secret = tmp_path / "secret"
    secret.write_text("pä:ss\n")
    store = Store(tmp_path / "data", "-httpAuth.username=bridge", "-httpAuth.password=pä:ss")
    store.start()
    try:
        mine = VictoriaMetricsSink(url=store.url, user="bridge", password_file=str(secret))
        async with mine as sink:
            await sink.write([metric(1.0)])
        with pytest.raises(DeniedError, match="401"):
            async with VictoriaMetricsSink(url=store.url):
                pass
    finally:
        store.stop()


async def test_an_address_that_takes_no_lines(store: Store) -> None:
    """A wrong path is the recipe's fault: it must not make dead letters of all records."""
    with pytest.raises(ConfigError, match="does not accept line protocol.*unsupported path"):
        async with VictoriaMetricsSink(url=store.url + "/insert/0/influx"):
            pass


async def test_check(store: Store) -> None:
    """``check()`` says whether the store answers, and leaves nothing in it."""
    before = store.samples()
    await VictoriaMetricsSink(url=store.url).check()
    assert store.samples() == before
    with pytest.raises(UnavailableError):
        await VictoriaMetricsSink(url=f"http://127.0.0.1:{free_port()}").check()
    with pytest.raises(ConfigError, match="does not accept line protocol"):
        await VictoriaMetricsSink(url=store.url + "/insert/0/influx").check()


class Answers:
    """A server that answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.text, self.silent = 204, "", False
        self.requests: list[web.Request] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        self.requests.append(request)
        if self.silent:
            assert request.transport is not None
            request.transport.abort()
        headers = {"Location": "/elsewhere"} if self.status in (301, 307) else {}
        return web.Response(status=self.status, text=self.text, headers=headers)


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    """Run a server whose answers the real store cannot be made to give."""
    answers = Answers()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answers.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    answers.port = runner.addresses[0][1]
    yield answers
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RejectedError),
        (413, RejectedError),
        (422, RejectedError),
        (401, DeniedError),
        (403, DeniedError),
        (301, UnavailableError),
        (307, UnavailableError),
        (404, UnavailableError),
        (408, UnavailableError),
        (429, UnavailableError),
        (500, UnavailableError),
        (502, UnavailableError),
        (503, UnavailableError),
    ],
)
async def test_what_an_answer_means(answers: Answers, status: int, error: type[Exception]) -> None:
    """Only what speaks of the records condemns them; the error holds the store's own words."""
    async with VictoriaMetricsSink(url=f"http://127.0.0.1:{answers.port}") as sink:
        answers.status, answers.text = status, "in its own words"
        with pytest.raises(error, match=rf"/write: {status} .*in its own words"):
            await sink.write([metric(1.0)])
        assert [request.path for request in answers.requests] == ["/write", "/write"]
        answers.status = 204
        await sink.write([metric(1.0)])


async def test_a_connection_that_breaks(answers: Answers) -> None:
    """Where no answer comes nobody knows what became of the records: they are sent again."""
    async with VictoriaMetricsSink(url=f"http://127.0.0.1:{answers.port}") as sink:
        answers.silent = True
        with pytest.raises(UnavailableError):
            await sink.write([metric(1.0)])


async def test_a_server_that_is_too_slow() -> None:
    """After `timeout` a write is given up, to be tried again."""
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, says nothing
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        async with VictoriaMetricsSink(url=url, timeout=Duration(0.1)) as sink:
            with pytest.raises(UnavailableError, match="(?i)timeout"):
                await sink.write([metric(1.0)])


async def test_a_token(answers: Answers, tmp_path: Path) -> None:
    """A token is read from its file and sent as HTTP Bearer."""
    secret = tmp_path / "token"
    secret.write_text("t0k3n\n")
    url = f"http://127.0.0.1:{answers.port}"
    async with VictoriaMetricsSink(url=url, token_file=str(secret)):
        pass
    assert [r.headers["Authorization"] for r in answers.requests] == ["Bearer t0k3n"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "127.0.0.1:8428"}, "url: .* is not an http"),
        ({"url": "http://u:p@host"}, "url: must not contain a password"),
        ({"user": "me"}, "user and password_file go together"),
        ({"password_file": "f"}, "user and password_file go together"),
        ({"user": "me", "password_file": "f", "token_file": "f"}, "token_file: a user"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], reason: str) -> None:
    """A wrong option is named before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        VictoriaMetricsSink(**options)  # type: ignore[arg-type] # one of several


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff"])
async def test_a_secret_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """A secret that is missing or no line of text is named by its option and file."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"token_file: {path}"):
        async with VictoriaMetricsSink(token_file=str(path)):
            pass


async def test_a_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    """A certificate authority that is missing is named."""
    with pytest.raises(ConfigError, match="ca_file: .*No such file"):
        async with VictoriaMetricsSink(url="https://host", ca_file=str(tmp_path / "ca.pem")):
            pass


def test_without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is missing the error says what to type."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "ccpipe.sinks.victoriametrics")
    with pytest.raises(MissingExtra, match=r"pip install 'ccpipe\[http\]'"):
        importlib.import_module("ccpipe.sinks.victoriametrics")
