"""The columns of the files, and the names of their folders."""

import pyarrow as pa

TAG_COLUMNS = ("hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column of their own, with ``_`` for ``-``; the others are in the column ``tags``."""

NAME = pa.dictionary(pa.int32(), pa.string())
"""Arrow type of names and tags."""

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("ns", pa.int16()),
        ("name", NAME),
        ("field", NAME),
        *((tag.replace("-", "_"), NAME) for tag in TAG_COLUMNS),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("value", pa.float64()),
        ("int", pa.int64()),
        ("uint", pa.uint64()),
        ("bool", pa.bool_()),
        ("text", pa.string()),
    ]
)
"""One row for each field of each line.

``time`` has microseconds, which every reader can compare, truncate and subtract; ``ns`` the 0 to
999 nanoseconds beyond. ``value`` holds every number (booleans as 0 and 1) and is null for texts;
``int``, ``uint`` and ``bool`` hold the exact value of an integer, unsigned integer or boolean.
"""

PATH_COLUMNS = pa.schema([("cluster", pa.string()), ("date", pa.date32())])
"""Columns from the path: the cluster and the day in UTC."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Stands in a path for a missing tag ``cluster`` or timestamp."""

MAX_NAME = 255
"""Maximum length of a folder's name on Linux, in bytes."""

DAY = 86_400 * 10**9
"""A day in nanoseconds."""
