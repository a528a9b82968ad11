"""Bytes to ``Lines``, in pure Python: the slow reference implementation of the kernel."""

import functools
import math
import re
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ccpipe.errors import UsageError
from ccpipe.formats.lineprotocol import grammar as g
from ccpipe.formats.lineprotocol.grammar import Grammar, Rule
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.lines import Lines, RejectedLine
from ccpipe.formats.lineprotocol.precision import (
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS,
    NO_TIME,
    UNIT_NUMBERS,
    UNITS,
    Precision,
    check_precision,
    unit_of,
)
from ccpipe.formats.lineprotocol.series import DuplicateTag, SeriesTable
from ccpipe.formats.lineprotocol.values import ValueType, signed

if TYPE_CHECKING:
    from ccpipe.formats.lineprotocol.kernel._kernel import Scanner

Dialect = Literal["cc", "influx"]
"""ClusterCockpit's line protocol or InfluxDB's own."""

_Decode = TypeVar("_Decode", bound=Callable[..., Any])

_GRAMMARS: dict[str, Grammar] = {"cc": g.CC, "influx": g.INFLUX}


class _Tables(threading.local):
    """The series tables of one thread, so that threads do not block each other."""

    def __init__(self) -> None:
        self.of = {name: SeriesTable(grammar) for name, grammar in _GRAMMARS.items()}


_tables = _Tables()

_UNITS: tuple[Precision | None, ...] = (*UNITS, None)
_BIT = {unit: 1 << number for number, unit in enumerate(_UNITS)}
_UNIT_OF_BITS = {bit: unit for unit, bit in _BIT.items()}
_MAX_DIGITS = 20  # of a 64-bit integer; int() rejects thousands of digits
_QUOTE = ord('"')


def decode_compiled(
    payload: bytes,
    table: SeriesTable,
    precision: Precision | Literal["auto"],
    lenient: bool,
    max_rejected: int | None = None,
) -> Lines:
    """Decode with the compiled kernel, which leaves unusual lines to Python."""
    scanner = table.scanner
    if scanner is None:
        assert KERNEL is not None
        scanner = KERNEL.Scanner(table, influx=table.grammar is g.INFLUX)
        table.scanner = scanner
    lines: Lines = scanner.decode(Lines, payload, table, UNIT_NUMBERS[precision])
    if scanner.position == len(payload):
        return lines
    return _finish(lines, scanner, precision, lenient, max_rejected)


def _finish(
    lines: Lines,
    scanner: "Scanner",
    precision: Precision | Literal["auto"],
    lenient: bool,
    max_rejected: int | None,
) -> Lines:
    """Continue from the line at which the kernel stopped."""
    return _Decoder(lines, precision, lenient, max_rejected, scanner).run(scanner.position)


def decode_in_python(
    payload: bytes,
    table: SeriesTable,
    precision: Precision | Literal["auto"],
    lenient: bool,
    max_rejected: int | None = None,
) -> Lines:
    """Decode without the compiled kernel: the reference for its tests, and the fallback."""
    return _Decoder(Lines(payload, table), precision, lenient, max_rejected).run(0)


def _with_shortcut(decode: _Decode) -> _Decode:
    """Put the kernel in front of `decode`: most calls then run without Python code."""
    if KERNEL is None:
        return decode
    compiled = KERNEL.shortcut(decode, _finish, _tables, Lines)
    functools.update_wrapper(compiled, decode)
    return cast(_Decode, compiled)


@_with_shortcut
def decode(
    payload: bytes,
    *,
    precision: Precision | Literal["auto"] = "auto",
    dialect: Dialect = "cc",
    lenient: bool = False,
    max_rejected: int | None = None,
) -> Lines:
    """Decode a payload of any number of lines.

    Parameters
    ----------
    payload
        Lines ending in LF or CRLF. A string in quotes may contain line ends.
    precision
        Unit of the timestamps; ``auto`` infers it from the magnitude of each.
    dialect
        ``cc`` for ClusterCockpit, ``influx`` for InfluxDB, which escapes strings differently.
    lenient
        Repair the known violations of the grammar in the specification's examples and in
        ClusterCockpit's encoders: see ``repair``.
    max_rejected
        After this number of bad lines, the next one is rejected together with the rest of the
        payload: diagnosing a bad line is much slower than parsing a good one.

    Returns
    -------
    Lines
        The decoded rows; ``rejected`` has the bad lines, each with its position and the rule that
        it breaks. No payload raises.

    Raises
    ------
    UsageError
        if `precision` or `dialect` is unknown.

    """
    if precision not in UNIT_NUMBERS:
        check_precision(precision)
    tables = _tables.of
    if dialect not in tables:
        raise UsageError(f"dialect is {dialect!r}, not one of {', '.join(_GRAMMARS)}")
    table = tables[dialect] = tables[dialect].current()
    if type(payload) is not bytes:
        payload = bytes(payload)
    take = decode_in_python if KERNEL is None else decode_compiled
    return take(payload, table, precision, lenient, max_rejected)


def join(payloads: list[bytes]) -> "tuple[bytes, array[int]] | None":
    """Join payloads, each terminated by LF; return the result and the end of each.

    One call for all is much faster: a call takes as long as many lines. Returns None if a payload
    contains a quotation mark or ends in a backslash: an open string, which may span lines, or an
    open escape would include the following payloads.
    """
    if KERNEL is not None:
        joined: tuple[bytes, array[int]] | None = KERNEL.join(payloads)
        return joined
    parts = [each if each.endswith(b"\n") else each + b"\n" for each in payloads]
    whole = b"".join(parts)
    if b'"' in whole or any(each.endswith(b"\\") for each in payloads):
        return None
    return whole, array("q", accumulate(map(len, parts)))


def rows_before(starts: "array[int]", ends: "array[int]") -> "array[int]":
    """Return the number of rows that start before each of `ends`; both columns ascend."""
    if KERNEL is None:
        return array("q", [bisect_left(starts, end) for end in ends])
    counts: array[int] = KERNEL.rows_before(starts, ends)
    return counts


class _Broken(Exception):  # noqa: N818 - internal to this module
    def __init__(self, rule: Rule, offset: int) -> None:
        self.rule = rule
        self.offset = offset


_REREAD = 4
"""Limit on rereading after unclosed strings, as a multiple of the payload size."""


class _Decoder:
    """Decodes one payload into columns."""

    def __init__(
        self,
        lines: Lines,
        precision: Precision | Literal["auto"],
        lenient: bool,
        max_rejected: int | None,
        scanner: "Scanner | None" = None,
    ) -> None:
        self.lines = lines
        self.payload = payload = lines.payload
        self.table = lines.table
        self.grammar = lines.table.grammar
        self.precision = precision
        self.lenient = lenient
        self.max_rejected = len(payload) if max_rejected is None else max_rejected
        self.scanner = scanner
        self.units = scanner.units if scanner else 0
        self.repairing = False
        self.counted, self.line_ends = 0, 0
        self.reread = _REREAD * len(payload)

    def run(self, position: int) -> Lines:
        payload, size = self.payload, len(self.payload)
        while True:
            if self.scanner is not None and self.reread >= 0:
                position = self.scanner.read(self.lines, position, UNIT_NUMBERS[self.precision])
                self.units |= self.scanner.units
            if position < size:
                blank = g.SKIP.match(payload, position)
                assert blank is not None
                position = blank.end()
            if position >= size:
                break
            position = self.line(position)
            if len(self.lines.rejected) > self.max_rejected:
                break
        self.lines.precision = _UNIT_OF_BITS.get(self.units)
        return self.lines

    def line(self, start: int) -> int:
        """Read, repair or reject the line at `start`; return the start of the next one.

        A string may contain line ends, so an unclosed one includes the lines after it. Therefore
        decoding resumes after the first line end and reads them again. A budget for rereading
        keeps the time linear; once it is spent, a string ends with its line.
        """
        limit = len(self.payload) if self.reread >= 0 else self.line_end(start)
        found = self.grammar.line.match(self.payload, start, limit)
        texts = len(self.lines.texts)
        try:
            if found is None:
                raise self.broken(start, limit)
            self.read(found, start, found.end(3) if found[3] is not None else found.end(2))
        except _Broken as broken:
            self.lines.texts.truncate(texts)
            if found is not None:
                reached = found.end()
            else:
                reached = limit if broken.rule is Rule.QUOTE else broken.offset
            end = self.line_end(start)
            self.reread -= max(0, reached - end)
            self.recover(start, end, broken)
            return end + 1
        return found.end()

    def broken(self, start: int, limit: int) -> _Broken:
        from ccpipe.formats.lineprotocol.mistakes import diagnose

        return _Broken(*diagnose(self.payload, start, limit, self.grammar))

    def read(self, found: re.Match[bytes], start: int, end: int) -> None:
        """Add the rows of one grammatical line: all, or none if it breaks a rule."""
        key, fields, stamp = found.groups()
        series = self.table.codes.get(key)
        if series is None:
            series = self.new_series(key, found.start(1))
        offset = found.start(2)
        # A duplicate field has the last value, in the position of the first.
        cells = {
            self.field(pair[1], offset + pair.start()): self.cell(pair[2], offset + pair.start(2))
            for pair in self.grammar.field.finditer(fields)
        }
        unit, time = self.timestamp(stamp, found.start(3))
        self.units |= _BIT[unit]
        for field, (number, exact, kind) in cells.items():
            self.lines.append_row(series, field, kind, number, exact, time, start, end)

    def new_series(self, key: bytes, offset: int) -> int:
        if len(key) > g.MAX_KEY:
            raise _Broken(Rule.KEY_LENGTH, offset)
        try:
            return self.table.add(key)
        except UnicodeDecodeError as error:
            raise _Broken(Rule.UTF8, offset + error.start) from None
        except DuplicateTag as error:
            raise _Broken(Rule.DUPLICATE_TAG, offset + error.start) from None

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
        """Return the cells of one value: ``numbers``, ``exact`` and ``types``."""
        if g.FLOAT.fullmatch(token):
            number = float(token)
            if math.isinf(number):
                raise _Broken(Rule.RANGE, offset)
            self.lines.bare_points |= bool(g.BARE_POINT.match(token))
            return number, 0, ValueType.FLOAT
        if token[0] == _QUOTE:
            return math.nan, self.text(token, offset), ValueType.TEXT
        if g.INTEGER.fullmatch(token):
            value = self.integer(token[:-1], INT64_MIN, INT64_MAX, Rule.RANGE, offset)
            return float(value), value, ValueType.INT
        if g.UNSIGNED.fullmatch(token):
            value = self.integer(token[:-1], 0, 2**64 - 1, Rule.RANGE, offset)
            return float(value), signed(value), ValueType.UINT
        if token in g.BOOLEANS:
            truth = g.BOOLEANS[token]
            return float(truth), int(truth), ValueType.BOOL
        raise _Broken(Rule.BOOLEAN if token[0] in b"tTfF" else Rule.NUMBER, offset)

    def text(self, token: bytes, offset: int) -> int:
        try:
            text = token[1:-1].decode()
        except UnicodeDecodeError as error:
            raise _Broken(Rule.UTF8, offset + 1 + error.start) from None
        texts = self.lines.texts
        if self.repairing:
            texts.append(texts.unescaped(text))
        else:
            texts.spans.extend((offset + 1, offset + len(token) - 1))
        return len(texts) - 1

    def integer(self, digits: bytes, minimum: int, maximum: int, rule: Rule, offset: int) -> int:
        if len(digits.lstrip(b"-0")) <= _MAX_DIGITS:
            value = int(digits)
            if minimum <= value <= maximum:
                return value
        raise _Broken(rule, offset)

    def timestamp(self, stamp: bytes | None, offset: int) -> tuple[Precision | None, int]:
        """Return the unit of a timestamp and its nanoseconds."""
        if stamp is None:
            return None, NO_TIME
        value = self.integer(stamp, INT64_MIN, INT64_MAX, Rule.TIME_RANGE, offset)
        unit = unit_of(value) if self.precision == "auto" else self.precision
        time = value * NANOSECONDS[unit]
        if not INT64_MIN < time <= INT64_MAX:
            raise _Broken(Rule.TIME_RANGE, offset)
        return unit, time

    def recover(self, start: int, end: int, broken: _Broken) -> None:
        """Repair or reject the line from `start` to `end`, and beyond the limit all the rest."""
        original = self.payload[start:end].removesuffix(b"\r")
        if self.lenient and self.repaired(original, start):
            return
        if len(self.lines.rejected) == self.max_rejected:
            original, broken = self.payload[start:], _Broken(Rule.UNREAD, start)
        self.line_ends += self.payload.count(b"\n", self.counted, start)
        self.counted = start
        column = min(broken.offset - start, len(original)) + 1
        self.lines.rejected.append(
            RejectedLine(self.line_ends + 1, broken.offset, column, broken.rule, original)
        )

    def repaired(self, original: bytes, start: int) -> bool:
        from ccpipe.formats.lineprotocol.mistakes import repair

        line = repair(original)
        found = line and self.grammar.line.fullmatch(line)
        if not found:
            return False
        texts = len(self.lines.texts)
        self.repairing = True
        try:
            self.read(found, start, start + len(original))
        except _Broken:
            self.lines.texts.truncate(texts)
            return False
        finally:
            self.repairing = False
        self.lines.verbatim = False
        return True

    def line_end(self, position: int) -> int:
        found = self.payload.find(b"\n", position)
        return len(self.payload) if found < 0 else found
