"""Writing to the real Prometheus, and being scraped by it."""

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, SeriesTable, decode, to_lines
from ccpipe.formats.prometheus import labels_of
from ccpipe.formats.remote_write_2 import HEADERS_2, SAMPLES_WRITTEN
from ccpipe.message import Message
from ccpipe.sinks.prometheus import LiveSeries, PrometheusScrapeSink, PrometheusSink
from tests.conftest import eventually, free_port
from tests.servers.otlp import prometheus_3
from tests.servers.prometheus import Prometheus
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, SECOND, Given, carry, carry_again, metric, names

NOW = int(time.time()) * SECOND - 600 * SECOND
"""Prometheus takes samples of about the last hour only."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One store for all tests that keep their names apart; it takes late samples."""
    with Prometheus(tmp_path_factory.mktemp("store") / "prometheus", late=True) as store:
        yield store


def sink_of(store: Prometheus, stale_after: float = 0) -> PrometheusSink:
    return PrometheusSink(url=store.url, timeout=Duration(60), stale_after=Duration(stale_after))


@given(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53) | st.booleans(),
    st.dictionaries(names, names, max_size=3),
    st.integers(0, 999),
    st.sampled_from(["value", "rx"]),
)
def test_prometheus_stores_records_exactly(
    store: Prometheus, value: float, tags: dict[str, str], millis: int, field: str
) -> None:
    """Doubles, milliseconds, and any name and tag in the characters that Prometheus allows."""
    message = Message(f"sent.{time.time_ns()}", tags, value, NOW + millis * 10**6, field)

    async def send() -> None:
        async with sink_of(store) as sink:
            await sink.write(to_lines([message]))

    asyncio.run(send())
    lines = to_lines([message])
    labels = labels_of(lines.table.series[lines.series[0]], field)
    (kept,) = store.query(f"{labels['__name__']}[1m]", NOW / SECOND + 1)
    assert kept[0] == labels
    ((when, text),) = kept[1]
    assert (round(when * 1000), float(text)) == (NOW // 10**6 + millis, float(value))


async def test_texts_are_rejected(store: Prometheus) -> None:
    """They become dead letters and the numbers are stored."""
    records = [metric(1.0, time=NOW, n="texts"), metric("text", time=NOW)]
    async with sink_of(store) as sink:
        with pytest.raises(RejectedError, match="Prometheus stores numbers") as caught:
            await sink.write(to_lines(records))
    assert caught.value.indices == [1]
    letters = await carry(Given(to_lines(records)), sink_of(store))
    assert [b'"text"' in letter.original for letter in letters] == [True]
    assert len(store.query('cpu_load{n="texts"}', NOW / SECOND)) == 1


async def test_duplicate_and_late_samples_are_accepted(store: Prometheus) -> None:
    """With a window for late samples the store accepts both, and duplicates are stored once."""
    records = [Message("late", {}, float(n), NOW + n * SECOND) for n in range(5)]
    letters = await carry(Given(records, records[:3], records), sink_of(store))
    assert letters == []
    ((_, values),) = store.query("late[1m]", NOW / SECOND + 10)
    assert [float(value) for _, value in values] == [0, 1, 2, 3, 4]


async def test_late_samples_are_dead_letters_without_window(tmp_path: Path) -> None:
    """With the store's own text; new samples are stored."""
    with Prometheus(tmp_path / "prometheus") as store:
        async with sink_of(store) as sink:
            await sink.write(to_lines([Message("late", {"n": "1"}, 1.0, NOW)]))
        records = [Message("late", {"n": "1"}, 1.0, NOW - SECOND), Message("late", {}, 2.0, NOW)]
        letters = await carry(Given(records), sink_of(store))
        assert [(letter.original[:8], "out of order" in letter.reason) for letter in letters] == [
            (b"late,n=1", True)
        ]
        assert len(store.query("late", NOW / SECOND)) == 2


async def test_ended_series_gets_stale_marker(store: Prometheus) -> None:
    """Queries no longer return it, while the others continue."""
    begin = time.time_ns() - 20 * SECOND
    async with sink_of(store, stale_after=10) as sink:
        await sink.write(to_lines([Message("ends", {"n": n}, 1.0, begin) for n in ("1", "2")]))
        await sink.write(to_lines([Message("ends", {"n": "2"}, 2.0, begin + 19 * SECOND)]))
    at = begin / SECOND
    assert [labels["n"] for labels, _ in store.query("ends", at + 5)] == ["1", "2"]
    assert [labels["n"] for labels, _ in store.query("ends", at + 19.5)] == ["2"]


def test_ended_series_is_found_in_new_table() -> None:
    """A decoder renumbers series from time to time; an ended one is not forgotten."""
    live = LiveSeries(10 * SECOND)
    assert live.ended(decode(b"a,n=1 value=1 100\n"), 101 * SECOND) is None
    other = Lines(b"", SeriesTable())
    other.append(other.table.add(b"b"), other.table.add_field(b"value"), 1.0, 120 * SECOND)
    markers = live.ended(other, 121 * SECOND)
    assert markers is not None
    assert [(m.name, m.tags, m.time) for m in markers] == [("a", {"n": "1"}, 110 * SECOND)]
    assert live.ended(other, 125 * SECOND) is None


async def test_writes_continue_after_restart_of_store(tmp_path: Path) -> None:
    """While it is down writes may be retried; then it gets the missing ones."""
    store = Prometheus(tmp_path / "prometheus")
    source = Given([metric(1.0, time=NOW)], [metric(2.0, time=NOW + SECOND)])
    try:
        await carry_again(source, sink_of(store), store.start)
        ((_, values),) = store.query("cpu_load[1m]", NOW / SECOND + 1)
        assert [float(value) for _, value in values] == [1, 2]
    finally:
        store.stop()


async def test_check_requires_remote_write_and_sends_nothing(store: Prometheus) -> None:
    await sink_of(store).check()
    with pytest.raises(UnavailableError, match="404"):
        await PrometheusSink(url=store.url, url_path="/api/v1/push").check()
    with pytest.raises(UnavailableError):
        await PrometheusSink(url=f"http://127.0.0.1:{free_port()}").check()


async def test_disabled_remote_write_is_reported(tmp_path: Path) -> None:
    """Prometheus's own text names the missing flag."""
    store = Prometheus(tmp_path / "prometheus")
    store.command.remove("--web.enable-remote-write-receiver")
    with store, pytest.raises(UnavailableError, match="needs to be enabled with --"):
        await sink_of(store).check()


async def test_receipt_is_success_without_html(answers: Answers) -> None:
    """204, or an empty 200 as of Mimir; not a page."""
    answers.status = 200
    async with PrometheusSink(url=answers.url, tenant="hpc") as sink:
        await sink.write(to_lines([metric(1.0)]))
        answers.text = "<html>Please log in</html>"
        with pytest.raises(UnavailableError, match="log in"):
            await sink.write(to_lines([metric(1.0)]))
    headers = answers.requests[-1].headers
    assert headers["X-Scope-OrgID"] == "hpc"
    assert headers["Content-Encoding"] == "snappy"


def shown(sink: PrometheusScrapeSink, now: int = NOON) -> list[str]:
    return "".join(sink.text(now)).splitlines()


async def test_remote_write_2_has_every_sample(answers: Answers) -> None:
    """Read by protobuf and the definitions of the specification: texts once, labels sorted."""
    answers.status, answers.headers = 204, {SAMPLES_WRITTEN: "0"}
    lines = decode(
        b"cpu_load,type=node,hostname=n1 value=1.5,rx=2i 1740052801\n"
        b"cpu_load,type=node,hostname=n1 value=3 1740052800\n"
        b"mem,hostname=n1 value=true 1740052800\n"
    )
    async with PrometheusSink(url=answers.url, remote_write="2.0") as sink:
        answers.headers = {SAMPLES_WRITTEN: "4"}
        await sink.write(lines)
    for name, value in HEADERS_2.items():
        assert answers.requests[-1].headers[name] == value
    request = remote_write_2()
    request.ParseFromString(bytes(cramjam.snappy.decompress_raw(answers.bodies[-1])))
    assert request.symbols[0] == ""
    assert len(set(request.symbols)) == len(request.symbols)
    texts = [[request.symbols[i] for i in series.labels_refs] for series in request.timeseries]
    assert [
        (labels, [(sample.timestamp, sample.value) for sample in series.samples])
        for labels, series in zip(texts, request.timeseries, strict=True)
    ] == [
        (["__name__", "cpu_load", "hostname", "n1", "type", "node"],
         [(1740052800000, 3.0), (1740052801000, 1.5)]),
        (["__name__", "cpu_load_rx", "hostname", "n1", "type", "node"], [(1740052801000, 2.0)]),
        (["__name__", "mem", "hostname", "n1"], [(1740052800000, 1.0)]),
    ]  # fmt: skip


def remote_write_2() -> Any:
    """Return an empty ``io.prometheus.write.v2.Request``, of the fields that ccpipe writes."""
    package = "io.prometheus.write.v2"

    def field(name: str, number: int, kind: str, *, repeated: bool = False, of: str = "") -> Any:
        label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
        known = {"name": name, "number": number, "type": f"TYPE_{kind}", "label": label}
        return known | ({"typeName": f".{package}.{of}"} if of else {})

    messages = {
        "Sample": [field("value", 1, "DOUBLE"), field("timestamp", 2, "INT64")],
        "TimeSeries": [
            field("labels_refs", 1, "UINT32", repeated=True),
            field("samples", 2, "MESSAGE", repeated=True, of="Sample"),
        ],
        "Request": [
            field("symbols", 4, "STRING", repeated=True),
            field("timeseries", 5, "MESSAGE", repeated=True, of="TimeSeries"),
        ],
    }
    file = json_format.ParseDict(
        {
            "name": "write.proto", "package": package, "syntax": "proto3",
            "messageType": [{"name": name, "field": each} for name, each in messages.items()],
        },
        descriptor_pb2.FileDescriptorProto(),
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Request"))()


@pytest.mark.parametrize(("written", "shown"), [("1", "1"), ("", "none")])
async def test_missing_samples_are_sent_again(answers: Answers, written: str, shown: str) -> None:
    """A receiver that stored fewer than it was sent has not stored the batch."""
    answers.status, answers.headers = 204, {SAMPLES_WRITTEN: "0"}
    async with PrometheusSink(url=answers.url, remote_write="2.0") as sink:
        answers.headers = {SAMPLES_WRITTEN: written}
        with pytest.raises(UnavailableError, match=f"stored {shown} of 2 samples$"):
            await sink.write(decode(b"m value=1 1\nm value=2 2\n"))


async def test_store_without_remote_write_2_is_reported(answers: Answers) -> None:
    """Before any sample is sent: it may answer 204 to what it cannot read."""
    with pytest.raises(ConfigError, match='^remote_write: "2.0": .* does not report what it stor'):
        await PrometheusSink(url=answers.url, remote_write="2.0").check()


@pytest.mark.long
async def test_prometheus_3_stores_remote_write_2(tmp_path: Path) -> None:
    """Each sample once, sent twice, with the number in its response."""
    with prometheus_3(tmp_path / "prometheus", late=True) as store:
        messages = [
            metric(float(i), time=NOW + i * SECOND, hostname=f"n{host}")
            for host in range(100)
            for i in range(60)
        ]
        for _ in range(2):
            sink = PrometheusSink(url=store.url, timeout=Duration(60), remote_write="2.0")
            assert await carry(Given(messages), sink) == []
        at = NOW / SECOND + 60
        assert store.query("sum(count_over_time(cpu_load[5m]))", at)[0][1][1] == "6000"
        assert store.query("sum(sum_over_time(cpu_load[5m]))", at)[0][1][1] == "177000"


@pytest.mark.long
async def test_remote_write_2_costs_only_late_samples(tmp_path: Path) -> None:
    """Prometheus 3 refuses them without a window; the others of the batch are stored."""
    with prometheus_3(tmp_path / "prometheus", late=False) as store:
        messages = [metric(1.0, time=NOW, hostname=f"n{i}") for i in range(20)]
        late = [metric(2.0, time=NOW - 60 * SECOND, hostname=f"n{i}") for i in range(2)]
        new = [metric(3.0, time=NOW + SECOND, hostname=f"n{i}") for i in range(20)]
        sink = PrometheusSink(url=store.url, timeout=Duration(60), remote_write="2.0")
        assert await carry(Given(messages), sink) == []
        letters = await carry(Given([*new[:10], *late, *new[10:]]), sink)
        assert len(letters) == 2
        assert all("out of order" in letter.reason for letter in letters)
        at = NOW / SECOND + 60
        assert store.query("sum(count_over_time(cpu_load[5m]))", at)[0][1][1] == "40"


async def test_prometheus_scrapes_latest_values(tmp_path: Path) -> None:
    """Of each series; an ended one is missing from the next scrape on."""
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
def test_page_is_parsed_by_prometheus_own_parser(tags: dict[str, str], value: float) -> None:
    """For any tags."""
    tags = {key: text for key, text in tags.items() if not text.endswith("\\")}
    sink = PrometheusScrapeSink()
    asyncio.run(sink.write(to_lines([Message("m", tags, value, NOON)])))
    (family,) = text_string_to_metric_families("".join(sink.text(NOON)))
    (sample,) = family.samples
    lines = to_lines([Message("m", tags, value, NOON)])
    labels = labels_of(lines.table.series[lines.series[0]], "value")
    assert ({"__name__": sample.name} | sample.labels, sample.value) == (labels, value)


async def test_older_sample_does_not_replace_newer_one() -> None:
    """Lines may arrive in any order."""
    sink = PrometheusScrapeSink()
    await sink.write(to_lines([metric(2.0, time=NOON), metric(1.0, time=NOON - SECOND)]))
    (_, line) = shown(sink)
    assert line == 'cpu_load{cluster="fox",hostname="n1",type="node"} 2.0'


async def test_series_ends_after_stale_after() -> None:
    """Without a sample."""
    sink = PrometheusScrapeSink(stale_after=Duration(10))
    await sink.write(
        to_lines([metric(1.0, time=NOON, n="1"), metric(2.0, time=NOON + 8 * SECOND, n="2")])
    )
    assert len(shown(sink, NOON + 10 * SECOND)) == 3
    assert len(shown(sink, NOON + 11 * SECOND)) == 2
    assert shown(sink, NOON + 19 * SECOND) == []
    assert sink.latest == {}


async def test_number_of_series_is_bounded() -> None:
    """The least recently written ones are removed."""
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


async def test_page_shows_times_if_configured() -> None:
    """In milliseconds; metrics of one name are grouped."""
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


async def test_page_rejects_texts() -> None:
    """They are named."""
    with pytest.raises(RejectedError, match="not text") as caught:
        await PrometheusScrapeSink().write(to_lines([metric(1.0), metric("text")]))
    assert caught.value.indices == [1]


async def test_invalid_or_used_address_is_named() -> None:
    """Before anything starts."""
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
