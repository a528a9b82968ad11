"""``HttpSource`` as a receiver of OpenTelemetry, with the official SDK, and with our own sink."""

import asyncio
import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus, Duration, Site, Size
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.otlp.encoder import MetricsEncoder, attribute
from ccpipe.formats.otlp.responses import decode_response, decode_status
from ccpipe.formats.protobuf import message
from ccpipe.message import Message
from ccpipe.sinks.otlp import OtlpSink
from ccpipe.sources.http_otlp import MAX_BYTES_AT_ONCE
from tests.conftest import eventually, free_port
from tests.formats.otlp.test_encoder import NAMES, SIGNED
from tests.servers.nats.stored import stored_lines
from tests.sinks.conftest import NOON, Given, carry, metric
from tests.sources.http_client import Client, Gate, bridge, running

PROTOBUF = {"Content-Type": "application/x-protobuf"}
BODY = MetricsEncoder().encode(to_lines([metric(1.5)]))
RESOURCE = Resource({"host.name": "n1", "hpc.cluster.name": "fox", "service.name": "solver"})
TAGS = {"cluster": "fox", "hostname": "n1", "service.name": "solver"}


@contextmanager
def metrics_of(client: Client, **options: Any) -> Iterator[MeterProvider]:
    """Give a provider of the SDK whose metrics are exported when it is flushed."""
    exporter = OTLPMetricExporter(endpoint=f"{client.url}/v1/metrics", **options)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    views = [
        View(instrument_name="*wait", aggregation=ExplicitBucketHistogramAggregation([0.5, 2]))
    ]
    provider = MeterProvider([reader], resource=RESOURCE, views=views)
    try:
        yield provider
    finally:
        reader._shutdown = True  # nothing more is exported
        provider._atexit_handler = None


async def exported(
    record: Callable[[MeterProvider], object], **options: Any
) -> dict[str, list[Message]]:
    """Return the messages of what is recorded, and exported twice, by name."""
    sink = Gate()
    async with running(sink) as client:
        with metrics_of(client, **options) as provider:
            for _ in range(2):
                record(provider)
                assert await asyncio.to_thread(provider.force_flush)
    found: dict[str, list[Message]] = {}
    for each in sink.written:
        assert abs(each.time - time.time_ns()) < 600 * 10**9
        found.setdefault(each.name, []).append(each)
    return found


def record(provider: MeterProvider) -> None:
    meter = provider.get_meter("test")
    meter.create_counter("read", unit="By").add(5, {"disk": "sda", "raid": True})
    meter.create_up_down_counter("open").add(-2)
    meter.create_gauge("load").set(0.5)
    for seconds in (0.25, 1.0, 7.0):
        meter.create_histogram("wait", unit="s").record(seconds)


async def test_source_stores_metrics_of_sdk() -> None:
    """Counters, gauges and histograms, which are cumulative by default."""
    found = await exported(record)
    tags = TAGS | {"disk": "sda", "raid": "true", "unit": "By"}
    assert [(m.tags, m.value) for m in found["read"]] == [(tags, 5), (tags, 10)]
    assert [(m.tags, m.value) for m in found["open"]] == [(TAGS, -2), (TAGS, -4)]
    assert [m.value for m in found["load"]] == [0.5, 0.5]
    assert [(m.tags["le"], m.value) for m in found["wait_bucket"]] == [
        ("0.5", 1), ("2", 2), ("+Inf", 3), ("0.5", 2), ("2", 4), ("+Inf", 6),
    ]  # fmt: skip
    assert [m.value for m in found["wait_count"]] == [3, 6]
    assert [(m.tags, m.value) for m in found["wait_sum"]] == [
        (TAGS | {"unit": "s"}, 8.25), (TAGS | {"unit": "s"}, 16.5),
    ]  # fmt: skip


async def test_increases_have_tag_of_their_own() -> None:
    """With delta temporality a value is the increase since the one before."""
    delta = {Counter: AggregationTemporality.DELTA, Histogram: AggregationTemporality.DELTA}
    found = await exported(record, preferred_temporality=delta)
    assert [(m.tags.get("temporality"), m.value) for m in found["read"]] == [("delta", 5)] * 2
    assert [(m.tags.get("temporality"), m.value) for m in found["wait_count"]] == [("delta", 3)] * 2
    assert [m.tags.get("temporality") for m in found["open"]] == [None, None]


@pytest.mark.parametrize("compression", [Compression.Gzip, Compression.Deflate])
async def test_source_reads_compressed_requests_of_sdk(compression: Compression) -> None:
    assert (await exported(record, compression=compression)).keys() > {"read", "wait_bucket"}


async def test_sdk_repeats_request_that_was_not_stored_in_time() -> None:
    """It is answered with 503 and ``Retry-After``."""
    sink = Gate(open=False)
    async with running(sink, timeout=Duration(1)) as client:
        with metrics_of(client) as provider:
            provider.get_meter("test").create_gauge("load").set(0.5)
            flush = asyncio.create_task(asyncio.to_thread(provider.force_flush))
            await eventually(lambda: client.source.held > 0)
            await eventually(lambda: client.source.held == 0)
            client.source.timeout = 60
            sink.open.set()
            assert await flush
    assert {each.value for each in sink.written} == {0.5}


async def test_source_stores_logs_of_sdk() -> None:
    """With level, component and the attributes that are wanted."""
    sink = Gate()
    async with running(sink, otlp_tags=["job.id"]) as client:
        exporter = OTLPLogExporter(endpoint=f"{client.url}/v1/logs")
        provider = LoggerProvider(RESOURCE, shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        record = LogRecord(
            timestamp=NOON,
            severity_number=SeverityNumber.WARN,
            body="disk is slow",
            attributes={"job.id": 7, "line": 12},
        )
        await asyncio.to_thread(provider.get_logger("io").emit, record)
        await eventually(lambda: bool(sink.written))
        await asyncio.to_thread(provider.shutdown)
    (found,) = sink.written
    tags = {"cluster": "fox", "hostname": "n1", "job.id": "7", "loglevel": "warn", "type": "node"}
    assert found == Message("solver", tags, "disk is slow", NOON, "log")
    assert found.problems() == []


async def test_200_means_stored_by_broker(tmp_path: Path) -> None:
    """With the shipped recipe, which gives metrics of applications a type."""
    broker = NatsServer(tmp_path / "nats", port=free_port())
    site = Site(cluster="fox.test", bus=Bus(servers=[broker.url]))
    listen = f"127.0.0.1:{free_port()}"
    body = MetricsEncoder().encode(to_lines([Message("wait", {"hostname": "n1"}, 1.5, NOON)]))
    async with (
        broker,
        bridge("from-otlp.toml", site, listen) as url,
        aiohttp.ClientSession(headers=PROTOBUF) as session,
    ):
        async with session.post(f"{url}/v1/metrics", data=body) as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        (kept,) = await stored_lines(broker)
    assert kept == Message("wait", {"hostname": "n1", "type": "node"}, 1.5, NOON)


async def test_response_waits_until_points_are_stored() -> None:
    sink = Gate(open=False)
    async with running(sink) as client:
        posting = asyncio.create_task(client.post(BODY, "/v1/metrics", headers=PROTOBUF))
        await eventually(lambda: client.source.held == len(BODY))
        await asyncio.sleep(0.1)
        assert not posting.done()
        sink.open.set()
        assert await posting == (200, "")
    assert sink.written == [metric(1.5)]


async def test_bad_points_are_counted_in_response() -> None:
    """The others are stored; of many, the first reasons are named."""
    bad = message(1, message(2, message(2, message(1, b"m") + message(5, message(1, b"") * 20))))
    sink = Gate()
    async with running(sink) as client:
        url = f"{client.url}/v1/metrics"
        async with client.session.post(url, data=BODY + bad, headers=PROTOBUF) as answer:
            assert (answer.status, answer.content_type) == (200, PROTOBUF["Content-Type"])
            partial = decode_response(await answer.read())
    assert partial.rejected == 20
    assert partial.reason == "; ".join(["'m': the data point has no value"] * 10)
    assert sink.written == [metric(1.5)]


async def test_bad_points_are_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    """Also without a good one: a client does not send them again."""
    bad = message(1, message(2, message(2, message(1, b"m") + message(5, message(1, b"")))))
    async with running(Gate()) as client:
        assert (await client.post(bad, "/v1/metrics", headers=PROTOBUF))[0] == 200
    expected = "dead letter from http://127.0.0.1/v1/metrics: 'm': the data point has no value: m "
    assert expected in caplog.messages


async def test_source_refuses_what_is_not_a_request() -> None:
    """With the reason in protobuf; JSON is not supported. What decompresses to much is not read."""
    gzipped = PROTOBUF | {"Content-Encoding": "gzip"}
    json = {"Content-Type": "application/json"}
    sink = Gate()
    async with running(sink, max_body_bytes=Size(100_000)) as client:
        for body, headers, status, reason in (
            (b"<html>", PROTOBUF, 400, "not a protobuf message"),
            (BODY[:-1], PROTOBUF, 400, "cut off"),
            (b"{}", json, 415, "expected application/x-protobuf"),
            (gzip.compress(b"\0" * 50_000_000), gzipped, 413, "more than 100000 bytes"),
            (BODY, gzipped, 400, "not decompressed"),
        ):
            for path in ("/v1/metrics", "/v1/logs"):
                url = client.url + path
                async with client.session.post(url, data=body, headers=headers) as answer:
                    assert answer.status == status
                    assert reason in decode_status(await answer.read())
        assert (await client.post(BODY, "/v1/traces", headers=PROTOBUF))[0] == 404
    assert sink.written == []


async def test_source_stores_large_request() -> None:
    """It is decoded in a thread."""
    sent = [metric(float(number), n=f"{number:05}") for number in range(25_000)]
    body = MetricsEncoder().encode(to_lines(sent))
    assert len(body) > MAX_BYTES_AT_ONCE
    sink = Gate()
    async with running(sink) as client:
        for sent_bytes, status in ((body, 200), (body[:-1], 400)):
            packed, headers = gzip.compress(sent_bytes), {**PROTOBUF, "Content-Encoding": "gzip"}
            assert (await client.post(packed, "/v1/metrics", headers=headers))[0] == status
    assert sink.written == sent


async def test_source_checks_cluster_of_points_and_of_logs(tmp_path: Path) -> None:
    """Those without one are of the bridge's."""
    (tmp_path / "token").write_text("t0k3n\n")
    headers = PROTOBUF | {"Authorization": "Bearer t0k3n"}
    foreign = MetricsEncoder().encode(to_lines([metric(1.5, cluster="alex")]))
    resource = message(1, message(1, attribute("hpc.cluster.name", "alex")))
    log = message(1, resource + message(2, message(2, b"")))
    sink = Gate()
    async with running(sink, token_file=str(tmp_path / "token")) as client:
        assert (await client.post(BODY, "/v1/metrics", headers=PROTOBUF))[0] == 401
        assert (await client.post(foreign, "/v1/metrics", headers=headers))[0] == 403
        assert (await client.post(log, "/v1/logs", headers=headers))[0] == 403
        assert (await client.post(BODY, "/v1/metrics", headers=headers))[0] == 200
    assert sink.written == [metric(1.5)]


@given(st.lists(st.builds(
    Message,
    NAMES,
    st.dictionaries(NAMES | st.sampled_from(["hostname", "cluster"]), NAMES, max_size=3),
    SIGNED,
    st.integers(1, 2**63 - 1),
), max_size=20))  # fmt: skip
@settings(max_examples=10)
async def test_metrics_return_from_our_sink_as_they_were(messages: list[Message]) -> None:
    """Over HTTP, compressed: nothing is lost or changed."""
    gate = Gate()
    async with running(gate) as client:
        assert await carry(Given(to_lines(messages)), OtlpSink(url=client.url)) == []
    assert sorted(map(repr, gate.written)) == sorted(map(repr, to_lines(messages)))
