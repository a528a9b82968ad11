"""Rows written straight into ``Lines``, many at once: for translators that make thousands."""

import math
from array import array
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.formats.lineprotocol.series import check_name, write_series

Codes = Sequence[int]
"""Numbers of series in a table."""


class Columns:
    """Lines that are being written."""

    def __init__(self, table: SeriesTable) -> None:
        """Begin without rows; the series are those of `table`."""
        self.lines = Lines(b"", table)
        self.lines.verbatim = False
        self._value = table.field_code_of("value")

    def code(self, name: str, tags: Mapping[str, str]) -> int:
        """Number a series; tags without value are left out."""
        series = {key: spelled(value) for key, value in sorted(tags.items()) if value}
        return self.lines.table.code_of(Series(name, series, write_series(name, series)))

    def floats(self, codes: Codes, values: Sequence[float], time: int) -> None:
        """Add one row for each series and value; what is not finite is left out."""
        if not math.isfinite(sum(values)):
            kept = [(c, v) for c, v in zip(codes, values, strict=True) if math.isfinite(v)]
            codes, values = [c for c, _ in kept], [v for _, v in kept]
        count = len(codes)
        self.lines.numbers.extend(values)
        self.lines.exact.frombytes(bytes(8 * count))
        self._rows(codes, count, time, ValueType.FLOAT)

    def ints(self, codes: Codes, values: Sequence[int], time: int) -> None:
        """Add one row for each series and value; where one is beyond 63 bits all are floats."""
        try:
            self.lines.exact.extend(array("q", values))
        except OverflowError:
            self.floats(codes, [float(value) for value in values], time)
            return
        self.lines.numbers.extend(values)
        self._rows(codes, len(codes), time, ValueType.INT)

    def _rows(self, codes: Codes, count: int, time: int, kind: ValueType) -> None:
        lines = self.lines
        lines.series.extend(codes)
        lines.fields.extend([self._value] * count)
        lines.types.frombytes(bytes([kind]) * count)
        lines.times.extend([time] * count)
        lines.starts.frombytes(bytes(8 * count))
        lines.ends.frombytes(bytes(8 * count))

    def text(self, name: str, field: str, text: str, time: int, tags: Mapping[str, str]) -> None:
        """Add one event or log line."""
        code = self.code(name, tags)
        self.lines.append(code, self.lines.table.field_code_of(field), text, time)


def spelled(text: str) -> str:
    """Return a name as a tag can carry it: a line end, for example, becomes ``%0A``."""
    try:
        check_name(text)
    except EncodeError:
        return quote(text.encode(errors="surrogatepass"))
    return text
