"""Lines of the reporting file's ``job_log`` as events, which is how they travel, and back.

Only lines that report a start or a deletion travel; accounting records report the rest better.
As with records, an event holds the place where its line was read, so that no two are the same.
"""

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine import Origin
from ccpipe.formats.gridengine.event import NAME, tag
from ccpipe.formats.gridengine.reader import RejectedAccountingLine, split_lines
from ccpipe.formats.gridengine.reporting import JobLog, parse_job_log
from ccpipe.message import Message, event
from ccpipe.translate.gridengine.events import clean

FUNCTION = "job_log"
DELETED = "deleted"


class LoggedEvent(msgspec.Struct, frozen=True):
    """A line, and where it was read."""

    log: JobLog
    origin: Origin

    @property
    def key(self) -> tuple[int, int]:
        """Job number and array task; task -1 stands for the whole job."""
        return self.log.job_number, self.log.task_number


def read(
    payload: bytes, *, file: str, offset: int, line: int
) -> tuple[list[LoggedEvent], list[RejectedAccountingLine]]:
    """Parse the starts and deletions in a payload; return them and broken lines.

    The payload begins at `offset` of a file with its line `line`.
    """
    found: list[LoggedEvent] = []
    rejected: list[RejectedAccountingLine] = []
    for number, text in enumerate(split_lines(payload), line):
        try:
            log = parse_job_log(text)
        except DataError as error:
            rejected.append(RejectedAccountingLine(number, offset, str(error), text))
        else:
            if log is not None and (log.is_start or log.event == DELETED):
                found.append(LoggedEvent(log, Origin(file, offset, number)))
        offset += len(text) + 1
    return found, rejected


def to_event(reported: LoggedEvent, *, cluster: str) -> Message:
    """Return a line as an event of class ``accounting``, with the line's time."""
    texts = {
        key: clean(value) if isinstance(value, str) else value
        for key, value in msgspec.structs.asdict(reported.log).items()
    }
    payload = msgspec.json.encode({**texts, "origin": reported.origin}).decode()
    host = tag(clean(reported.log.host))
    tags = {"cluster": cluster, **({"hostname": host} if host else {}), "type": "node"}
    return event(NAME, FUNCTION, payload, time=reported.log.time, tags=tags)


def is_event(message: Message) -> bool:
    """Return whether a message is such an event."""
    return (message.name, message.field, message.tags.get("function")) == (NAME, "event", FUNCTION)


def from_event(message: Message) -> LoggedEvent:
    """Return the line of such an event.

    Raises
    ------
    DataError
        if its payload holds no line.

    """
    try:
        content = str(message.value).encode()
        log = msgspec.json.decode(content, type=JobLog)
        return LoggedEvent(log, msgspec.json.decode(content, type=_Place).origin)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DataError(f"an event without a job_log line: {error}") from None


class _Place(msgspec.Struct, frozen=True):
    origin: Origin = Origin()
