"""Remote write 2.0: ``Lines`` as a request that has each text once.

Source: *Prometheus Remote-Write 2.0 specification*; ``io/prometheus/write/v2/types.proto``::

    message Request    { repeated string symbols = 4; repeated TimeSeries timeseries = 5; }
    message TimeSeries { repeated uint32 labels_refs = 1; repeated Sample samples = 2; }

The labels of a series are references to ``symbols``, of which the first is empty: name and value in
turn. Samples, names and the path are those of version 1.
"""

from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.formats.prometheus import (
    MAX_LABELS,
    by_series,
    labels_of,
    require_times,
    samples,
    snappy_compressor,
)
from ccpipe.formats.protobuf import message, varint

HEADERS_2 = {
    "Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "2.0.0",
}

SAMPLES_WRITTEN = "X-Prometheus-Remote-Write-Samples-Written"
"""Header of the response: how many samples of the request are stored."""


class RemoteWrite2:
    """Encodes requests; caches the labels of series."""

    def __init__(self) -> None:
        self._compress = snappy_compressor()
        self._table: SeriesTable | None = None
        self._labels: dict[tuple[int, int], tuple[str, ...]] = {}
        """Names and values in turn, by the codes of series and field in the table."""
        self.samples = 0
        """Number of samples of the latest request."""

    def encode(self, lines: Lines) -> bytes:
        """Encode like ``RemoteWrite.encode``."""
        return bytes(self._compress(self.write_request(lines)))

    def write_request(self, lines: Lines) -> bytes:
        """Encode like ``encode``, without compression."""
        require_times(lines)
        if self._table is not lines.table or len(self._labels) > MAX_LABELS:
            self._table, self._labels = lines.table, {}
        symbols, found = _Symbols({"": varint(0)}), by_series(lines)
        self.samples = sum(map(len, found.values()))
        series = [
            message(5, self._references(code, symbols) + samples(points))
            for code, points in found.items()
        ]
        return b"".join([*(message(4, text.encode()) for text in symbols), *series])

    def _references(self, code: tuple[int, int], symbols: "_Symbols") -> bytes:
        """Return the labels of a series as references; new texts are added to `symbols`."""
        texts = self._labels.get(code)
        if texts is None:
            assert self._table is not None
            labels = labels_of(self._table.series[code[0]], self._table.fields[code[1]])
            texts = self._labels[code] = tuple(text for pair in labels.items() for text in pair)
        return message(1, b"".join(map(symbols.__getitem__, texts)))


class _Symbols(dict[str, bytes]):
    """The texts of a request, each with its encoded index; an unknown one is added."""

    def __missing__(self, text: str) -> bytes:
        index = self[text] = varint(len(self))
        return index
