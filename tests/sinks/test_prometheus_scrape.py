"""``PrometheusScrapeSink``: what the real Prometheus scrapes is the latest value of each series."""

import asyncio
import time
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, RejectedError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.prometheus import labels_of
from ccpipe.message import Message
from ccpipe.sinks.prometheus_scrape import PrometheusScrapeSink
from tests.conftest import eventually, free_port
from tests.servers.prometheus import Prometheus
from tests.sinks.conftest import NOON, SECOND, metric, names


def shown(sink: PrometheusScrapeSink, now: int = NOON) -> list[str]:
    return "".join(sink.text(now)).splitlines()


async def test_what_the_real_prometheus_scrapes(tmp_path: Path) -> None:
    """The latest value of each series; one that ends is gone from the next scrape on."""
    listen = f"127.0.0.1:{free_port()}"
    store = Prometheus(tmp_path / "prometheus", scrape=listen)
    tags = {"hostname": 'n"1\\x', "type-id": "0"}

    def value(name: str) -> float | None:
        found = store.query(name, time.time())
        assert len(found) < 2
        return float(found[0][1][1]) if found else None

    async with PrometheusScrapeSink(listen=listen) as sink:
        with store:
            now = time.time_ns()
            await sink.write(
                to_lines([Message("cpu.load", tags, 1.5, now), Message("old", {}, 7, now)])
            )
            await eventually(lambda: value("cpu_load") == 1.5, 60)
            ((labels, _),) = store.query("cpu_load", time.time())
            assert labels["hostname"] == tags["hostname"]
            assert labels["type_id"] == "0"
            await sink.write(to_lines([Message("cpu.load", tags, 2.5, now + 1)]))
            await eventually(lambda: value("cpu_load") == 2.5, 60)
            assert value("old") == 7
            sink.latest.pop("old")
            await eventually(lambda: value("old") is None, 60)


@given(st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
                       max_size=3), st.floats(allow_nan=False, allow_infinity=False))  # fmt: skip
def test_the_text_is_read_by_prometheus_own_parser(tags: dict[str, str], value: float) -> None:
    """Whatever the tags hold."""
    tags = {key: text for key, text in tags.items() if not text.endswith("\\")}
    sink = PrometheusScrapeSink()
    asyncio.run(sink.write(to_lines([Message("m", tags, value, NOON)])))
    (family,) = text_string_to_metric_families("".join(sink.text(NOON)))
    (sample,) = family.samples
    lines = to_lines([Message("m", tags, value, NOON)])
    labels = labels_of(lines.table.series[lines.series[0]], "value")
    assert ({"__name__": sample.name} | sample.labels, sample.value) == (labels, value)


async def test_what_is_older_does_not_replace_what_is_newer() -> None:
    """Lines may come in any order."""
    sink = PrometheusScrapeSink()
    await sink.write(to_lines([metric(2.0, time=NOON), metric(1.0, time=NOON - SECOND)]))
    (_, line) = shown(sink)
    assert line == 'cpu_load{cluster="fox",hostname="n1",type="node"} 2.0'


async def test_series_end() -> None:
    """After `stale_after` without a sample."""
    sink = PrometheusScrapeSink(stale_after=Duration(10))
    await sink.write(
        to_lines([metric(1.0, time=NOON, n="1"), metric(2.0, time=NOON + 8 * SECOND, n="2")])
    )
    assert len(shown(sink, NOON + 10 * SECOND)) == 3
    assert len(shown(sink, NOON + 11 * SECOND)) == 2
    assert shown(sink, NOON + 19 * SECOND) == []
    assert sink.latest == {}


async def test_series_are_bounded() -> None:
    """The ones that were written least recently go."""
    sink = PrometheusScrapeSink(max_series=3)
    await sink.write(to_lines([Message("m", {"n": str(n)}, n, NOON) for n in range(3)]))
    await sink.write(
        to_lines([Message("m", {"n": "0"}, 9, NOON), Message("m", {"n": "3"}, 3, NOON)])
    )
    assert shown(sink) == [
        "# TYPE m untyped", 'm{n="2"} 2.0', 'm{n="0"} 9.0', 'm{n="3"} 3.0',
    ]  # fmt: skip
    await sink.write(to_lines([Message("m", {"n": str(n)}, n, NOON) for n in range(10_000)]))
    assert len(sink.latest) == 3
    assert len(sink.names) <= 10_004


async def test_times_are_shown_on_request() -> None:
    """In milliseconds; metrics of one name stand together."""
    sink = PrometheusScrapeSink(timestamps=True)
    await sink.write(
        to_lines(
            [
                Message("a", {}, 1, NOON),
                Message("b", {}, 2, NOON),
                Message("a", {"n": "1"}, 3, NOON),
            ]
        )
    )
    assert shown(sink) == [
        "# TYPE a untyped", "a 1.0 1740052800000", 'a{n="1"} 3.0 1740052800000',
        "# TYPE b untyped", "b 2.0 1740052800000",
    ]  # fmt: skip


async def test_texts_are_refused() -> None:
    """And named."""
    with pytest.raises(RejectedError, match="not text") as caught:
        await PrometheusScrapeSink().write(to_lines([metric(1.0), metric("text")]))
    assert caught.value.indices == [1]


async def test_the_address() -> None:
    """One that is taken, or none, is named before anything starts."""
    listen = f"127.0.0.1:{free_port()}"
    async with PrometheusScrapeSink(listen=listen):
        url = f"http://{listen}/metrics"
        answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=30)
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        answer.close()
        with pytest.raises(ConfigError, match=f"listen: {listen}: "):
            async with PrometheusScrapeSink(listen=listen):
                pass
    for wrong in ("9401", "host", "host:port", ":1"):
        with pytest.raises(ConfigError, match=f"listen: '{wrong}'"):
            PrometheusScrapeSink(listen=wrong)
    with pytest.raises(ConfigError, match="max_series: must be"):
        PrometheusScrapeSink(max_series=0)
