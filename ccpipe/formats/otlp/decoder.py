"""The body of an ``ExportMetricsServiceRequest`` to ``Lines``.

See ``encoder.py`` for the messages around a metric. Only the fields named here are read::

    Metric    { string name = 1; string unit = 3; oneof { Gauge gauge = 5; Sum sum = 7;
                Histogram histogram = 9; ExponentialHistogram = 10; Summary = 11; } }
    Histogram { repeated HistogramDataPoint data_points = 1;
                AggregationTemporality aggregation_temporality = 2; }
    NumberDataPoint    { fixed64 start_time_unix_nano = 2; fixed64 time_unix_nano = 3;
                         oneof { double as_double = 4; sfixed64 as_int = 6; }
                         repeated KeyValue attributes = 7; uint32 flags = 8; }
    HistogramDataPoint { fixed64 time_unix_nano = 3; fixed64 count = 4; optional double sum = 5;
                         repeated fixed64 bucket_counts = 6; repeated double explicit_bounds = 7;
                         repeated KeyValue attributes = 9; uint32 flags = 10; }
"""

import math
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.formats.lineprotocol.precision import INT64_MAX
from ccpipe.formats.lineprotocol.series import check_name
from ccpipe.formats.otlp import DELTA, SERVICE
from ccpipe.formats.otlp.attributes import Span, read_attributes, resource_tags, utf8
from ccpipe.formats.otlp.rows import RequestRows
from ccpipe.formats.protobuf import fields, read_varint

MAX_CACHE_BYTES = 32 * 2**20
"""Maximum size of the cached attributes of series."""
_ENTRY_BYTES = 200

MAX_BUCKETS = 1000
"""Maximum number of buckets of a histogram, each of which is a series."""

TEMPORALITY = "temporality"
"""The tag ``temporality=delta`` of a value that is the increase since the one before."""

_GAUGE, _SUM, _HISTOGRAM = 0x2A, 0x3A, 0x4A
_UNSUPPORTED = {0x52: "an exponential histogram", 0x5A: "a summary"}
_FIRST, _SECOND, _UNIT, _TEMPORALITY = 0x0A, 0x12, 0x1A, 0x10
_START, _TIME, _AS_DOUBLE, _AS_INT, _ATTRIBUTE, _FLAGS = 0x11, 0x19, 0x21, 0x31, 0x3A, 0x40
_VALUES = frozenset({_AS_DOUBLE, _AS_INT})
_COUNT, _SUM_OF, _HISTOGRAM_ATTRIBUTE, _HISTOGRAM_FLAGS = 0x21, 0x29, 0x4A, 0x50
_COUNTS, _BOUNDS = (0x31, 0x32), (0x39, 0x3A)  # single or packed
_NO_VALUE = 1  # of flags

_UINT, _INT, _DOUBLE = (struct.Struct(f"<{kind}").unpack_from for kind in "Qqd")
_USUAL_SIZE = 18
_FLOAT_POINT, _INT_POINT = (struct.Struct(f"<xQx{kind}").unpack_from for kind in "dq")


class Decoded(NamedTuple):
    """What a request contains."""

    lines: Lines
    """With the first data points or log records that are rejected."""
    rejected: int
    """Number of all that are rejected."""


class _Metric(NamedTuple):
    """A metric of a resource."""

    name: str
    tags: tuple[tuple[str, str], ...]


_Codes: TypeAlias = dict[object, list[int]]
"""Codes of series of a metric by their attributes, and of the buckets of histograms."""


class MetricsDecoder:
    """Decodes requests; caches the series of encoded attributes."""

    def __init__(self, tags: Sequence[str] = (SERVICE,)) -> None:
        """Make tags of the attributes `tags` of resources; those of data points all become tags."""
        self._wanted = tags
        self._table = SeriesTable()
        self._codes: dict[_Metric, _Codes] = {}
        self._cached = 0
        """Approximate size of the cached attributes, in bytes."""

    def decode(self, body: bytes, now: int) -> Decoded:
        """Decode a request; a data point without time gets the time `now`, in nanoseconds.

        A histogram becomes ``<name>_bucket`` with the tag ``le``, ``<name>_sum`` and
        ``<name>_count``, as in Prometheus. A bad data point does not affect the others. Raises
        DataError if the body is not a request.
        """
        table = self._table.current()
        if table is not self._table or self._cached > MAX_CACHE_BYTES:
            self._table, self._codes, self._cached = table, {}, 0
        rows = RequestRows(table, now)
        for resource in rows.within(children(body, (0, len(body)), _FIRST)):
            attributes = resource_attributes(body, resource)
            tags = resource_tags(attributes, self._wanted)
            for scope in rows.within(children(body, resource, _SECOND)):
                for metric in rows.within(children(body, scope, _SECOND)):
                    self._metric(body, metric, tags, rows)
        return Decoded(rows.lines(), rows.rejected)

    def _metric(self, body: bytes, span: Span, tags: dict[str, str], rows: RequestRows) -> None:
        name, unit, kind, data = _metric_fields(body, span)
        if kind in _UNSUPPORTED:
            for start, end in children(body, data, _FIRST):
                rows.reject(name, body[start:end], f"{_UNSUPPORTED[kind]} is not supported")
            return
        if unit:
            tags = {"unit": unit, **tags}
        if kind != _GAUGE and _is_delta(body, data):
            tags = {**tags, TEMPORALITY: "delta"}
        metric = _Metric(name, tuple(tags.items()))
        codes = self._codes.get(metric)
        if codes is None:
            codes = self._codes[metric] = {}
            self._cached += _ENTRY_BYTES
        points = _Points(body, metric, codes, rows)
        add = points.add_histogram if kind == _HISTOGRAM else points.add_number
        for start, end in children(body, data, _FIRST):
            try:
                self._cached += add(start, end)
            except (DataError, EncodeError) as error:
                rows.reject(name, body[start:end], error)


class _Points(NamedTuple):
    """Reads the data points of a metric; returns the size of what they add to the cache."""

    body: bytes
    metric: _Metric
    codes: _Codes
    rows: RequestRows

    def add_number(self, start: int, end: int) -> int:
        """Add a ``NumberDataPoint``; the usual order of its fields is read without a loop."""
        body, rows = self.body, self.rows
        at = start + 9 if end - start > _USUAL_SIZE and body[start] == _START else start
        if end - at < _USUAL_SIZE or body[at] != _TIME or body[at + 9] not in _VALUES:
            return self._add_unusual(start, end, None)
        tail = body[at + _USUAL_SIZE : end]
        known = self.codes.get(tail)
        if known is None:
            return self._add_unusual(start, end, tail)
        unpack = _FLOAT_POINT if body[at + 9] == _AS_DOUBLE else _INT_POINT
        time, value = unpack(body, at)
        rows.add(known[0], value, time if 0 < time <= INT64_MAX else rows.time(body, at + 1))
        return 0

    def _add_unusual(self, start: int, end: int, tail: bytes | None) -> int:
        """Add a data point that begins in an unusual way, or is the first of its series."""
        body, rows = self.body, self.rows
        place, value, flags = None, None, 0
        for key, begin, stop in fields(body, start, end):
            if key == _TIME:
                place = begin
            elif key == _AS_DOUBLE:
                (value,) = _DOUBLE(body, begin)
            elif key == _AS_INT:
                (value,) = _INT(body, begin)
            elif key == _FLAGS:
                flags, _ = read_varint(body, begin, stop)
        if flags & _NO_VALUE:
            return 0
        if value is None:
            raise DataError("the data point has no value")
        time = rows.time(body, place)
        attributes = read_attributes(body, children(body, (start, end), _ATTRIBUTE))
        code = rows.code(self.metric.name, {**dict(self.metric.tags), **attributes})
        rows.add(code, value, time)
        # Only attributes identify a series: an exemplar differs each time.
        if tail is None or any(key != _ATTRIBUTE for key, *_ in fields(tail, 0, len(tail))):
            return 0
        self.codes[tail] = [code]
        return len(tail) + _ENTRY_BYTES

    def add_histogram(self, start: int, end: int) -> int:
        """Add a ``HistogramDataPoint`` as Prometheus names its series."""
        body, rows = self.body, self.rows
        point = _histogram(body, start, end)
        if point is None:
            return 0
        point.check()
        time = rows.time(body, point.time)
        attributes = read_attributes(body, children(body, (start, end), _HISTOGRAM_ATTRIBUTE))
        codes, size = self._histogram_codes(attributes, point.bounds)
        numbers = [*accumulate(point.counts[:-1]), point.observations, point.observations]
        for code, number in zip(codes, numbers, strict=False):
            rows.add(code, number, time)
        if point.sum is not None:
            rows.add(codes[-1], point.sum, time)
        return size

    def _histogram_codes(
        self, attributes: dict[str, str], bounds: list[float]
    ) -> tuple[list[int], int]:
        """Return the codes of the buckets, the count and the sum, and what they add in bytes."""
        key = *sorted(attributes.items()), *bounds
        if (codes := self.codes.get(key)) is not None:
            return codes, 0
        name, tags = self.metric.name, {**dict(self.metric.tags), **attributes}
        check_name(name)
        limits = [*(repr(bound).removesuffix(".0") for bound in bounds), "+Inf"]
        codes = [self.rows.code(f"{name}_bucket", {**tags, "le": limit}) for limit in limits]
        codes += [self.rows.code(f"{name}_{part}", tags) for part in ("count", "sum")]
        self.codes[key] = codes
        return codes, sum(map(len, tags.values())) + _ENTRY_BYTES * (len(key) + 1)


def _metric_fields(body: bytes, span: Span) -> tuple[str, str, int, Span]:
    """Return the name and the unit of a metric, the key of its kind, and its data."""
    name, unit, kind, data = "", "", 0, (0, 0)
    for key, start, end in fields(body, *span):
        if key == _FIRST:
            name = utf8(body, start, end)
        elif key == _UNIT:
            unit = utf8(body, start, end)
        elif key in (_GAUGE, _SUM, _HISTOGRAM) or key in _UNSUPPORTED:
            kind, data = key, (start, end)
    return name, unit, kind, data


def children(body: bytes, span: Span, wanted: int) -> Iterator[Span]:
    """Yield the messages in one that have a key."""
    for key, start, end in fields(body, *span):
        if key == wanted:
            yield start, end


def resource_attributes(body: bytes, span: Span) -> dict[str, str]:
    """Return the attributes of the resource in ``ResourceMetrics`` or ``ResourceLogs``."""
    found = (each for one in children(body, span, _FIRST) for each in children(body, one, _FIRST))
    return read_attributes(body, found)


def _is_delta(body: bytes, span: Span) -> bool:
    found = 0
    for start, end in children(body, span, _TEMPORALITY):
        found, _ = read_varint(body, start, end)
    return found == DELTA


class _Histogram(NamedTuple):
    """What a ``HistogramDataPoint`` has."""

    time: int | None
    """Where it is."""
    observations: int
    sum: float | None
    counts: list[int]
    bounds: list[float]

    def check(self) -> None:
        """Raise DataError if it cannot be stored."""
        counts, bounds = self.counts, self.bounds
        if len(counts) != (len(bounds) + 1 if counts or bounds else 0):
            raise DataError(f"{len(counts)} buckets with {len(bounds)} bounds")
        if len(counts) > MAX_BUCKETS:
            raise DataError(f"{len(counts)} buckets are more than {MAX_BUCKETS}")
        if not all(one < other for one, other in pairwise([*bounds, math.inf])):
            raise DataError("the bounds of the buckets do not increase")
        if max(self.observations, sum(counts)) > INT64_MAX:
            raise DataError("a count exceeds 63 bits")
        if self.sum is not None and not math.isfinite(self.sum):
            raise DataError(f"the sum {self.sum} is not a finite number")


def _histogram(body: bytes, start: int, end: int) -> _Histogram | None:
    """Read a data point; None if it has no value."""
    time, count, total, flags = None, 0, None, 0
    counts, bounds = list[int](), list[float]()
    for key, begin, stop in fields(body, start, end):
        if key == _TIME:
            time = begin
        elif key == _COUNT:
            (count,) = _UINT(body, begin)
        elif key == _SUM_OF:
            (total,) = _DOUBLE(body, begin)
        elif key in _COUNTS:
            counts += _packed("Q", body[begin:stop])
        elif key in _BOUNDS:
            bounds += _packed("d", body[begin:stop])
        elif key == _HISTOGRAM_FLAGS:
            flags, _ = read_varint(body, begin, stop)
    return None if flags & _NO_VALUE else _Histogram(time, count, total, counts, bounds)


def _packed(kind: str, raw: bytes) -> tuple[Any, ...]:
    if len(raw) % 8:
        raise DataError(f"an array of {len(raw)} bytes")
    return struct.unpack(f"<{len(raw) // 8}{kind}", raw)
