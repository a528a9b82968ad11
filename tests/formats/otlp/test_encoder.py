"""Requests of metrics, read by OpenTelemetry's own classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import SeriesTable, decode, to_lines
from ccpipe.formats.lineprotocol.decoder import decode_in_python
from ccpipe.formats.otlp import encoder
from ccpipe.formats.otlp.encoder import MetricsEncoder
from ccpipe.message import Message, Uint
from tests.formats.otlp.oracle import Point, read

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200).filter(
    lambda text: text[-1] != "\\" and text[0] != "#"
)
SIGNED = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1)
NUMBERS = SIGNED | st.integers(0, 2**63 - 1).map(Uint) | st.booleans()


@given(st.lists(st.builds(
    Message,
    NAMES,
    st.dictionaries(NAMES | st.sampled_from(["hostname", "cluster"]), NAMES, max_size=3),
    NUMBERS,
    st.integers(1, 2**63 - 1),
    st.just("value") | NAMES,
), max_size=20))  # fmt: skip
def test_request_has_each_number_with_its_name_tags_and_time(messages: list[Message]) -> None:
    """Whatever the order and the names; host and cluster are attributes of the resource."""
    found = {
        (
            point.resource.get("host.name"),
            point.resource.get("hpc.cluster.name"),
            point.name,
            tuple(sorted(point.attributes.items())),
            point.time,
            point.value,
        )
        for point in read(MetricsEncoder().encode(to_lines(messages)))
    }
    assert found == {
        (
            m.tags.get("hostname"),
            m.tags.get("cluster"),
            m.name if m.field == "value" else f"{m.name}_{m.field}",
            tuple(sorted((k, v) for k, v in m.tags.items() if k not in ("hostname", "cluster"))),
            m.time,
            m.value,
        )
        for m in messages
    }


def test_request_groups_points_by_host_and_metric_in_order_of_time() -> None:
    """As few resources and metrics as there are; a receiver may reject late points of a series."""
    lines = decode(
        b"load,hostname=n1,type=node value=2.5 1740027952\n"
        b"load,hostname=n2,type=node value=1i 1740027951\n"
        b'slurm,hostname=n2 log="x" 1740027951\n'
        b"mem,hostname=n1,unit=GB value=7u,free=t 1740027951\n"
        b"load,hostname=n1,type=node value=1.5 1740027951\n"
    )
    body = MetricsEncoder().encode(lines)
    n1, n2 = ({"service.name": "ccpipe", "host.name": name} for name in ("n1", "n2"))
    at = 1740027951 * 10**9
    node, unit = {"type": "node"}, {"unit": "GB"}
    assert read(body) == [
        Point(n2, "gauge", "load", node, at, 1),
        Point(n1, "gauge", "mem", unit, at, 7),
        Point(n1, "gauge", "mem_free", unit, at, 1),
        Point(n1, "gauge", "load", node, at, 1.5),
        Point(n1, "gauge", "load", node, at + 10**9, 2.5),
    ]
    request = ExportMetricsServiceRequest.FromString(body)
    assert [len(each.scope_metrics[0].metrics) for each in request.resource_metrics] == [1, 3]
    assert request.resource_metrics[0].scope_metrics[0].scope.name == "ccpipe"


def test_counter_is_monotonic_cumulative_sum() -> None:
    """Only the metrics that are known to be one."""
    lines = decode(b"rx_total,hostname=n1 value=5i 1\nload,hostname=n1 value=5i 1\n")
    body = MetricsEncoder(lambda name: name.endswith("_total")).encode(lines)
    assert [(point.name, point.kind) for point in read(body)] == [
        ("rx_total", "sum"), ("load", "gauge"),
    ]  # fmt: skip
    metric = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0]
    total = metric.metrics[0].sum
    assert (total.is_monotonic, total.aggregation_temporality) == (True, 2)


def test_integer_beyond_63_bits_is_double() -> None:
    lines = to_lines([Message("m", {}, Uint(2**63), 1)])
    assert read(MetricsEncoder().encode(lines))[0].value == float(2**63)


@pytest.mark.parametrize("line", [b"m value=1", b"m value=1 -5", b"m value=1 0"])
def test_encoder_rejects_time_that_otlp_cannot_represent(line: bytes) -> None:
    """Times are unsigned, and 0 means unknown."""
    with pytest.raises(EncodeError, match="before 1970"):
        MetricsEncoder().encode(decode(line))


def test_cache_of_attributes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Job ids in tags do not let it grow without limit."""
    monkeypatch.setattr(encoder, "MAX_CACHED", 10)
    metrics = MetricsEncoder()
    for job in range(100):
        metrics.encode(decode(b"m%d,job=%d v=1 1" % (job, job)))
        assert sum(map(len, metrics._points.values())) <= 11
        assert len(metrics._metrics) <= 11


def test_cache_of_attributes_belongs_to_table_of_lines() -> None:
    """The same code means another series in another table."""
    metrics = MetricsEncoder()
    first, second = (
        decode_in_python(text, SeriesTable(), "s", False) for text in (b"a v=1 1", b"b v=1 1")
    )
    for lines in (first, second, first):
        assert metrics.encode(lines) == MetricsEncoder().encode(lines)
    assert metrics.encode(first) != metrics.encode(second)
