"""Accounting records and ``job_log`` lines as events of the line protocol, for the bus.

The payload is the record as OCS writes it in JSON lines, or the fields of the line, with the
additional key ``origin``: where it was read. No two have the same origin, so no two events are
equal, and a broker that deduplicates by content stores each once.
"""

from urllib.parse import quote

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.jsonl import parse_jsonl
from ccpipe.formats.gridengine.record import Accounting, Origin, clean
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.gridengine.writer import encode_jsonl
from ccpipe.message import Message, event

NAME = "accounting"
RECORD, JOB_LOG = "record", "job_log"


def to_event(record: Accounting | JobLog, *, cluster: str, hostname: str = "") -> Message:
    """Return a record or line as an event; `hostname` is used for jobs that never ran.

    The time is the end of a record, else its latest known time, else none.
    """
    time: int | None
    if isinstance(record, JobLog):
        function, time, host = JOB_LOG, record.time, clean(record.host)
        texts = {
            key: clean(value) if isinstance(value, str) else value
            for key, value in msgspec.structs.asdict(record).items()
        }
        payload = msgspec.json.encode(texts).decode()
    else:
        function, host = RECORD, record.hostname or hostname
        extra = {**record.extra, "origin": msgspec.to_builtins(record.origin)}
        line = encode_jsonl(msgspec.structs.replace(record, extra=extra))
        payload = line.decode("utf-8", "replace").rstrip("\n")
        times = (record.end_time, record.reported, record.start_time, record.submission_time)
        time = next((each for each in times if each), None)
    tags = {"cluster": cluster, **({"hostname": tag(host)} if host else {}), "type": "node"}
    return msgspec.structs.replace(event(NAME, function, payload, time=0, tags=tags), time=time)


def tag(text: str) -> str:
    """Escape a text for a tag: a line feed becomes ``%0A``."""
    if text.isprintable() and not text.endswith("\\"):
        return text
    return quote(text.encode("utf-8", "surrogatepass"))


def is_event(message: Message) -> bool:
    is_accounting = message.name == NAME and message.field == "event"
    return is_accounting and message.tags.get("function") in (RECORD, JOB_LOG)


def from_event(message: Message) -> Accounting | JobLog:
    """Return the record or line of such an event; raises DataError if its payload is neither."""
    if message.tags.get("function") == JOB_LOG:
        try:
            return msgspec.json.decode(str(message.value), type=JobLog)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"an event without a job_log line: {error}") from None
    record = parse_jsonl(str(message.value).encode("utf-8", "surrogatepass"))
    if record is None:
        raise DataError("an event of class accounting without a record")
    extra = dict(record.extra)
    try:
        origin = msgspec.convert(extra.pop("origin", {}), Origin)
    except msgspec.ValidationError as error:
        raise DataError(f"origin: {error}") from None
    return msgspec.structs.replace(record, extra=extra, origin=origin)
