"""Envelopes as an Arrow table."""

from collections.abc import Iterable
from typing import Any

import msgspec

from ccpipe.errors import DataError, MissingExtra
from ccpipe.formats.sonar.encoder import encode
from ccpipe.formats.sonar.types import timestamp
from ccpipe.formats.sonar.types.envelope import Envelope

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

FIRST = ("type", "time", "cluster", "node")
"""Columns of every table; the others depend on the envelopes."""


def to_arrow(envelopes: Iterable[Envelope]) -> pa.Table:
    rows = [_row(envelope) for envelope in envelopes]
    columns: dict[str, Any] = {}
    for name in dict.fromkeys((*FIRST, *(key for row in rows for key in row))):
        kind = _TYPES.get(name)
        try:
            columns[name] = pa.array([row.get(name) for row in rows], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise DataError(f"column {name}: {error}") from None
    return pa.table(columns)


_TYPES = {
    **dict.fromkeys(("type", "cluster", "node", "producer", "version"), pa.string()),
    "time": pa.timestamp("ns", tz="UTC"),
}


def _row(envelope: Envelope) -> dict[str, Any]:
    written = msgspec.json.decode(encode(envelope))
    data = written.get("data", {})
    row = {
        "type": None if envelope.data is None else envelope.data.type,
        **written.get("meta", {}),
        **data.get("attributes", {}),
    }
    if "time" in row:
        row["time"] = timestamp.parse(row["time"])
    if "errors" in written:
        row["errors"] = written["errors"]
    return row
