"""Rows for scripts and spreadsheets: JSON lines and CSV, written and read back.

JSON lines (jsonlines.org) have one object per message, usable with ``jq``; CSV (RFC 4180, but with
LF) has one row. Its columns do not depend on the tags, so rows can be streamed. Files, as written
by the sink ``file``, are read block by block.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.files import BLOCK, MAX_LINE_SIZE, ReadableStream, read_piece
from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.formats.rfc3339 import parse_rfc3339, rfc3339
from ccpipe.message import Kind, Message, Uint, Value


def _plain(value: Any) -> float | str:
    """Convert a type that msgspec does not support, such as ``Uint`` or a NumPy number."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise EncodeError(f"{value!r:.80} is not a valid value in JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tags: dict[str, str]
    field: str
    value: float | int | bool | str
    time: str | None


def encode_json(records: Iterable[Message]) -> bytes:
    """Encode records as JSON lines, each ending in LF.

    Integers keep all their digits (readers that use doubles round them beyond 2⁵³); ``time`` is
    RFC 3339, or null if a record has no time. Raises EncodeError, naming the record, for values
    that JSON cannot represent: NaN, infinity, lone surrogates, times beyond RFC 3339.
    """
    return b"".join(map(_encode_message, records))


def _encode_message(message: Message) -> bytes:
    try:
        if isinstance(message.value, float) and not math.isfinite(message.value):
            raise EncodeError(f"{message.value} is not a valid value in JSON")
        time = None if message.time is None else rfc3339(message.time)
        line = _Line(message.name, dict(message.tags), message.field, message.value, time)
        return _ENCODER.encode(line) + b"\n"
    except (EncodeError, UnicodeEncodeError) as error:
        raise _named(message, error) from None


def _named(message: Message, error: Exception) -> EncodeError:
    return EncodeError(f"{message.name[:80]!r} {dict(message.tags)!r:.200}: {error}")


_DECODER = msgspec.json.Decoder(_Line)


def decode_json(line: bytes) -> Message:
    """Decode one line that ``encode_json`` wrote.

    An unsigned integer that fits a signed one of 64 bits is read as such: JSON has one integer
    type. Raises DataError for any other line.
    """
    try:
        found = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(str(error)) from None
    value = found.value
    if type(value) is int and not -(2**63) <= value < 2**63:
        if not 0 <= value < 2**64:
            raise DataError(f"{value} does not fit into 64 bits")
        value = Uint(value)
    time = None if found.time is None else parse_rfc3339(found.time)
    return Message(found.name, dict(sorted(found.tags.items())), value, time, found.field)


TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column of their own; the others share the column ``tags``."""

COLUMNS = ("time", "name", "field", *TAG_COLUMNS, "tags", "value")

CSV_HEADER = (",".join(COLUMNS) + "\n").encode()
"""The first line of a file; ``encode_csv`` does not write it."""


def encode_csv(records: Iterable[Message]) -> bytes:
    """Encode records as rows of CSV, each ending in LF.

    ``time`` is RFC 3339; ``tags`` is ``key=value`` joined with spaces, with a backslash before a
    space, ``=`` or backslash in a tag; booleans are ``true`` and ``false``. Missing values are
    empty. Raises EncodeError, naming the record, for lone surrogates and times beyond RFC 3339.
    """
    rows = _RowList()
    writer = csv.writer(rows)
    for message in records:
        try:
            writer.writerow(_row(message))
            rows[-1].encode()
        except (EncodeError, UnicodeEncodeError) as error:
            raise _named(message, error) from None
    # Written with CRLF and changed here: the csv module quotes only the characters of its line
    # end, and a lone CR inside a text must be quoted too.
    return "".join(row[:-2] + "\n" for row in rows).encode()


class _RowList(list[str]):
    """A list of rows that ``csv.writer`` can write to."""

    write = list.append


def _row(message: Message) -> list[str]:
    tags = message.tags
    return [
        "" if message.time is None else rfc3339(message.time),
        message.name,
        message.field,
        *(tags.get(tag, "") for tag in TAG_COLUMNS),
        _other_tags(tags),
        _value(message.value),
    ]


_ESCAPES = str.maketrans({"\\": r"\\", " ": r"\ ", "=": r"\="})


def _other_tags(tags: Mapping[str, str]) -> str:
    return " ".join(
        f"{key.translate(_ESCAPES)}={value.translate(_ESCAPES)}"
        for key, value in tags.items()
        if key not in TAG_COLUMNS
    )


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value)
        case _:
            return str(value)


class NotARow(DataError):  # noqa: N818 - named for the rule
    """The number of columns is wrong, perhaps because a quotation mark is missing."""


def decode_csv(row: bytes) -> Message:
    """Decode one row that ``encode_csv`` wrote; it may span several lines.

    CSV has no types. The value of an event, a log or a control message is a text; any other is a
    number or a boolean if it looks like one, an unsigned integer only if it exceeds a signed one of
    64 bits. Raises NotARow if the number of columns is wrong; DataError if a value is invalid.
    """
    cells = _read_cells(row)
    if len(cells) != len(COLUMNS):
        raise NotARow(f"{len(cells)} columns instead of {len(COLUMNS)}")
    time, name, field, *own, others, value = cells
    tags = {tag: text for tag, text in zip(TAG_COLUMNS, own, strict=True) if text}
    tags |= _read_other_tags(others)
    return Message(
        name,
        dict(sorted(tags.items())),
        value if Kind.of(field) in _TEXTS else _read_value(value),
        parse_rfc3339(time) if time else None,
        field,
    )


_TEXTS = {Kind.EVENT, Kind.LOG, Kind.CONTROL}


def _read_cells(row: bytes) -> list[str]:
    if csv.field_size_limit() < len(row):
        csv.field_size_limit(len(row))
    try:
        rows = list(csv.reader([row.decode()], strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise NotARow(str(error)) from None
    return rows[0] if rows else []


_TAG = re.compile(r"((?:[^\\ =]|\\.)*)=((?:[^\\ =]|\\.)*)(?: |$)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _read_other_tags(text: str) -> dict[str, str]:
    tags, place = {}, 0
    while place < len(text):
        found = _TAG.match(text, place)
        if found is None:
            raise DataError(f"not a tag: {text[place:]!r:.60}")
        key, value = (_ESCAPED.sub(r"\1", part) for part in found.groups())
        tags[key] = value
        place = found.end()
    return tags


_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|[+-]?inf", re.ASCII | re.IGNORECASE)


def _read_value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) < _MAX_DIGITS:
        number = int(text)
        if -(2**63) <= number < 2**64:
            return number if number < 2**63 else Uint(number)
    return float(text) if _FLOAT.fullmatch(text) else text


_MAX_DIGITS = 1000


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # written by spreadsheets


def read_json(stream: ReadableStream, *, block: int = BLOCK) -> Iterator[Lines]:
    """Read JSON lines, skipping empty ones. Raises the same errors as ``read_csv``."""
    return _Rows(stream, decode_json, _end_of_line, block).read()


def read_csv(stream: ReadableStream, *, block: int = BLOCK) -> Iterator[Lines]:
    """Read CSV with its header, which may be repeated where files were concatenated.

    A missing quotation mark makes the following lines part of its row. If such a row does not have
    the right columns, its first line is rejected and the next line begins a row. Raises DataError
    if the file does not begin with the header, a line is longer than ``MAX_LINE_SIZE``, or reading
    fails.
    """
    rows = _Rows(stream, decode_csv, _end_of_row, block)
    rows.expect_header()
    return rows.read()


def _end_of_line(text: bytes, start: int) -> int:
    """Return the end of the line at `start`, after its LF; 0 if it is incomplete."""
    return text.find(b"\n", start) + 1


def _end_of_row(text: bytes, start: int) -> int:
    """Return the end of the row at `start`: after the first LF outside quotes."""
    place, quotes = start, 0
    while end := text.find(b"\n", place) + 1:
        quotes += text.count(b'"', place, end)
        if quotes % 2 == 0:
            return end
        place = end
    return 0


class _Rows:
    """Buffered text of a file, and its position."""

    def __init__(
        self,
        stream: ReadableStream,
        decode: Callable[[bytes], Message],
        end_of: Callable[[bytes, int], int],
        block: int,
    ) -> None:
        self.stream = stream
        self.decode = decode
        self.end_of = end_of
        self.block = block
        self.text = b""
        self.is_over = False
        self.line, self.offset = 1, 0

    def fill(self) -> None:
        fresh = read_piece(self.stream, max(self.block, len(self.text)))
        self.text += fresh
        self.is_over = not fresh

    def drop(self, size: int) -> None:
        self.line += self.text.count(b"\n", 0, size)
        self.offset += size
        self.text = self.text[size:]

    def expect_header(self) -> None:
        """Skip the header; an empty file does not need one."""
        while not (end := self.text.find(b"\n") + 1) and not self.is_over:
            if len(self.text) > MAX_LINE_SIZE:
                break
            self.fill()
        head = self.text[: end or None].removeprefix(_BYTE_ORDER_MARK)
        if self.text and not _is_header(head):
            raise DataError(f"expected the header {CSV_HEADER.decode().strip()}")
        self.drop(end or len(self.text))

    def read(self) -> Iterator[Lines]:
        """Yield the rows; a rejected row does not affect the others."""
        while not self.is_over:
            self.fill()
            messages, rejected, size = list[Message](), list[RejectedLine](), 0
            line = self.line
            while end := self._end(size):
                row = self.text[size:end]
                try:
                    if row.strip() and not _is_header(row):
                        messages.append(self.decode(row))
                except DataError as error:
                    if isinstance(error, NotARow):
                        end = self.text.find(b"\n", size) + 1 or len(self.text)
                        row = self.text[size:end]
                    place = self.offset + size
                    original = row.rstrip(b"\r\n")
                    rejected.append(RejectedLine(line, place, 0, str(error), original))
                line += row.count(b"\n")
                size = end
            yield to_lines(messages, rejected)
            self.drop(size)

    def _end(self, start: int) -> int:
        if start == len(self.text):
            return 0
        if end := self.end_of(self.text, start):
            return end
        if self.is_over:
            return len(self.text)
        if len(self.text) - start <= MAX_LINE_SIZE:
            return 0
        if not (end := self.text.find(b"\n", start) + 1):
            raise DataError(f"a line is longer than {MAX_LINE_SIZE} bytes")
        return end


def _is_header(row: bytes) -> bool:
    return row.rstrip(b"\r\n") == CSV_HEADER.rstrip(b"\n")
