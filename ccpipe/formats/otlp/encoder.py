"""``Lines`` to the body of an ``ExportMetricsServiceRequest``.

::

    ExportMetricsServiceRequest { repeated ResourceMetrics resource_metrics = 1; }
    ResourceMetrics { Resource resource = 1; repeated ScopeMetrics scope_metrics = 2; }
    Resource        { repeated KeyValue attributes = 1; }
    ScopeMetrics    { InstrumentationScope scope = 1; repeated Metric metrics = 2; }
    Metric          { string name = 1; oneof { Gauge gauge = 5; Sum sum = 7; } }
    Gauge           { repeated NumberDataPoint data_points = 1; }
    Sum             { repeated NumberDataPoint data_points = 1;
                      AggregationTemporality aggregation_temporality = 2; bool is_monotonic = 3; }
    NumberDataPoint { fixed64 time_unix_nano = 3; repeated KeyValue attributes = 7;
                      oneof { double as_double = 4; sfixed64 as_int = 6; } }
    KeyValue        { string key = 1; AnyValue value = 2; }
    AnyValue        { string string_value = 1; … }
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import itemgetter, le
from typing import Any, NamedTuple, TypeAlias

from ccpipe import __version__
from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.formats.otlp import CLUSTER, CUMULATIVE, HOST, OWN_SERVICE, SERVICE
from ccpipe.formats.protobuf import message, varint

MAX_CACHED = 200_000
"""Maximum number of series whose attributes are cached."""

_FLOAT_VALUE, _INT_VALUE = struct.Struct("<QBd").pack, struct.Struct("<QBq").pack
_AS_DOUBLE, _AS_INT = 0x21, 0x31
_NUMBER_SIZE = 1 + 8 + 1 + 8
_FLOAT, _UINT, _TEXT = int(ValueType.FLOAT), int(ValueType.UINT), int(ValueType.TEXT)
_OF_RESOURCE = {"hostname": HOST, "cluster": CLUSTER}
"""Attributes of the resource, by tag."""
_SCOPE = message(1, message(1, b"ccpipe") + message(2, __version__.encode()))
_CUMULATIVE_MONOTONIC = bytes([0x10, CUMULATIVE, 0x18, 1])


class _Metric(NamedTuple):
    """The metric of data points."""

    resource: bytes
    """The encoded message."""
    name: str


_Point: TypeAlias = tuple[int, bytes, bytes]
"""The code of the metric of a data point, the bytes before its time, and its attributes."""


class MetricsEncoder:
    """Encodes requests; caches the attributes of series."""

    def __init__(self, is_counter: Callable[[str], object] = lambda _: False) -> None:
        """Send metrics whose name `is_counter` as monotonic cumulative sums, others as gauges."""
        self._is_counter = is_counter
        self._table: SeriesTable | None = None
        self._points: dict[int | None, dict[Any, _Point]] = {}
        """By the codes of field and series in the table; for None by those of series and field."""
        self._cached = 0
        """Number of all of them."""
        self._metrics: dict[_Metric, int] = {}
        """Codes of metrics."""

    def encode(self, lines: Lines) -> bytes:
        """Encode the numbers of `lines`, grouped by host and metric, in the order of their times.

        The name of a metric is its measurement, plus its field unless that is ``value``. Booleans
        are 0 and 1, integers beyond 63 bits doubles; texts are omitted. Raises EncodeError if a
        row has no time, or one before 1970, which OTLP cannot represent.
        """
        if len(lines) and min(lines.times) <= 0:
            raise EncodeError("OpenTelemetry has no times before 1970, and no points without time")
        if self._table is not lines.table or self._cached > MAX_CACHED:
            self._table, self._points, self._metrics, self._cached = lines.table, {}, {}, 0
        found = self._data_points(lines)
        metrics = list(self._metrics)
        resources = defaultdict[bytes, list[bytes]](list)
        for code, parts in found.items():
            resource, name = metrics[code]
            resources[resource].append(self._metric(name, b"".join(parts)))
        return b"".join(
            message(1, resource + message(2, _SCOPE + b"".join(own)))
            for resource, own in resources.items()
        )

    def _data_points(self, lines: Lines) -> dict[int, list[bytes]]:
        """Return the parts of the encoded data points of each metric, by its code."""
        only, found = lines.only_field, defaultdict[int, list[bytes]](list)
        # Series alone are cheaper keys than pairs; most lines have one field.
        keys: Iterable[Any] = lines.series if only is not None else _pairs(lines)
        points = self._points.setdefault(only, {})
        for time, key, kind, number, exact in _by_time(lines, keys):
            known = points.get(key)
            if known is None:
                pair = key if only is None else (key, only)
                known = points[key] = self._point(*pair)
            metric, head, tail = known
            if kind == _FLOAT or (kind == _UINT and exact < 0):
                value = _FLOAT_VALUE(time, _AS_DOUBLE, number)
            elif kind != _TEXT:
                value = _INT_VALUE(time, _AS_INT, exact)
            else:
                continue
            found[metric] += head, value, tail
        return found

    def _point(self, code: int, field: int) -> _Point:
        assert self._table is not None
        series = self._table.series[code]
        attributes = b"".join(
            message(7, attribute(key, text))
            for key, text in series.tags.items()
            if key not in _OF_RESOURCE
        )
        own = tuple(series.tags.get(tag, "") for tag in _OF_RESOURCE)
        metric = _Metric(_resource(*own), metric_name(series, self._table.fields[field]))
        number = self._metrics.setdefault(metric, len(self._metrics))
        head = b"\x0a" + varint(_NUMBER_SIZE + len(attributes)) + b"\x19"
        self._cached += 1
        return number, head, attributes

    def _metric(self, name: str, points: bytes) -> bytes:
        if self._is_counter(name):
            data = message(7, points + _CUMULATIVE_MONOTONIC)
        else:
            data = message(5, points)
        return message(2, message(1, name.encode()) + data)


def _pairs(lines: Lines) -> Iterable[tuple[int, int]]:
    return zip(lines.series, lines.fields, strict=True)


def _by_time(lines: Lines, keys: Iterable[Any]) -> Iterable[tuple[int, Any, int, float, int]]:
    """Return time, key and cells of the rows; Prometheus rejects a late point of a series."""
    times = lines.times
    rows = zip(times, keys, lines.types, lines.numbers, lines.exact, strict=True)
    return rows if all(map(le, times, times[1:])) else sorted(rows, key=itemgetter(0))


def metric_name(series: Series, field: str) -> str:
    """Return the name of the metric of a series and a field."""
    return series.name if field == "value" else f"{series.name}_{field}"


def attribute(key: str, text: str) -> bytes:
    """Encode a ``KeyValue``."""
    return message(1, key.encode()) + message(2, message(1, text.encode()))


@lru_cache(1024)
def _resource(*own: str) -> bytes:
    """Encode the resource with these tags of ``_OF_RESOURCE``, an empty one being absent."""
    attributes = {SERVICE: OWN_SERVICE}
    attributes |= {key: text for key, text in zip(_OF_RESOURCE.values(), own, strict=True) if text}
    return message(1, b"".join(message(1, attribute(*pair)) for pair in attributes.items()))
