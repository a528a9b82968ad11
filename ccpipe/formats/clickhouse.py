"""ClickHouse: ``Lines`` as rows of its format RowBinary, and the table that has them.

Source: *RowBinary* in ClickHouse's *Formats for input and output data*: a string is its length as a
varint and its bytes, a map the number of its pairs and these, and the values of a row follow each
other without separators, in the order of ``COLUMNS``.
"""

import struct
from collections.abc import Iterator

from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.formats.lineprotocol.series import PerSeries, Tags
from ccpipe.formats.protobuf import varint

OWN = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column of their own, empty where a series lacks the tag; all others are in a map."""

COLUMNS = (
    "name", *(tag.replace("-", "_") for tag in OWN), "tags", "field", "time", "value", "text",
)  # fmt: skip

DEDUPLICATION_WINDOW = 1000
"""Number of inserts that the server recognizes if they are repeated; its default is 0."""

_KEYS = ", ".join(COLUMNS[:9])

TABLE = f"""\
CREATE TABLE IF NOT EXISTS {{table}} (
    {", ".join(f"{column} LowCardinality(String)" for column in COLUMNS[:7])},
    tags Map(LowCardinality(String), String),
    field LowCardinality(String),
    time DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD),
    value Float64 CODEC(Gorilla, ZSTD),
    text String CODEC(ZSTD)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(time)
ORDER BY ({_KEYS}, time)
SETTINGS non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}"""
"""The statement that creates a table: rows of the same series and time become one when merged."""

_ROW = struct.Struct("<qd").pack


class RowBinary:
    """Encodes rows; caches the names and tags of series."""

    def __init__(self) -> None:
        self._series = PerSeries(_series)

    def encode(self, lines: Lines) -> bytes:
        """Encode lines, each of which has a time; a number has an empty text, a text the value NaN.

        Booleans are 1 and 0, integers doubles.
        """
        return b"".join(self._rows(lines))

    def _rows(self, lines: Lines) -> Iterator[bytes]:
        fields = {code: _string(lines.table.fields[code]) for code in set(lines.fields)}
        columns = (self._series.of_rows(lines), lines.fields, lines.times, lines.numbers)
        if ValueType.TEXT not in lines.used_types:
            for series, field, time, number in zip(*columns, strict=True):
                yield series + fields[field] + _ROW(time, number) + b"\0"
            return
        for series, field, time, number, kind, exact in zip(
            *columns, lines.types, lines.exact, strict=True
        ):
            text = _string(lines.texts[exact]) if kind == ValueType.TEXT else b"\0"
            yield series + fields[field] + _ROW(time, number) + text


def _series(name: str, tags: Tags) -> bytes:
    others = [(key, value) for key, value in tags.items() if key not in OWN]
    own = b"".join(_string(tags.get(tag, "")) for tag in OWN)
    pairs = b"".join(_string(key) + _string(value) for key, value in others)
    return _string(name) + own + varint(len(others)) + pairs


def _string(text: str) -> bytes:
    encoded = text.encode()
    return varint(len(encoded)) + encoded
