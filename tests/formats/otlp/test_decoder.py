"""Requests of metrics, written by OpenTelemetry's own classes or by ours, and damaged ones."""

import json
import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest as Request,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, NumberDataPoint

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.lineprotocol.series import check_name, valid_tag
from ccpipe.formats.otlp import decoder, rows
from ccpipe.formats.otlp.decoder import MetricsDecoder
from ccpipe.formats.otlp.encoder import MetricsEncoder
from ccpipe.formats.protobuf import message
from ccpipe.message import Message
from tests.formats.otlp.test_encoder import NAMES, SIGNED

NOW = 1740052800 * 10**9
DELTA, CUMULATIVE = 1, 2

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.one_of(
    st.builds(AnyValue, string_value=TEXTS),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, double_value=st.floats(allow_nan=False, allow_infinity=False)),
    st.just(AnyValue()),
)
TIMES = st.integers(0, 2**64 - 1) | st.just(NOW)


@st.composite
def attributes(draw: st.DrawFn) -> list[KeyValue]:
    keys = draw(st.lists(st.sampled_from(["a", "b-c", "é", "host.name", ""]), unique=True))
    return [KeyValue(key=key, value=draw(VALUES)) for key in keys]


@st.composite
def number_points(draw: st.DrawFn) -> bytes:
    """Return a point whose fields are in any order, as a writer may have them."""
    parts = [
        NumberDataPoint(start_time_unix_nano=draw(TIMES)),
        NumberDataPoint(time_unix_nano=draw(TIMES)),
        NumberDataPoint(flags=draw(st.integers(0, 3))),
        *(NumberDataPoint(attributes=[each]) for each in draw(attributes())),
    ]
    if draw(st.booleans()):
        parts.append(NumberDataPoint(as_double=draw(st.floats())))
    if draw(st.booleans()):
        parts.append(NumberDataPoint(as_int=draw(st.integers(-(2**63), 2**63 - 1))))
    if draw(st.booleans()):
        parts.sort(key=lambda part: part.ListFields()[0][0].number if part.ListFields() else 0)
    else:
        parts = draw(st.permutations(parts))
    return b"".join(part.SerializeToString() for part in parts)


@st.composite
def histogram_points(draw: st.DrawFn) -> bytes:
    bounds = draw(st.lists(st.floats(-10, 10), max_size=3))
    size = draw(st.just(len(bounds) + 1) | st.integers(0, 4))
    point = HistogramDataPoint(
        time_unix_nano=draw(TIMES),
        count=draw(st.integers(0, 2**64 - 1) | st.integers(0, 9)),
        bucket_counts=draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)),
        explicit_bounds=sorted(bounds) if draw(st.booleans()) else bounds,
        attributes=draw(attributes()),
        flags=draw(st.integers(0, 3)),
    )
    if draw(st.booleans()):
        point.sum = draw(st.floats())
    return bytes(point.SerializeToString())


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Return a request of one metric, with points of which some are bad."""
    field = draw(st.sampled_from([5, 7, 9]))
    points = draw(st.lists(histogram_points() if field == 9 else number_points(), max_size=4))
    data = b"".join(message(1, point) for point in points * 2)  # the second ones are cached
    if field != 5:
        data += bytes([0x10, draw(st.sampled_from([0, DELTA, CUMULATIVE]))])
    name, unit = draw(TEXTS), draw(TEXTS)
    metric = Metric(name=name, unit=unit).SerializeToString() + message(field, data)
    resource = b"".join(message(1, each.SerializeToString()) for each in draw(attributes()))
    return message(1, message(1, resource) + message(2, message(2, metric)))


Row = tuple[str, dict[str, str], float, int]


def expected(body: bytes) -> tuple[list[Row], int]:
    """Return the rows that OpenTelemetry's classes read, and the number of bad points."""
    found: list[Row] = []
    bad = 0
    for group in Request.FromString(body).resource_metrics:
        resource = texts(group.resource.attributes)
        tags = {"hostname": resource["host.name"]} if "host.name" in resource else {}
        for metric in (each for scope in group.scope_metrics for each in scope.metrics):
            data = getattr(metric, metric.WhichOneof("data"))
            own = tags | {"unit": metric.unit}
            if getattr(data, "aggregation_temporality", 0) == DELTA:
                own["temporality"] = "delta"
            for point in data.data_points:
                try:
                    found += list(rows_of(metric.name, own | texts(point.attributes), point))
                except (ValueError, EncodeError):
                    bad += 1
    return found, bad


def texts(attributes: Any) -> dict[str, str]:
    found = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind) if kind else ""
        text = value if isinstance(value, str) else json.dumps(value)
        if text:
            found[each.key] = text
    return found


def rows_of(name: str, tags: dict[str, str], point: Any) -> Iterator[Row]:
    """Return the rows of a data point; raises an error if it is bad."""
    if point.flags & 1:
        return iter(())
    check_name(name)
    tags = {key: valid_tag(text) for key, text in tags.items() if text}
    for key in tags:
        check_name(key)
    if name.startswith("#") or point.time_unix_nano >= 2**63:
        raise ValueError
    time = point.time_unix_nano or NOW
    if isinstance(point, NumberDataPoint):
        value = getattr(point, point.WhichOneof("value") or "missing", math.nan)
        if not math.isfinite(value):
            raise ValueError
        return iter([(name, tags, value, time)])
    return iter(list(histogram_rows(name, tags, point, time)))


def histogram_rows(name: str, tags: dict[str, str], point: Any, time: int) -> Iterator[Row]:
    bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
    if len(counts) != (len(bounds) + 1 if counts or bounds else 0):
        raise ValueError
    if sorted(set(bounds)) != bounds or point.count >= 2**63:
        raise ValueError
    if point.HasField("sum") and not math.isfinite(point.sum):
        raise ValueError
    limits = [repr(bound).removesuffix(".0") for bound in bounds]
    for limit, count in zip(limits, accumulate(counts[:-1]), strict=True):
        yield f"{name}_bucket", tags | {"le": limit}, count, time
    yield f"{name}_bucket", tags | {"le": "+Inf"}, point.count, time
    yield f"{name}_count", tags, point.count, time
    if point.HasField("sum"):
        yield f"{name}_sum", tags, point.sum, time


@given(st.lists(requests(), max_size=3))
def test_decoder_reads_what_generated_classes_read(bodies: list[bytes]) -> None:
    """Gauges, sums and histograms, fields in any order; bad points are left out and counted."""
    metrics = MetricsDecoder()
    for body in [*bodies, b"".join(bodies)]:
        found = metrics.decode(body, NOW)
        read = [(m.name, dict(m.tags), m.value, m.time) for m in found.lines]
        assert (read, found.rejected) == expected(body)
        assert len(found.lines.rejected) == found.rejected


@given(st.lists(st.builds(
    Message,
    NAMES,
    st.dictionaries(NAMES | st.sampled_from(["hostname", "cluster"]), NAMES, max_size=3),
    SIGNED,
    st.integers(1, 2**63 - 1),
), max_size=20))  # fmt: skip
def test_metrics_that_were_sent_return_as_they_were(messages: list[Message]) -> None:
    """Names, tags, values and nanoseconds; booleans and unsigned integers are sent as integers."""
    found = MetricsDecoder().decode(MetricsEncoder().encode(to_lines(messages)), NOW)
    assert sorted(map(repr, found.lines)) == sorted(map(repr, to_lines(messages)))
    assert found.rejected == 0


@given(st.binary(max_size=100), requests(), st.data())
def test_decoder_reads_or_refuses_any_bytes(junk: bytes, body: bytes, data: st.DataObject) -> None:
    """Random ones, and requests that are cut or damaged."""
    where = data.draw(st.integers(0, len(body)))
    for damaged in (junk, body[:where], body[:where] + junk + body[where + 1 :]):
        try:
            found = MetricsDecoder().decode(damaged, NOW)
        except DataError as error:
            assert str(error)  # noqa: PT017 - some bytes are a request
        else:
            assert all(message.time is not None for message in found.lines)


def one_metric(data: bytes, name: bytes = b"m") -> bytes:
    return message(1, message(2, message(2, message(1, name) + data)))


def test_resource_has_tags_that_are_wanted() -> None:
    """Host and cluster always; of ours not the service, so that metrics return unchanged."""
    attributes = {"host.name": "n1", "hpc.cluster.name": "fox", "service.name": "solver", "x": "y"}
    resource = b"".join(
        message(1, KeyValue(key=key, value=AnyValue(string_value=text)).SerializeToString())
        for key, text in attributes.items()
    )
    point = message(1, NumberDataPoint(time_unix_nano=1, as_int=1).SerializeToString())
    metric = message(2, message(2, message(1, b"m") + message(5, point)))
    body = message(1, message(1, resource) + metric)
    tags = {"hostname": "n1", "cluster": "fox"}
    assert MetricsDecoder().decode(body, NOW).lines[0].tags == tags | {"service.name": "solver"}
    assert MetricsDecoder(["x"]).decode(body, NOW).lines[0].tags == tags | {"x": "y"}


def test_unsupported_kind_is_rejected_by_name() -> None:
    body = one_metric(message(10, message(1, b"") * 2)) + one_metric(message(11, message(1, b"")))
    found = MetricsDecoder().decode(body, NOW)
    assert found.rejected == 3
    assert [each.reason for each in found.lines.rejected] == [
        "'m': an exponential histogram is not supported"
    ] * 2 + ["'m': a summary is not supported"]


def test_rejected_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point can be two bytes: of many bad ones the first are kept, of too many none is read."""
    monkeypatch.setattr(rows, "MAX_KEPT", 10)
    monkeypatch.setattr(rows, "MAX_REJECTED", 1000)
    found = MetricsDecoder().decode(one_metric(message(5, message(1, b"") * 1000)), NOW)
    assert (found.rejected, len(found.lines.rejected)) == (1000, 10)
    with pytest.raises(DataError, match="more than 1000 are bad, as 'm': .* has no value"):
        MetricsDecoder().decode(one_metric(message(5, message(1, b"") * 1001)), NOW)


def test_number_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resources, scopes and metrics can be two bytes each."""
    monkeypatch.setattr(rows, "MAX_MESSAGES", 100)
    resources, scopes = b"\x0a\x00" * 100, message(1, b"\x12\x00" * 99)
    metrics = message(1, message(2, b"\x12\x00" * 98))
    for body in (resources, scopes, metrics):
        assert len(MetricsDecoder().decode(body, NOW).lines) == 0
        with pytest.raises(DataError, match="more than 100 resources, scopes and metrics"):
            MetricsDecoder().decode(body + b"\x0a\x00", NOW)


def test_histogram_has_bounded_number_of_buckets() -> None:
    """Each is a series."""
    for size, rejected in ((1000, 0), (1001, 1)):
        point = HistogramDataPoint(bucket_counts=[1] * size, explicit_bounds=range(size - 1))
        data = message(9, message(1, point.SerializeToString()))
        found = MetricsDecoder().decode(one_metric(data), NOW)
        assert found.rejected == rejected


def test_cache_of_attributes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes that differ each time, and exemplars, do not let it grow without limit."""
    monkeypatch.setattr(decoder, "MAX_CACHE_BYTES", 10_000)
    metrics = MetricsDecoder()
    for number in range(1000):
        value = AnyValue(string_value=f"{number:0100}")
        point = NumberDataPoint(
            time_unix_nano=1, as_int=1, attributes=[KeyValue(key="a", value=value)]
        )
        metrics.decode(one_metric(message(5, message(1, point.SerializeToString()))), NOW)
        assert sum(len(codes) for codes in metrics._codes.values()) <= 100


def test_array_has_bounded_size() -> None:
    """An element can be two bytes, and takes far more in memory."""
    for size, rejected in ((2**15, 0), (2**15 + 1, 1)):
        value = message(2, message(5, b"\x0a\x00" * size))
        point = message(7, message(1, b"a") + value) + b"\x31" + bytes(8)
        found = MetricsDecoder().decode(one_metric(message(5, message(1, point))), NOW)
        assert found.rejected == rejected


def test_value_may_have_few_levels() -> None:
    """Arrays and maps are written as JSON; a deep one is bad, and costs no stack."""
    nested = AnyValue(string_value="x").SerializeToString()
    for _ in range(5000):
        nested = message(5, message(1, nested))
    point = message(7, message(1, b"deep") + message(2, nested)) + b"\x31" + bytes(8)
    good = AnyValue()
    good.kvlist_value.values.append(KeyValue(key="a", value=AnyValue(int_value=1)))
    good.kvlist_value.values.append(KeyValue(key="b", value=AnyValue(bytes_value=b"\xff")))
    flat = NumberDataPoint(as_int=1, attributes=[KeyValue(key="map", value=good)])
    data = message(1, point) + message(1, flat.SerializeToString())
    found = MetricsDecoder().decode(one_metric(message(5, data)), NOW)
    assert [each.reason for each in found.lines.rejected] == [
        "'m': a value has more than 16 levels"
    ]
    assert found.lines[0].tags == {"map": '{"a": 1, "b": "/w=="}'}
