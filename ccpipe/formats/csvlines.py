"""CSV (RFC 4180, but with LF): one row for each message, for spreadsheets and data frames.

The columns are always the same, whatever the tags, so that rows can be streamed.
"""

import csv
import re
from collections.abc import Iterable, Mapping

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.rfc3339 import parse_rfc3339, rfc3339
from ccpipe.message import Kind, Message, Uint, Value

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column of their own; the others share the column ``tags``."""

COLUMNS = ("time", "name", "field", *TAG_COLUMNS, "tags", "value")

HEADER = (",".join(COLUMNS) + "\n").encode()
"""The first line of a file; ``encode`` does not write it."""


def encode(records: Iterable[Message]) -> bytes:
    """Encode records as rows of CSV, each ending in LF.

    ``time`` is RFC 3339; ``tags`` is ``key=value`` joined with spaces, with a backslash before a
    space, ``=`` or backslash in a tag; booleans are ``true`` and ``false``. What is missing is
    empty. Raises EncodeError for half a surrogate pair and times beyond RFC 3339. It names the
    record.
    """
    rows = _RowList()
    writer = csv.writer(rows)
    for message in records:
        try:
            writer.writerow(_row(message))
            rows[-1].encode()
        except (EncodeError, UnicodeEncodeError) as error:
            record = f"{message.name[:80]!r} {dict(message.tags)!r:.200}"
            raise EncodeError(f"{record}: {error}") from None
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
    """The text does not have the columns of a row, perhaps because a quotation mark is missing."""


def decode(row: bytes) -> Message:
    """Decode one row that ``encode`` wrote, which may be several lines.

    CSV says nothing of types. The value of an event, a log or a control message is a text; any
    other is a number or a boolean if it looks like one, an unsigned integer only if a signed one of
    64 bits cannot hold it. Raises NotARow if it does not have the columns; DataError if a column
    cannot be what it holds.
    """
    cells = read_cells(row)
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


def read_cells(row: bytes) -> list[str]:
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
