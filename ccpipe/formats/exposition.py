"""Pages of Prometheus' exporters to ``Lines``: the text format and OpenMetrics.

Sources: Prometheus, *Exposition formats*, version 0.0.4; *OpenMetrics 1.0*::

    # TYPE node_load1 gauge
    node_load1 0.25
    node_cpu_seconds_total{cpu="0",mode="user"} 1234.5 [<timestamp>]

A sample becomes a float of the same name, its labels become tags; labels take precedence over the
tags of the target. Histograms and summaries are their samples as written. Comments and exemplars
are ignored, and so are values that are not finite, which line protocol cannot carry.
"""

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, ValueType
from ccpipe.formats.lineprotocol.lines import RejectedLine
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN
from ccpipe.formats.lineprotocol.series import valid_tag, write_series

ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""The header ``Accept`` of a scrape."""

MAX_TEXTS = 1_000_000
"""Maximum number of series remembered, in all pages; at about 300 bytes each."""
MAX_REJECTED = 1000
"""Maximum number of bad lines of a page that are reported one by one."""

MAX_LINE = 2**16
"""Maximum length of a sample in bytes."""

# Possessive quantifiers: a damaged line must not take time beyond its length.
_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_PAIR = re.compile(rb'[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\\n]|\\.)*+)"[ \t]*+')
_UNNAMED = re.sub(rb"\((?!\?)", rb"(?:", _PAIR.pattern)
_SERIES = re.compile(
    rb"[ \t]*+(%b)(?:[ \t]*+\{((?:%b(?:,%b)*+,?)?[ \t]*+)\}|(?=[ \t]))"
    % (_NAME, _UNNAMED, _UNNAMED)
)
_VALUE = re.compile(  # float() would ignore underscores
    rb"[ \t]*+([^ \t\r#_{]++)(?:[ \t]++([-+]?[0-9]++(?:\.[0-9]*+)?(?:[eE][-+]?[0-9]{1,2})?))?"
    rb"[ \t]*+(?:#[ \t]*+\{.*)?\r?"
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEANING = {"n": "\n", "\\": "\\", '"': '"'}

_MILLISECOND = 10**6
_SECOND = 10**9


class Page(NamedTuple):
    """A decoded page."""

    lines: Lines
    samples: int
    """Number of valid samples, including those without a finite value."""


class _Rows:
    """The rows of a page."""

    __slots__ = ("bad", "codes", "times", "values")

    def __init__(self) -> None:
        self.codes = array("i")
        self.values = array("d")
        self.times: dict[int, int] = {}
        """Timestamps of their own in nanoseconds, by row."""
        self.bad: dict[int, str] = {}
        """Why lines are rejected, by their number from 0."""


class KnownSeries:
    """The series of all pages, so that each is parsed once while it is exposed."""

    def __init__(self, maximum: int = MAX_TEXTS) -> None:
        self.table = SeriesTable()
        self.count = 0
        """Number of texts remembered by all decoders."""
        self._maximum = maximum

    def current(self) -> SeriesTable:
        """Return the table for the next page: a fresh one if this one, or the count, is full."""
        table = self.table.current()
        if self.count > self._maximum:
            table = SeriesTable()
        if table is not self.table:
            self.table, self.count = table, 0
        return table


class PageDecoder:
    """Decodes the pages of one target."""

    def __init__(self, known: KnownSeries, tags: Mapping[str, str]) -> None:
        """Give each sample some tags, unless it has labels of these names."""
        self._known = known
        self._tags = {key: valid_tag(text) for key, text in tags.items() if text}
        self._table: SeriesTable | None = None
        self._codes: dict[bytes, int] = {}
        """Codes in the table by series as written, such as ``up{job="a"}``."""

    def decode(
        self,
        page: bytes,
        time: int,
        *,
        own_times: bool = False,
        is_openmetrics: bool = False,
        max_samples: int = MAX_TEXTS,
    ) -> Page:
        """Decode a page, in nanoseconds of `time`; bad lines are in ``rejected`` of the lines.

        With `own_times` a sample with a timestamp keeps it; its unit is milliseconds, in
        OpenMetrics seconds.

        Raises
        ------
        DataError
            if an OpenMetrics page is truncated, or there are more than `max_samples`.

        """
        if is_openmetrics and not page.rstrip(b"\r\n").endswith(b"# EOF"):
            raise DataError("truncated: the page does not end with # EOF")
        if (table := self._known.current()) is not self._table:
            self._table, self._codes = table, {}
        lines = page.split(b"\n")
        unit = (_SECOND if is_openmetrics else _MILLISECOND) if own_times else 0
        rows = self._read(lines, unit, max_samples)
        found = _finite(table, rows, time)
        if rows.bad:
            found.rejected = _rejected(lines, rows.bad)
        return Page(found, len(rows.codes))

    def _read(self, lines: Sequence[bytes], unit: int, max_samples: int) -> "_Rows":
        """Read lines; `unit` is the nanoseconds in one of their timestamps, 0 to ignore these."""
        rows = _Rows()
        add_code, add_value, code_of = rows.codes.append, rows.values.append, self._codes.get
        for number, line in enumerate(lines):
            text, _, word = line.rpartition(b" ")
            code = code_of(text)
            if code is not None and b"_" not in word:  # which float() would ignore
                try:
                    add_value(float(word))
                except ValueError:
                    pass
                else:
                    add_code(code)
                    continue
            if line.lstrip(b" \t\r")[:1] not in _COMMENT:
                if len(rows.codes) > max_samples:
                    break
                self._read_unusual(rows, number, line, unit)
                if len(rows.bad) == MAX_REJECTED:
                    break
        if len(rows.codes) > max_samples:
            raise DataError(f"more than {max_samples} samples (max_samples)")
        return rows

    def _read_unusual(self, rows: "_Rows", number: int, line: bytes, unit: int) -> None:
        """Read a line with a new series, a timestamp or other blanks, or reject it."""
        try:
            code, value, stamp = self._sample(line)
            if unit and stamp is not None:
                rows.times[len(rows.codes)] = _nanoseconds(stamp, unit)
        except (ValueError, DataError) as error:
            rows.bad[number] = _reason(error)
        else:
            rows.codes.append(code)
            rows.values.append(value)

    def _sample(self, line: bytes) -> tuple[int, float, bytes | None]:
        """Return series, value and timestamp of any line; raises ValueError or DataError."""
        if len(line) > MAX_LINE:
            raise DataError(f"longer than {MAX_LINE} bytes")
        text = line.partition(b" # ")[0].rpartition(b" ")[0]
        for known in (text, text.rpartition(b" ")[0]):  # with a timestamp
            code = self._codes.get(known)
            if code is not None and (found := _VALUE.fullmatch(line, len(known))):
                return code, float(found[1]), found[2]
        series = _SERIES.match(line)
        if series is None:
            raise DataError("not a sample: expected a name with labels, a blank and a value")
        found = _VALUE.fullmatch(line, series.end())
        if found is None:
            raise DataError("not a value with an optional timestamp")
        value = float(found[1])
        return self._code(line[: series.end()], series), value, found[2]

    def _code(self, text: bytes, series: re.Match[bytes]) -> int:
        """Return the code of a series, and remember it."""
        if (known := self._codes.get(text)) is not None:
            return known
        pairs = _PAIR.findall(series[2] or b"")
        labels = {key.decode(): _tag(value.decode()) for key, value in pairs}
        if len(labels) < len(pairs):
            raise DataError("a label occurs twice")
        merged = {**self._tags, **labels}
        tags = {key: merged[key] for key in sorted(merged) if merged[key]}
        name = series[1].decode()
        assert self._table is not None
        code = self._table.code_of(Series(name, tags, write_series(name, tags)))
        self._codes[text] = code
        self._known.count += 1
        return code


_COMMENT = (b"#", b"")


def _tag(text: str) -> str:
    """Return the value of a label as that of a tag; empty if it is."""
    if "\\" in text:
        text = _ESCAPED.sub(lambda found: _MEANING.get(found[1], found[0]), text)
    return valid_tag(text) if text else ""


def _nanoseconds(stamp: bytes, unit: int) -> int:
    time = int(Decimal(stamp.decode()) * unit)
    if not INT64_MIN < time <= INT64_MAX:
        raise DataError("the timestamp is out of range")
    return time


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return str(error) if isinstance(error, DataError) else "the value is not a number"


def _rejected(lines: Sequence[bytes], reasons: Mapping[int, str]) -> list[RejectedLine]:
    """Return the bad lines; if they are too many, the rest of the page follows as one."""
    offset, rejected = 0, list[RejectedLine]()
    for number, line in enumerate(lines):
        if number in reasons:
            rejected.append(RejectedLine(number + 1, offset, 1, reasons[number], line))
        offset += len(line) + 1
        if len(rejected) == MAX_REJECTED:
            if rest := b"\n".join(lines[number + 1 :]):
                reason = "too many lines are not samples: this is the rest of the page"
                rejected.append(RejectedLine(number + 2, offset, 1, reason, rest))
            break
    return rejected


def _finite(table: SeriesTable, rows: _Rows, time: int) -> Lines:
    """Return the rows with a finite value."""
    codes, values = rows.codes, rows.values
    times = array("q", [time]) * len(codes)
    for row, own_time in rows.times.items():
        times[row] = own_time
    if not math.isfinite(sum(values)):
        keep = [row for row, value in enumerate(values) if math.isfinite(value)]
        codes = array("i", map(codes.__getitem__, keep))
        values = array("d", map(values.__getitem__, keep))
        times = array("q", map(times.__getitem__, keep))
    lines = Lines(b"", table)
    lines.extend(
        {
            "series": codes,
            "fields": array("i", [table.field_code_of("value")]) * len(codes),
            "types": array("B", [ValueType.FLOAT]) * len(codes),
            "numbers": values,
            "times": times,
        }
    )
    lines.verbatim = False
    return lines
