"""Prometheus: ``Lines`` to the body of a remote write, and to the text format for scrapes.

Source: *Prometheus Remote-Write 1.0 specification*; ``prompb/remote.proto`` and ``types.proto``::

    message WriteRequest { repeated TimeSeries timeseries = 1; }
    message TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
    message Label        { string name = 1; string value = 2; }
    message Sample       { double value = 1; int64 timestamp = 2; }  // milliseconds

The body is sent by ``POST …/api/v1/write`` with ``HEADERS``.

The text follows *Exposition formats*, version 0.0.4, with content type ``TEXT_TYPE``::

    # TYPE <name> untyped
    <name>{<label>="<value>",…} <number> [<milliseconds>]
"""

import functools
import re
import struct
from collections.abc import Callable
from typing import Any

from ccpipe.errors import EncodeError, MissingExtra
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.protobuf import message, varint

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

STALE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]
"""The NaN that ends a series; without it, its last value is shown for five more minutes."""

MAX_LABELS = 200_000
_MILLISECOND = 10**6


def snappy_compressor() -> Callable[[bytes], Any]:
    """Return a function that compresses without frames; raises MissingExtra without cramjam."""
    try:
        from cramjam import snappy
    except ImportError:
        raise MissingExtra("cramjam", "prometheus") from None
    return snappy.compress_raw


class RemoteWrite:
    """Encodes requests; caches the labels of series."""

    def __init__(self) -> None:
        self._compress = snappy_compressor()
        self._table: SeriesTable | None = None
        self._labels: dict[int, bytes] = {}
        """By the codes of series and field in the table."""

    def encode(self, lines: Lines) -> bytes:
        """Encode the numbers of `lines` as a compressed ``WriteRequest``.

        The name of a metric is its measurement, plus its field unless that is ``value``. Booleans
        are 0 and 1; texts, which Prometheus does not support, are omitted. The samples of a series
        are sorted by time, at most one per millisecond. Raises EncodeError if a row has no time:
        see ``Lines.fill_missing_times``.
        """
        return bytes(self._compress(self.write_request(lines)))

    def write_request(self, lines: Lines) -> bytes:
        """Encode like ``encode``, without compression."""
        require_times(lines)
        if self._table is not lines.table or len(self._labels) > MAX_LABELS:
            self._table, self._labels = lines.table, {}
        if KERNEL is None:
            return self._in_python(lines)
        request: bytes = KERNEL.write_request(lines, self._labels, self._labels_of)
        return request

    def _labels_of(self, series: int, field: int) -> bytes:
        assert self._table is not None
        code = series << 32 | field
        labels = self._labels.get(code)
        if labels is None:
            named = self._table.series[series], self._table.fields[field]
            labels = self._labels[code] = write_labels(*named)
        return labels

    def _in_python(self, lines: Lines) -> bytes:
        return b"".join(
            message(1, self._labels_of(series, field) + samples(points))
            for (series, field), points in by_series(lines).items()
        )


def require_times(lines: Lines) -> None:
    """Raise EncodeError if a row has no time."""
    if lines.precision is None and NO_TIME in lines.times:
        raise EncodeError("a sample without time cannot be written to Prometheus")


def by_series(lines: Lines) -> dict[tuple[int, int], dict[int, float]]:
    """Return the numbers by the codes of series and field, then by milliseconds."""
    found: dict[tuple[int, int], dict[int, float]] = {}
    for series, field, kind, number, time in zip(
        lines.series, lines.fields, lines.types, lines.numbers, lines.times, strict=True
    ):
        if kind != ValueType.TEXT:
            found.setdefault((series, field), {})[time // _MILLISECOND] = number
    return found


def samples(points: dict[int, float]) -> bytes:
    """Encode numbers by milliseconds as samples of a series, of either version."""
    ordered = points.items() if len(points) == 1 else sorted(points.items())
    return b"".join([_sample(milliseconds) % _DOUBLE(number) for milliseconds, number in ordered])


@functools.lru_cache(4096)
def _sample(milliseconds: int) -> bytes:
    """Return a sample with ``%b`` in place of its number; many have the same time."""
    time = b"\x10" + varint(milliseconds)
    return b"\x12%c\x09%%b%b" % (9 + len(time), time.replace(b"%", b"%%"))


_DOUBLE = struct.Struct("<d").pack


def labels_of(series: Series, field: str) -> dict[str, str]:
    """Return the labels of a metric, sorted by name, with only the characters Prometheus allows.

    ``__name__`` is the name of the metric. If two tags map to one label, the last one wins.
    """
    name = series.name if field == "value" else f"{series.name}_{field}"
    labels = {_RESERVED.sub("_", _LABEL_BAD.sub("_", k)): text for k, text in series.tags.items()}
    labels["__name__"] = _NAME_BAD.sub("_", name)
    return {key: labels[key] for key in sorted(labels)}


def write_labels(series: Series, field: str) -> bytes:
    return b"".join(
        message(1, message(1, key.encode()) + message(2, value.encode()))
        for key, value in labels_of(series, field).items()
    )


def text_labels(series: Series, field: str) -> tuple[str, str]:
    """Return the name of a metric, and its labels in the text format."""
    labels = labels_of(series, field)
    name = labels.pop("__name__")
    pairs = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())
    return name, f"{{{pairs}}}" if pairs else ""


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


_LABEL_BAD = re.compile(r"[^a-zA-Z0-9_]|^(?=[0-9])")
_RESERVED = re.compile(r"^__+")  # reserved by Prometheus
_NAME_BAD = re.compile(r"[^a-zA-Z0-9_:]|^(?=[0-9])")
