"""Bytes to ``Lines``, in pure Python: the readable twin of the compiled kernel."""

import math
import re
from typing import Literal

from ccpipe.errors import UsageError
from ccpipe.formats.lineprotocol import grammar as g
from ccpipe.formats.lineprotocol.diagnose import diagnose
from ccpipe.formats.lineprotocol.grammar import Grammar, Rule
from ccpipe.formats.lineprotocol.lines import Lines, Rejected, ValueType
from ccpipe.formats.lineprotocol.precision import (
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS,
    NO_TIME,
    Precision,
    check_precision,
    unit_of,
)
from ccpipe.formats.lineprotocol.repair import repair
from ccpipe.formats.lineprotocol.series import SeriesTable

Dialect = Literal["cc", "influx"]
"""Whose line protocol it is: ClusterCockpit's or InfluxDB's own."""

_GRAMMARS: dict[str, Grammar] = {"cc": g.CC, "influx": g.INFLUX}
_tables = {name: SeriesTable(grammar) for name, grammar in _GRAMMARS.items()}

_MOST_DIGITS = 20  # of a 64-bit integer; int() itself refuses some thousands
_QUOTE = ord('"')


def decode(
    payload: bytes,
    *,
    precision: Precision | Literal["auto"] = "auto",
    dialect: Dialect = "cc",
    lenient: bool = False,
) -> Lines:
    """Decode a payload of any number of lines.

    Parameters
    ----------
    payload
        Lines ending in LF or CRLF. A string in quotes may hold line ends of its own.
    precision
        The unit of the timestamps; ``auto`` reads it off each one's magnitude.
    dialect
        ``cc`` for ClusterCockpit, ``influx`` for InfluxDB: they differ in string escapes.
    lenient
        Accept, repaired, what the specification's own examples and ClusterCockpit's encoders
        write against the grammar: see ``repair``.

    Returns
    -------
    Lines
        The rows that could be read; ``rejected`` holds the lines that could not, each with its
        place and the rule it broke. No payload raises.

    Raises
    ------
    UsageError
        where `precision` or `dialect` is none of those above.

    """
    check_precision(precision)
    if dialect not in _GRAMMARS:
        raise UsageError(f"dialect is {dialect!r}, not one of {', '.join(_GRAMMARS)}")
    table = _tables[dialect] = _tables[dialect].current()
    return _Decoder(payload, table, precision, lenient=lenient).run()


class _Broken(Exception):  # noqa: N818 - a signal inside this module
    def __init__(self, rule: Rule, offset: int) -> None:
        self.rule = rule
        self.offset = offset


class _Decoder:
    """One payload on its way into columns."""

    def __init__(
        self,
        payload: bytes,
        table: SeriesTable,
        precision: Precision | Literal["auto"],
        *,
        lenient: bool,
    ) -> None:
        self.payload = payload
        self.table = table
        self.grammar = table.grammar
        self.precision = precision
        self.lenient = lenient
        self.lines = Lines(payload, table)
        self.units: set[Precision | None] = set()
        self.counted, self.line_ends = 0, 0
        # A broken string can swallow good lines, so they are read again; but not for ever.
        self.reread = 4 * len(payload)

    def run(self) -> Lines:
        payload, size = self.payload, len(self.payload)
        skip, match = g.SKIP.match, self.grammar.line.match
        position = 0
        while True:
            blank = skip(payload, position)
            assert blank is not None
            position = blank.end()
            if position >= size:
                break
            found = match(payload, position)
            try:
                if found is None:
                    raise _Broken(*diagnose(payload, position, self.grammar))
                end = found.end(3) if found[3] is not None else found.end(2)
                self.read(found, position, end)
                position = found.end()
            except _Broken as broken:
                position = self.recover(position, broken)
        if len(self.units) == 1:
            self.lines.precision = self.units.pop()
        return self.lines

    def read(self, found: re.Match[bytes], start: int, end: int) -> None:
        """Take the rows of one grammatical line: all of them, or none where a rule is broken."""
        key, fields, stamp = found.groups()
        series = self.table.codes.get(key)
        if series is None:
            series = self.new_series(key, found.start(1))
        offset = found.start(2)
        if b"," in fields or b'"' in fields:
            cells = {
                self.field(pair[1], offset + pair.start()): self.cell(
                    pair[2], offset + pair.start(2)
                )
                for pair in self.grammar.field.finditer(fields)
            }
        else:
            name, _, token = fields.rpartition(b"=")
            cells = {self.field(name, offset): self.cell(token, offset + len(name) + 1)}
        unit, time = self.moment(stamp, found.start(3))
        self.units.add(unit)
        lines = self.lines
        for field, (number, exact, kind) in cells.items():
            lines.series.append(series)
            lines.fields.append(field)
            lines.types.append(kind)
            lines.numbers.append(number)
            lines.exact.append(exact)
            lines.times.append(time)
            lines.starts.append(start)
            lines.ends.append(end)

    def new_series(self, key: bytes, offset: int) -> int:
        if len(key) > g.MAX_KEY:
            raise _Broken(Rule.KEY_LENGTH, offset)
        try:
            return self.table.add(key)
        except UnicodeDecodeError as error:
            raise _Broken(Rule.UTF8, offset + error.start) from None

    def field(self, raw: bytes, offset: int) -> int:
        code = self.table.field_codes.get(raw)
        if code is None:
            if len(raw) > g.MAX_KEY:
                raise _Broken(Rule.KEY_LENGTH, offset)
            try:
                code = self.table.add_field(raw)
            except UnicodeDecodeError as error:
                raise _Broken(Rule.UTF8, offset + error.start) from None
        return code

    def cell(self, token: bytes, offset: int) -> tuple[float, int, ValueType]:
        """Read one value into its cells of the columns ``numbers``, ``exact`` and ``types``."""
        if g.FLOAT.fullmatch(token):
            number = float(token)
            if math.isinf(number):
                raise _Broken(Rule.RANGE, offset)
            return number, 0, ValueType.FLOAT
        if token[0] == _QUOTE:
            return math.nan, self.text(token, offset), ValueType.TEXT
        if g.INTEGER.fullmatch(token):
            value = self.integer(token[:-1], INT64_MIN, INT64_MAX, Rule.RANGE, offset)
            return float(value), value, ValueType.INT
        if g.UNSIGNED.fullmatch(token):
            value = self.integer(token[:-1], 0, 2**64 - 1, Rule.RANGE, offset)
            return float(value), value - 2**64 if value > INT64_MAX else value, ValueType.UINT
        if token in g.BOOLEANS:
            truth = g.BOOLEANS[token]
            return float(truth), int(truth), ValueType.BOOL
        raise _Broken(Rule.BOOLEAN if token[0] in b"tTfF" else Rule.NUMBER, offset)

    def text(self, token: bytes, offset: int) -> int:
        inside = token[1:-1]
        if b"\\" in inside:
            unescape = self.grammar.unescape
            inside = g.STRING_ESCAPE.sub(lambda m: unescape.get(m[1], m[0]), inside)
        try:
            self.lines.texts.append(inside.decode())
        except UnicodeDecodeError:
            raise _Broken(Rule.UTF8, offset) from None
        return len(self.lines.texts) - 1

    def integer(self, digits: bytes, least: int, most: int, rule: Rule, offset: int) -> int:
        if len(digits.lstrip(b"-0")) <= _MOST_DIGITS:
            value = int(digits)
            if least <= value <= most:
                return value
        raise _Broken(rule, offset)

    def moment(self, stamp: bytes | None, offset: int) -> tuple[Precision | None, int]:
        """Return the unit of a timestamp and its nanoseconds."""
        if stamp is None:
            return None, NO_TIME
        value = self.integer(stamp, INT64_MIN, INT64_MAX, Rule.TIME_RANGE, offset)
        unit = unit_of(value) if self.precision == "auto" else self.precision
        time = value * NANOSECONDS[unit]
        if not INT64_MIN < time <= INT64_MAX:
            raise _Broken(Rule.TIME_RANGE, offset)
        return unit, time

    def recover(self, start: int, broken: _Broken) -> int:
        """Repair or reject the line at `start`; return where to go on."""
        end = self.line_end(start)
        if broken.offset > end:
            self.reread -= broken.offset - end
            if self.reread < 0:
                end = self.line_end(broken.offset)
        original = self.payload[start:end].removesuffix(b"\r")
        if not (self.lenient and self.repaired(original, start)):
            self.line_ends += self.payload.count(b"\n", self.counted, start)
            self.counted = start
            column = min(broken.offset - start, len(original)) + 1
            self.lines.rejected.append(
                Rejected(self.line_ends + 1, broken.offset, column, broken.rule, original)
            )
        return end + 1

    def repaired(self, original: bytes, start: int) -> bool:
        line = repair(original)
        found = line and self.grammar.line.fullmatch(line)
        if not found:
            return False
        try:
            self.read(found, start, start + len(original))
        except _Broken:
            return False
        self.lines.verbatim = False
        return True

    def line_end(self, position: int) -> int:
        found = self.payload.find(b"\n", position)
        return len(self.payload) if found < 0 else found
