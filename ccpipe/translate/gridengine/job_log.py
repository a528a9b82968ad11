"""Lines of the reporting file's ``job_log`` as events, which is how they travel, and back.

Only those travel that say when a job started or was deleted: the others tell nothing that an
accounting record does not say better. As with records, the place where a line was read is in the
event, so that no two are the same.
"""

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.gridengine import Origin
from ccpipe.formats.gridengine.event import NAME, tag
from ccpipe.formats.gridengine.reader import Rejected, split_lines
from ccpipe.formats.gridengine.reporting import JobLog, parse_job_log
from ccpipe.message import Message, event
from ccpipe.translate.gridengine.events import clean

FUNCTION = "job_log"
DELETED = "deleted"


class Told(msgspec.Struct, frozen=True):
    """A line, and where it was read."""

    log: JobLog
    origin: Origin

    @property
    def key(self) -> tuple[int, int]:
        """Job number and array task; task -1 where the whole job is meant."""
        return self.log.job_number, self.log.task_number


def read(payload: bytes, *, file: str, offset: int, line: int) -> tuple[list[Told], list[Rejected]]:
    """Read what the lines of a payload tell of starts and deletions.

    The payload begins at `offset` of a file with its line `line`.
    """
    found: list[Told] = []
    rejected: list[Rejected] = []
    for number, text in enumerate(split_lines(payload), line):
        try:
            log = parse_job_log(text)
        except DataError as error:
            rejected.append(Rejected(number, offset, str(error), text))
        else:
            if log is not None and (log.is_start or log.event == DELETED):
                found.append(Told(log, Origin(file, offset, number)))
        offset += len(text) + 1
    return found, rejected


def to_event(reported: Told, *, cluster: str) -> Message:
    """Return a line as an event of class ``accounting``, at the moment that it tells of."""
    texts = {
        key: clean(value) if isinstance(value, str) else value
        for key, value in msgspec.structs.asdict(reported.log).items()
    }
    payload = msgspec.json.encode({**texts, "origin": reported.origin}).decode()
    host = tag(clean(reported.log.host))
    tags = {"cluster": cluster, **({"hostname": host} if host else {}), "type": "node"}
    return event(NAME, FUNCTION, payload, time=reported.log.time, tags=tags)


def is_event(message: Message) -> bool:
    """Say whether a message is such an event."""
    return (message.name, message.field, message.tags.get("function")) == (NAME, "event", FUNCTION)


def from_event(message: Message) -> Told:
    """Return the line of such an event.

    Raises
    ------
    DataError
        where its payload is none.

    """
    try:
        content = str(message.value).encode()
        log = msgspec.json.decode(content, type=JobLog)
        return Told(log, msgspec.json.decode(content, type=_Place).origin)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise DataError(f"an event that holds no job_log line: {error}") from None


class _Place(msgspec.Struct, frozen=True):
    origin: Origin = Origin()
