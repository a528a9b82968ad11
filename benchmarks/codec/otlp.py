"""OpenTelemetry's requests, encoded and decoded by ccpipe and by its generated classes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.otlp.decoder import MetricsDecoder
from ccpipe.formats.otlp.encoder import MetricsEncoder
from ccpipe.message import Message


def contenders(lines: Lines) -> dict[str, Callable[[], object]]:
    """Return what is measured, each a function of no arguments, for the same points."""
    messages = list(lines)
    body = MetricsEncoder().encode(lines)
    assert points_of(body) == points_of(by_generated_classes(messages)) == len(lines)
    return {
        "columns → OpenTelemetry": partial(MetricsEncoder().encode, lines),
        "messages → OpenTelemetry, generated classes": partial(by_generated_classes, messages),
        "OpenTelemetry → columns": partial(MetricsDecoder().decode, body, 0),
        "OpenTelemetry → texts and numbers, generated classes": partial(read_points, body),
    }


def by_generated_classes(messages: list[Message]) -> bytes:
    """Encode messages, grouped as ours are."""
    request = ExportMetricsServiceRequest()
    resources: dict[tuple[str, str], Any] = {}
    metrics: dict[tuple[str, str, str], Any] = {}
    for each in messages:
        host, cluster = each.tags.get("hostname", ""), each.tags.get("cluster", "")
        points = metrics.get((host, cluster, each.name))
        if points is None:
            scope = resources.get((host, cluster))
            if scope is None:
                resource = request.resource_metrics.add()
                for key, text in (("host.name", host), ("hpc.cluster.name", cluster)):
                    add_attribute(resource.resource.attributes, key, text)
                scope = resources[host, cluster] = resource.scope_metrics.add()
            metric = scope.metrics.add()
            metric.name = each.name
            points = metrics[host, cluster, each.name] = metric.gauge.data_points
        point = points.add()
        point.time_unix_nano = each.time
        if isinstance(each.value, float):
            point.as_double = each.value
        else:
            point.as_int = each.value
        for key, text in each.tags.items():
            if key not in ("hostname", "cluster"):
                add_attribute(point.attributes, key, text)
    return bytes(request.SerializeToString())


def add_attribute(attributes: Any, key: str, text: str) -> None:
    attribute = attributes.add()
    attribute.key = key
    attribute.value.string_value = text


def read_points(body: bytes) -> list[tuple[str, dict[str, str], float, int]]:
    """Read the points as Python's objects."""
    found = []
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        tags = {each.key: each.value.string_value for each in resource.resource.attributes}
        for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
            for point in metric.gauge.data_points:
                own = {each.key: each.value.string_value for each in point.attributes}
                value = point.as_int if point.HasField("as_int") else point.as_double
                found.append((metric.name, {**tags, **own}, value, point.time_unix_nano))
    return found


def points_of(body: bytes) -> int:
    return len(read_points(body))
