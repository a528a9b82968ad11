"""Records to bytes in canonical form: equal records give equal bytes.

Tags are sorted, strings are quoted and escaped as ClusterCockpit unescapes them, and every line has
one field and ends in LF.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.decoder import decode
from ccpipe.formats.lineprotocol.grammar import INFLUX
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.lines import Lines, RejectedLine
from ccpipe.formats.lineprotocol.precision import NO_TIME, UNIT_NUMBERS, Precision, check_precision
from ccpipe.formats.lineprotocol.series import escape, write_series
from ccpipe.formats.lineprotocol.writer import original, write_message, write_time, write_value
from ccpipe.message import Message
from ccpipe.records import Rejected


def encode(records: Iterable[Message], *, precision: Precision | Literal["auto"] = "s") -> bytes:
    """Encode records as line protocol.

    Parameters
    ----------
    records
        Messages, or ``Lines``.
    precision
        Unit to which timestamps are truncated; ``auto`` uses for each line the coarsest lossless
        unit, which ``decode(precision="auto")`` reads back.

    Raises
    ------
    EncodeError
        naming the record, for values that line protocol cannot represent: NaN, infinity, integers
        beyond 64 bits, control characters in names, tags ending in a backslash.
    UsageError
        if `precision` is unknown.

    """
    if isinstance(records, Lines):
        return encode_rows(records, precision=precision).payload
    if precision not in UNIT_NUMBERS:
        check_precision(precision)
    if KERNEL is None:
        return b"".join(write_message(message, precision) for message in records)
    encoded: bytes = KERNEL.encode_messages(
        records, UNIT_NUMBERS[precision], lambda message: write_message(message, precision)
    )
    return encoded


class EncodedLines(NamedTuple):
    """Rows as lines with LF, one after another."""

    payload: bytes
    ends: "array[int]"
    """Where each line ends."""

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> "EncodedLines":
        return cls(b"".join(lines), array("q", accumulate(map(len, lines))))

    def take(self, rows: Iterable[int]) -> "EncodedLines":
        payload, ends = self.payload, self.ends
        return self.of([payload[ends[row - 1] if row else 0 : ends[row]] for row in rows])


def encode_rows(lines: Lines, *, precision: Precision | Literal["auto"] = "s") -> EncodedLines:
    """Encode rows, for splitting them into payloads; raises as ``encode`` does."""
    if precision not in UNIT_NUMBERS:
        check_precision(precision)
    if lines.table.grammar is INFLUX:  # which allows names that our decoder rejects
        for code in set(lines.series):
            write_series(lines.table.series[code].name, lines.table.series[code].tags)
    fields = {code: escape(lines.table.fields[code]) for code in set(lines.fields)}
    if KERNEL is None:
        return EncodedLines.of(list(_encode_rows(lines, fields, precision)))
    return EncodedLines(*KERNEL.encode_lines(lines, fields, UNIT_NUMBERS[precision]))


def _encode_rows(
    lines: Lines, fields: dict[int, bytes], precision: Precision | Literal["auto"]
) -> Iterator[bytes]:
    key = lines.table.codes.key
    stamp, last = b"", NO_TIME
    for index, (series, field, time) in enumerate(
        zip(lines.series, lines.fields, lines.times, strict=True)
    ):
        if time != last:
            last, stamp = time, b"" if time == NO_TIME else write_time(time, precision)
        value = write_value(lines.value(index))
        yield b"%b %b=%b%b\n" % (key(series), fields[field], value, stamp)


def to_lines(messages: Iterable[Message], rejected: Sequence[Rejected] = ()) -> Lines:
    """Convert messages to columns; ``Lines`` are returned unchanged.

    `rejected` has the undecodable parts of the same input, or records that a translator rejects;
    messages that line protocol cannot represent are appended.
    """
    if isinstance(messages, Lines):
        return messages
    messages, bad = list(messages), [_line(each) for each in rejected]
    # Encoding and decoding by the kernel applies every rule, at several million messages per
    # second; appending row by row would take ten times as long.
    try:
        encoded = encode(messages, precision="ns")
    except EncodeError:
        good = []
        for message in messages:
            try:
                good.append(encode([message], precision="ns"))
            except EncodeError as error:
                bad.append(RejectedLine(0, 0, 0, str(error), original(message)))
        encoded = b"".join(good)
    lines = decode(encoded, precision="ns")
    lines.rejected[:0] = bad
    return lines


def _line(bad: Rejected) -> RejectedLine:
    if isinstance(bad, RejectedLine):
        return bad
    return RejectedLine(bad.line, bad.offset, 0, bad.reason, bad.original)
