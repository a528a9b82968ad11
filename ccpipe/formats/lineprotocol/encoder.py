"""Records to bytes in canonical form: equal records give equal bytes.

Tags are sorted, strings are quoted and escaped as ClusterCockpit unescapes them, and every line has
one field and ends in LF.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

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
    if precision not in UNIT_NUMBERS:
        check_precision(precision)
    if isinstance(records, Lines):
        return _encode_lines(records, precision)
    if KERNEL is None:
        return b"".join(write_message(message, precision) for message in records)
    encoded: bytes = KERNEL.encode_messages(
        records, UNIT_NUMBERS[precision], lambda message: write_message(message, precision)
    )
    return encoded


def encode_each(
    records: Iterable[Message], *, precision: Precision | Literal["auto"] = "s"
) -> list[bytes]:
    """Encode records to one line each, with its LF, for splitting into payloads."""
    # LF only occurs at the end of a line: names cannot contain it, strings escape it.
    return encode(records, precision=precision).splitlines(keepends=True)


def _encode_lines(lines: Lines, precision: Precision | Literal["auto"]) -> bytes:
    if lines.table.grammar is INFLUX:  # which allows names that our decoder rejects
        for code in set(lines.series):
            write_series(lines.table.series[code].name, lines.table.series[code].tags)
    fields = {code: escape(lines.table.fields[code]) for code in set(lines.fields)}
    if KERNEL is None:
        return b"".join(_encode_rows(lines, fields, precision))
    encoded: bytes = KERNEL.encode_lines(lines, fields, UNIT_NUMBERS[precision])
    return encoded


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
