"""CSV (RFC 4180, but with LF): one row for each message, for spreadsheets and data frames.

The columns never change, whatever tags come, so that rows can be streamed.

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
"""Tags that have a column of their own; the others share the column ``tags``."""

COLUMNS = ("time", "name", "field", *TAG_COLUMNS, "tags", "value")

HEADER = (",".join(COLUMNS) + "\n").encode()
"""The first line of a file; ``encode`` does not write it."""


def encode(records: Iterable[Message]) -> bytes:
    """Encode records as rows of CSV, each ending in LF.

    ``time`` is written as RFC 3339 says it; ``tags`` is ``key=value`` joined with spaces, where a
    backslash stands before a space, ``=`` or backslash of a tag's own; booleans are ``true`` and
    ``false``. What a record does not have is empty.

    Raises
    ------
    EncodeError
        for half characters and times that RFC 3339 cannot say. It names the record.

    """
    rows = _Rows()
    writer = csv.writer(rows)
    for message in records:
        try:
            writer.writerow(_row(message))
            rows[-1].encode()
        except (EncodeError, UnicodeEncodeError) as error:
            place = f"{message.name[:80]!r} {dict(message.tags)!r:.200}"
            raise EncodeError(f"{place}: {error}") from None
    # Written with CRLF and changed here: the csv module quotes only what its line end holds, and
    # a lone CR inside a text must be quoted too.
    return "".join(row[:-2] + "\n" for row in rows).encode()


class _Rows(list[str]):
    """A file of the kind that ``csv.writer`` writes to, which keeps its rows apart."""

    write = list.append


def _row(message: Message) -> list[str]:
    tags = message.tags
    return [
        "" if message.time is None else rfc3339(message.time),
        message.name,
        message.field,
        *(tags.get(tag, "") for tag in TAG_COLUMNS),
        _other_tags(tags),
        _spell(message.value),
    ]


_ESCAPES = str.maketrans({"\\": r"\\", " ": r"\ ", "=": r"\="})


def _other_tags(tags: Mapping[str, str]) -> str:
    return " ".join(
        f"{key.translate(_ESCAPES)}={value.translate(_ESCAPES)}"
        for key, value in tags.items()
        if key not in TAG_COLUMNS
    )


def _spell(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value)
        case _:
            return str(value)
