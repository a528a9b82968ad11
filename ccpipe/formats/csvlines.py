"""CSV (RFC 4180, but with LF): one row for each message, for spreadsheets and data frames.

The columns are always the same, whatever the tags, so that rows can be streamed.

>>> from ccpipe.message import metric
>>> tags = {"hostname": "e1208", "type": "node", "unit": "GB/s"}
>>> HEADER + encode([metric("mem_bw", 1.5, time=1740027951 * 10**9, tags=tags)])
b'time,name,field,cluster,hostname,type,type-id,stype,stype-id,tags,value\\n\
2025-02-20T05:05:51Z,mem_bw,value,,e1208,node,,,,unit=GB/s,1.5\\n'
"""

import csv
from collections.abc import Iterable, Mapping

from ccpipe.errors import EncodeError
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.message import Message, Value

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column each; the others share the column ``tags``."""

COLUMNS = ("time", "name", "field", *TAG_COLUMNS, "tags", "value")

HEADER = (",".join(COLUMNS) + "\n").encode()
"""The first line of a file; ``encode`` does not write it."""


def encode(records: Iterable[Message]) -> bytes:
    """Encode records as rows of CSV, each ending in LF.

    ``time`` is RFC 3339; ``tags`` is ``key=value`` joined with spaces, with a backslash before a
    space, ``=`` or backslash in a tag; booleans are ``true`` and ``false``. What is missing is
    empty.

    Raises
    ------
    EncodeError
        for half a surrogate pair and times beyond RFC 3339. It names the record.

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
