"""OpenTelemetry's generated classes, which read what we write."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)


class Point(NamedTuple):
    """A data point as OpenTelemetry's classes see it."""

    resource: dict[str, str]
    kind: str
    name: str
    attributes: dict[str, str]
    time: int
    value: float


def read(body: bytes) -> list[Point]:
    """Return the data points of a request, in order."""
    return list(_points(ExportMetricsServiceRequest.FromString(body)))


def _points(request: Any) -> Iterator[Point]:
    for group in request.resource_metrics:
        resource = _texts(group.resource.attributes)
        for metric in (each for scope in group.scope_metrics for each in scope.metrics):
            kind = metric.WhichOneof("data")
            for point in getattr(metric, kind).data_points:
                value = getattr(point, point.WhichOneof("value"))
                attributes = _texts(point.attributes)
                time = point.time_unix_nano
                yield Point(resource, kind, metric.name, attributes, time, value)


def _texts(attributes: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in attributes}
