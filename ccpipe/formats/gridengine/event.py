"""An accounting record as an event of the line protocol, for the bus.

The payload is the record as OCS writes it in JSON lines, with the additional key ``origin``: where
it was read. No two records have the same origin, so no two events are equal, and a broker that
deduplicates by content stores each once.
"""

from urllib.parse import quote

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.jsonl import parse_jsonl
from ccpipe.formats.gridengine.record import Accounting, Origin
from ccpipe.formats.gridengine.writer import encode_jsonl
from ccpipe.message import Message, event

NAME, FUNCTION = "accounting", "record"
"""Class and function of such an event."""


def to_event(record: Accounting, *, cluster: str, hostname: str = "") -> Message:
    """Return a record as an event; `hostname` is used for jobs that never ran.

    Its time is the record's end, else the latest known time, else none.
    """
    extra = {**record.extra, "origin": msgspec.to_builtins(record.origin)}
    payload = encode_jsonl(msgspec.structs.replace(record, extra=extra))
    times = (record.end_time, record.reported, record.start_time, record.submission_time)
    host = tag(record.hostname or hostname)
    tags = {"cluster": cluster, **({"hostname": host} if host else {}), "type": "node"}
    text = payload.decode("utf-8", "replace").rstrip("\n")
    timestamp = next((time for time in times if time), None)
    return msgspec.structs.replace(event(NAME, FUNCTION, text, time=0, tags=tags), time=timestamp)


def tag(text: str) -> str:
    """Escape a text for a tag: a line feed becomes ``%0A``."""
    if text.isprintable() and not text.endswith("\\"):
        return text
    return quote(text.encode("utf-8", "surrogatepass"))


def is_event(message: Message) -> bool:
    """Return whether a message is such an event."""
    return (
        message.name == NAME
        and message.field == "event"
        and message.tags.get("function") == FUNCTION
    )


def from_event(message: Message) -> Accounting:
    """Return the record of such an event.

    Raises
    ------
    DataError
        if its payload is not a record.

    """
    record = parse_jsonl(str(message.value).encode("utf-8", "surrogatepass"))
    if record is None:
        raise DataError("an event of class accounting without a record")
    extra = dict(record.extra)
    try:
        origin = msgspec.convert(extra.pop("origin", {}), Origin)
    except msgspec.ValidationError as error:
        raise DataError(f"origin: {error}") from None
    return msgspec.structs.replace(record, extra=extra, origin=origin)
