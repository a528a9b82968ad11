"""``PrometheusScrapeSource``: Debian's node_exporter, and servers that misbehave."""

import asyncio
import gzip
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ccpipe.config import Duration, Interval, Site, Size
from ccpipe.errors import ConfigError, DataError, UnavailableError
from ccpipe.message import Message
from ccpipe.pipeline import Batch, run
from ccpipe.sources import prometheus_scrape
from ccpipe.sources.prometheus_scrape import PrometheusScrapeSource, next_slot
from ccpipe.sources.scrape_targets import Target, TargetRules
from ccpipe.tls import server_tls_context
from tests.certificates import certificates
from tests.conftest import eventually, free_port
from tests.servers.node_exporter import NodeExporter
from tests.sinks.answers import served
from tests.sinks.conftest import SECOND, KeptDeadLetters
from tests.sources.http_client import Gate

INTERVAL = Interval(0.2)
RULES = TargetRules("http", "/metrics", short_hostnames=True)


def source_of(*targets: str, **options: Any) -> PrometheusScrapeSource:
    given_ = {"interval": INTERVAL, "timeout": INTERVAL, "jitter": Duration(0), **options}
    return PrometheusScrapeSource(site=Site(cluster="fox"), targets=list(targets), **given_)


class Scraped:
    """What a source gives while it is read in the background."""

    def __init__(self) -> None:
        self.batches: list[Batch[Any]] = []

    def latest(self, url: str) -> dict[str, Message]:
        """Return the messages of a target's latest batch, by name."""
        found = [batch for batch in self.batches if str(batch.origin).startswith(url)]
        return {message.name: message for message in found[-1].records} if found else {}

    def value(self, url: str, name: str) -> float:
        message = self.latest(url).get(name)
        return math.nan if message is None else float(message.value)


@asynccontextmanager
async def scraping(source: PrometheusScrapeSource) -> AsyncIterator[Scraped]:
    scraped = Scraped()

    async def read() -> None:
        async for batch in source.batches():
            scraped.batches.append(batch)

    async with source:
        reading = asyncio.create_task(read())
        try:
            yield scraped
        finally:
            source.stop()
            await asyncio.wait_for(reading, 30)


def text_page(text: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text)

    return answer


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeExporter]:
    with NodeExporter(tmp_path_factory.mktemp("exporter")) as exporter:
        yield exporter


async def test_source_scrapes_node_exporter(exporter: NodeExporter) -> None:
    """Every series as prometheus_client reads it, with the node's name, and metrics about it."""
    url = exporter.url
    # Reading a whole page takes the exporter long on a busy machine.
    options: dict[str, Any] = {"interval": Interval(1), "timeout": Interval(1)}
    async with scraping(source_of(exporter.address, **options)) as scraped:
        await eventually(lambda: scraped.value(url, "up") == 1)
        [batch, *_] = [b for b in scraped.batches if {m.name: m for m in b.records}["up"].value]
        families = list(text_string_to_metric_families(exporter.get("/metrics").decode()))
    expected = {
        (sample.name, *sorted(sample.labels.items()))
        for family in families
        for sample in family.samples
        if math.isfinite(sample.value)
    }
    own = {"cluster", "hostname", "type"}
    found = {
        (m.name, *sorted((k, v) for k, v in m.tags.items() if k not in own)) for m in batch.records
    }
    about = {m.name: m for m in batch.records if m.tags.get("stype") == "target"}
    found -= {(n, ("stype", "target"), ("stype-id", exporter.address)) for n in about}
    assert {name for name, *_ in found} >= {"node_load1", "node_memory_MemTotal_bytes"}
    assert not {key for key in found ^ expected if str(key[0]).startswith("node_memory")}
    assert {m.tags["hostname"] for m in batch.records} == {"127.0.0.1"}
    assert set(about) == {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
    assert about["scrape_samples_scraped"].value == len(batch.records) - 3
    assert 0 < float(about["scrape_duration_seconds"].value) < 10
    [at] = {message.time for message in batch.records}
    assert at is not None
    assert at % SECOND == 0


async def test_source_asks_for_openmetrics_then_text() -> None:
    """Compressed; it tells its time limit."""
    headers: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        headers.append(dict(request.headers))
        kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        packed = {"Content-Encoding": "gzip", "Content-Type": kind}
        return web.Response(body=gzip.compress(b"a_total 5\n# EOF\n"), headers=packed)

    async with served(answer) as url, scraping(source_of(f"{url}/other?x=y")) as scraped:
        await eventually(lambda: scraped.value(url, "a_total") == 5)
    assert headers[0]["Accept"].startswith("application/openmetrics-text;version=1.0.0,text/plain;")
    assert headers[0]["Accept-Encoding"] == "gzip"
    assert headers[0]["X-Prometheus-Scrape-Timeout-Seconds"] == "0.2"
    instance = scraped.latest(url)["up"].tags["stype-id"]
    assert instance == url.removeprefix("http://") + "/other?x=y"


async def test_slow_or_failing_target_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """It has ``up`` 0 and nothing else, each reason is logged once; others are scraped."""

    async def answer(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/slow":
                await asyncio.sleep(600)
            case "/error":
                return web.Response(status=503)
            case "/login":
                return web.Response(text="<html>", content_type="text/html")
            case "/elsewhere":
                raise web.HTTPFound("/metrics")
            case "/truncated":
                kind = "application/openmetrics-text; version=1.0.0"
                return web.Response(body=b"a 1\n", headers={"Content-Type": kind})
            case "/cut":
                packed = gzip.compress(b"a 1\n" * 1000)[:-9]
                return web.Response(body=packed, headers={"Content-Encoding": "gzip"})
        return web.Response(text="a 1\n")

    bad = {
        "slow": "no answer within 1 s",
        "error": "503 Service Unavailable",
        "login": "answered with a page of HTML instead of metrics",
        "elsewhere": "302 Found",
        "truncated": "truncated: the page does not end with # EOF",
        "cut": "the compressed page is truncated",
    }
    nobody = f"http://127.0.0.1:{free_port()}/metrics"
    async with served(answer) as url:
        addresses = [f"{url}/{path}" for path in bad]
        options = {"interval": Interval(1), "timeout": Interval(1)}
        async with scraping(source_of(f"{url}/metrics", nobody, *addresses, **options)) as scraped:
            await eventually(lambda: scraped.value(f"{url}/metrics", "a") == 1)
            for address in (*addresses, nobody):
                await eventually(lambda: scraped.value(address, "up") == 0)  # noqa: B023 - awaited
                names = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
                assert set(scraped.latest(address)) == names
            expected = {f"{url}/{path}: {reason}" for path, reason in bad.items()}
            expected |= {f"{nobody}: Connection refused"}
            await eventually(lambda: expected <= set(caplog.messages))
            count = len(scraped.batches)
            await eventually(lambda: len(scraped.batches) >= count + 3 * 8)
    assert caplog.messages.count(f"{nobody}: Connection refused") == 1


async def test_huge_page_costs_only_its_target(caplog: pytest.LogCaptureFixture) -> None:
    """It is read up to the limit only, also if it is compressed a thousandfold."""
    sent, bomb = 0, gzip.compress(b"a 1\n" * 10_000_000, 1)

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        if request.path == "/bomb":
            return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})
        if request.path == "/many":
            return web.Response(text="".join(f"m{n} 1\n" for n in range(101)))
        if request.path == "/endless":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"a 1\n" * 2**14)
                sent += 2**16
        return web.Response(text="a 1\n")

    paths = ["bomb", "many", "endless"]
    options = {"max_body_bytes": Size(2**20), "max_samples": 100}
    async with served(answer) as url:
        addresses = [f"{url}/{path}" for path in paths]
        source = source_of(url, *addresses, **options, interval=Interval(2), timeout=Interval(2))
        async with scraping(source) as scraped:
            await eventually(lambda: scraped.value(f"{url}/metrics", "a") == 1)
            for address in addresses:
                await eventually(lambda: scraped.value(address, "up") == 0)  # noqa: B023 - awaited
            expected = {
                f"{url}/bomb: more than 1048576 bytes (max_body_bytes)",
                f"{url}/endless: more than 1048576 bytes (max_body_bytes)",
                f"{url}/many: more than 100 samples (max_samples)",
            }
            await eventually(lambda: expected <= set(caplog.messages))
    assert sent < len(scraped.batches) * (2**20 + 2**23)  # with the buffers of two sockets


async def test_bad_line_becomes_dead_letter_and_others_are_stored() -> None:
    """It names the target and the line."""
    letters, store, stop = KeptDeadLetters(), Gate(), asyncio.Event()
    async with served(text_page("a 1\nb nothing\nc 3\n")) as url:
        work = run(source_of(url), store, dead_letter_sink=letters, stop=stop)
        pipe = asyncio.create_task(work)
        await eventually(lambda: bool(letters.letters and store.written))
        stop.set()
        await asyncio.wait_for(pipe, 30)
    letter = letters.letters[0]
    assert (letter.original, letter.line, letter.offset) == (b"b nothing", 2, 4)
    assert letter.reason == "the value is not a number"
    assert letter.origin == f"{url}/metrics"
    assert {message.name for message in store.written} >= {"a", "c", "up"}


async def test_target_files_are_read_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Targets come and go; those of a file that becomes invalid are kept."""
    monkeypatch.setattr(prometheus_scrape, "REREAD_SECONDS", 0.02)
    file, other = tmp_path / "a.json", tmp_path / "b.json"
    async with served(text_page("a 1\n")) as url:
        address = url.removeprefix("http://")

        def write(path: Path, group: object) -> None:
            new = path.with_suffix(".new")
            new.write_text(group if isinstance(group, str) else json.dumps([group]))
            new.rename(path)

        write(file, {"targets": [address], "labels": {"hostname": "f1", "rack": "r 1"}})
        source = source_of(target_files=[f"{tmp_path}/*.json"])
        async with scraping(source) as scraped:
            await eventually(lambda: scraped.value(url, "a") == 1)
            assert scraped.latest(url)["a"].tags == {
                "cluster": "fox", "hostname": "f1", "rack": "r 1", "type": "node",
            }  # fmt: skip
            labels = {"__metrics_path__": "/other", "__param_target": "bmc 1", "hostname": "f2"}
            write(other, {"targets": [address], "labels": labels})
            await eventually(lambda: scraped.value(f"{url}/other", "a") == 1)
            assert scraped.batches[-1].origin
            origins = {batch.origin for batch in scraped.batches}
            assert origins == {f"{url}/metrics", f"{url}/other?target=bmc+1"}
            write(file, "[{]")
            await eventually(lambda: "earlier targets are kept" in caplog.text)
            other.unlink()
            count = len(scraped.batches)
            await eventually(
                lambda: (
                    {b.origin for b in scraped.batches[-3:]} == {f"{url}/metrics"}
                    and len(scraped.batches) > count + 3
                )
            )
            write(file, {"targets": []})
            await eventually(lambda: not source._scrapes)


async def test_source_authenticates_over_tls(tmp_path: Path) -> None:
    """By token or password, with a private CA; a wrong CA is an error of the target."""
    made = certificates(tmp_path)
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(text="a 1\n")

    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "password").write_text("word\n")
    context = server_tls_context(str(made.cert), str(made.key))
    token = {"token_file": str(tmp_path / "token")}
    basic = {"user": "me", "password_file": str(tmp_path / "password")}
    async with served(answer, tls=context) as url:
        address = url.removeprefix("https://")
        for credentials in (token, basic):
            options = {"scheme": "https", "ca_file": str(made.ca), "interval": Interval(1)}
            async with scraping(source_of(address, **options, **credentials)) as scraped:
                await eventually(lambda: scraped.value(url, "a") == 1)
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            await source_of(url, interval=Interval(9), timeout=Interval(9)).check()
    assert set(seen) == {"Bearer secret", "Basic bWU6d29yZA=="}


async def test_samples_have_time_of_their_slot_or_their_own() -> None:
    """A slot is a multiple of the interval; exporters' timestamps are kept by option."""
    async with served(text_page("a 1 1740052800123\n")) as url:
        async with scraping(source_of(url, jitter=Duration(0.1))) as scraped:
            await eventually(lambda: len(scraped.batches) > 2)
        times = [scraped.batches[n].records[0].time for n in range(3)]
        assert [time % (SECOND // 5) for time in times] == [0, 0, 0]
        assert times == sorted(set(times))
        assert abs(times[-1] - time.time_ns()) < 60 * SECOND
        async with scraping(source_of(url, timestamps=True)) as scraped:
            await eventually(lambda: scraped.value(url, "up") == 1)
        assert scraped.latest(url)["a"].time == 1740052800123 * 10**6


async def test_slots_are_skipped_while_page_is_not_stored(caplog: pytest.LogCaptureFixture) -> None:
    """So that memory is bounded when the store is down."""
    async with served(text_page("a 1\n")) as url, source_of(url) as source:
        batches = source.batches()
        await anext(batches)
        await eventually(lambda: "its last page is not stored yet" in caplog.text)
        assert source._ready.qsize() == 1
        source.stop()
        assert len([batch async for batch in batches]) == 1


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        (
            "f[08-09].fox.uio.no:9100",
            {},
            [("http://f08.fox.uio.no:9100/metrics", "f08"),
             ("http://f09.fox.uio.no:9100/metrics", "f09")],
        ),
        ("n1", {}, [("http://n1:80/metrics", "n1")]),
        ("n1", {"__scheme__": "https"}, [("https://n1:443/metrics", "n1")]),
        ("10.0.0.7:9400", {}, [("http://10.0.0.7:9400/metrics", "10.0.0.7")]),
        ("[::1]:9100", {}, [("http://[::1]:9100/metrics", "::1")]),
        ("https://N1.x:1/p?a=b", {"__param_c": "d"}, [("https://N1.x:1/p?a=b&c=d", "N1")]),
        ("gw:9610", {"hostname": "f0101"}, [("http://gw:9610/metrics", "f0101")]),
    ],
)  # fmt: skip
def test_target_is_parsed(text: str, labels: dict[str, str], expected: list[Any]) -> None:
    """The host without port becomes the tag hostname; labels take precedence."""
    found = [(t.url, dict(t.tags)["hostname"]) for t in RULES.targets(text, labels)]
    assert found == expected


@given(
    st.text(max_size=30) | st.from_regex(r"[a-z\[\]0-9-]{1,9}:[0-9]{1,6}", fullmatch=True),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_any_target_is_parsed_or_raises_data_error(text: str, labels: dict[str, str]) -> None:
    """Labels that cannot be tags, and texts that are not addresses."""
    try:
        found = list(RULES.targets(text, labels))
    except DataError:
        return
    assert all(isinstance(target, Target) and "hostname" in dict(target.tags) for target in found)


@contextmanager
def refused(match: str) -> Iterator[None]:
    with pytest.raises(ConfigError, match=match):
        yield


def test_invalid_options_are_refused(tmp_path: Path) -> None:
    """Each names its key."""
    with refused("targets: expected at least one"):
        source_of()
    with refused("targets: 'a b' is not host:port"):
        source_of("a b")
    with refused("timeout: 30 s is longer than the interval"):
        source_of("a", timeout=Interval(30))
    with refused("max_samples"):
        source_of("a", max_samples=0)
    with refused("user and password_file go together"):
        source_of("a", user="x")
    with refused("cert_file is missing"):
        source_of("a", key_file="x")


async def test_check_reads_target_files(tmp_path: Path) -> None:
    """A missing or invalid one is an error that names it."""
    file = tmp_path / "a.json"
    with refused("no such file"):
        await source_of(target_files=[str(file)]).check()
    for text in ("{}", '[{"targets": [5]}]', '[{"targets": ["a b"]}]', "\xff"):
        file.write_bytes(text.encode("latin-1"))
        with refused(f"target_files: {file}: "):
            await source_of(target_files=[str(file)]).check()
    async with served(text_page("a 1\n")) as url:
        file.write_text(json.dumps([{"targets": [url]}]))
        await source_of(target_files=[str(file)]).check()


@given(st.integers(1, 2**61), st.sampled_from([SECOND // 5, SECOND, 60 * SECOND]))
def test_next_slot_follows_now_and_last(now: int, interval: int) -> None:
    """It is not in the past, less than an interval ahead, and never the last one again."""
    slot = next_slot(now, interval, 0)
    assert now <= slot < now + interval
    assert slot % interval == 0
    assert next_slot(now, interval, slot) == slot + interval
